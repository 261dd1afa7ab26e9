"""Where the conversation stands, in words: the status line and what `/usage` shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.cells import cell_len
from rich.console import Group
from rich.table import Table
from rich.text import Text

from leporello.cli.format import counted, dollars, spent
from leporello.cli.window_bar import legend, window_bar
from leporello.messages.visible import visible

if TYPE_CHECKING:
    from rich.console import Console

    from leporello.session.accounts import SessionUsage


_WIDEST_BAR: Final = 72


def status_line(usage: SessionUsage, width: int = 0) -> str:
    """Return the line below the prompt; of one that is wider than `width`, the engine goes first, then the model."""
    cost = usage.conversation.cost_usd
    always = [window(usage), *([dollars(cost)] if cost else [])]
    lines = [visible(" · ".join([*always, *names])) for names in ((usage.engine, usage.model), (usage.model,), ())]
    return next((line for line in lines if not width or cell_len(line) <= width), lines[-1])


def window(usage: SessionUsage) -> str:
    """Say how full the window is."""
    if not usage.context_length:
        return f"{usage.tokens:,} tokens of an unknown window"
    return f"{usage.tokens:,} of {usage.context_length:,} tokens · {usage.percent:.0f} %"


def usage_table(usage: SessionUsage) -> Table:
    """Return everything that `/usage` shows."""
    table = Table.grid(padding=(0, 2))
    for name, value in _rows(usage):
        table.add_row(Text(name, style="dim"), Text(visible(value)))
    return table


def cost_table(usage: SessionUsage) -> Table:
    """Return what was spent: what `/cost` shows."""
    table = Table.grid(padding=(0, 2))
    for name, value in (("last turn", spent(usage.turn)), ("altogether", spent(usage.conversation))):
        table.add_row(Text(name, style="dim"), Text(value))
    return table


def kept(usage: SessionUsage) -> str:
    """Say what a fold has left, and why."""
    parts = usage.parts
    words = [f"a summary of {parts.summaries:,} tokens", f"the newest messages as they are ({parts.tail:,})"]
    if parts.masked:
        words.append(f"older ones with their long tool outputs in one line ({parts.masked:,})")
    words.append(f"system prompt and tools ({parts.system + parts.tools:,})")
    return f"left: {', '.join(words)}"


def window_chart(usage: SessionUsage, console: Console) -> Group:
    """Draw the window as a bar, with what each part of it weighs: what `/context` shows."""
    plain = console.no_color or console.color_system is None
    parts = {
        "system": ("system", usage.parts.system),
        "tools": ("tools", usage.parts.tools),
        "summary": ("summaries", usage.parts.summaries),
        "masked": ("masked zone", usage.parts.masked),
        "messages": ("tail", usage.parts.tail),
    }
    tokens = {name: size for name, (_, size) in parts.items()}
    length, threshold = usage.context_length, usage.folds_at
    bar = window_bar(tokens, length, threshold, min(console.width - 1, _WIDEST_BAR), plain=plain)
    table = Table.grid(padding=(0, 2))
    for name, (title, size) in parts.items():
        table.add_row(legend(name, plain=plain), title, *_share(size, length))
    if length:
        table.add_row(Text("·", style="dim"), "free", *_share(max(0, length - usage.tokens), length))
    fold = [Text.assemble(("│ ", "red"), f"folds at {threshold:,} tokens")] if threshold else []
    return Group(bar, Text(window(usage)), table, *fold)


def _share(tokens: int, length: int) -> tuple[Text, Text]:
    share = f"{100 * tokens / length:.1f} %" if length else ""
    return Text(f"{tokens:,}", justify="right"), Text(share, justify="right", style="dim")


def _rows(usage: SessionUsage) -> list[tuple[str, str]]:
    folds = f", folds at {usage.folds_at:,} tokens" if usage.folds_at else ""
    moves = counted(usage.prefix_moves, "time")
    return [
        ("conversation", usage.session_id),
        ("model", usage.model),
        ("engine", f"{usage.engine}{folds}"),
        ("window", window(usage) + ("" if usage.reported else " (estimated)")),
        ("  system", f"{usage.parts.system:,}"),
        ("  tools", f"{usage.parts.tools:,}"),
        ("  summaries", f"{usage.parts.summaries:,}"),
        ("  masked zone", f"{usage.parts.masked:,}"),
        ("  tail", f"{usage.parts.tail:,}"),
        ("messages", f"{usage.messages:,}"),
        ("compactions", f"{usage.compactions:,}"),
        ("last turn", spent(usage.turn)),
        ("altogether", spent(usage.conversation)),
        ("cached prefix", f"moved {moves}" if usage.prefix_moves else "never moved"),
        *([("caching", usage.caching)] if usage.caching else []),
    ]
