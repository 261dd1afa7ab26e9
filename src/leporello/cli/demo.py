"""`leporello demo`: a long agent conversation is folded before your eyes; no key needed."""

from __future__ import annotations

import json
import time
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console, Group
from rich.live import Live
from rich.markdown import Markdown
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from leporello.compressor import ContextCompressor
from leporello.compressor.place import strip_summary
from leporello.messages import Message, is_system, role_of, text_of
from leporello.testing.demo_conversation import DemoConversation, demo_conversation
from leporello.tokens import count_message, count_messages

if TYPE_CHECKING:
    from leporello.engine import CompactionReport

SECONDS_PER_MESSAGE = 0.02
BAR_WIDTH = 60
SHOWN_SUMMARY_LINES = 40


@dataclass
class Demonstration:
    """The state of the show: the window as the model would get it, and what happened to it."""

    story: DemoConversation
    engine: ContextCompressor
    window: list[Message] = field(default_factory=list)
    seen: int = 0
    original_tokens: int = 0
    largest: int = 0
    reports: list[CompactionReport] = field(default_factory=list)

    def step(self, message: Message) -> None:
        """Take one more message, and fold before the model would be called."""
        self.window.append(message)
        self.seen += 1
        self.original_tokens += count_message(message)
        tokens = count_messages(self.window)
        self.largest = max(self.largest, tokens)
        if role_of(message) in ("user", "tool") and self.engine.should_compress(tokens):
            self.window = self.engine.compress(self.window, current_tokens=tokens)
            assert self.engine.last_compaction is not None  # noqa: S101 - compress() always reports
            self.reports.append(self.engine.last_compaction)

    @property
    def summary(self) -> str:
        """The summary in the window, or ""."""
        return strip_summary(self.window).previous

    def kept(self) -> dict[str, str]:
        """Say which of the things that matter are still in the window."""
        text = "\n".join(json.dumps(message, ensure_ascii=False) for message in self.window)
        paths = sum(path in text for path in self.story.paths)
        errors = sum(json.dumps(error, ensure_ascii=False)[1:-1] in text for error in self.story.errors)
        return {
            "file paths": f"{paths} of {len(self.story.paths)}",
            "errors": f"{errors} of {len(self.story.errors)}",
            "the last instruction": "word for word"
            if text_of(self.window[-1]) == self.story.last_instruction
            else "no",
        }


@click.command(name="demo")
@click.option("--window", default=128_000, show_default=True, help="The model's window in tokens.")
@click.option("--fast", is_flag=True, help="No live view.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
def command(window: int, fast: bool, as_json: bool) -> None:
    """Fold a long agent conversation before your eyes; no key needed.

    Example: leporello demo --window 64000
    """
    console = Console()
    show = Demonstration(demo_conversation(), ContextCompressor(window))
    show.engine.on_event = lambda _: None
    live = console.is_terminal and not fast and not as_json
    with Live(console=console, refresh_per_second=25) if live else nullcontext() as view:
        for message in show.story.messages:
            show.step(message)
            if view is not None:
                view.update(_frame(show))
                time.sleep(SECONDS_PER_MESSAGE)
    if as_json:
        click.echo(json.dumps(_figures(show), indent=2))
    else:
        console.print(*_report(show), sep="\n")


def _frame(show: Demonstration) -> Panel:
    """Draw the window: what it holds, how full it is, where the threshold lies."""
    tokens, window = count_messages(show.window), show.engine.context_length
    threshold = show.engine.threshold_tokens
    lines = Group(
        Text(
            f"message {show.seen} of {len(show.story.messages)}   {show.original_tokens:,} tokens so far", style="dim"
        ),
        _bar(show),
        Text(f"{tokens:>8,} tokens in the window ({tokens / window:.0%}), compaction at {threshold:,}"),
        *[Text(f"  ✂ {_line(report)}", style="green") for report in show.reports],
    )
    return Panel(lines, title=f"compressor, window {window:,}", border_style="cyan", width=96)


def _bar(show: Demonstration) -> Text:
    per_cell = show.engine.context_length / BAR_WIDTH
    bar = Text()
    for name, style in (("system", "blue"), ("summary", "green"), ("messages", "yellow")):
        bar.append("█" * round(_parts(show)[name] / per_cell), style=style)
    mark = round(show.engine.threshold_tokens / per_cell)
    bar.append("·" * max(0, BAR_WIDTH - len(bar)), style="dim")
    return Text.assemble(
        bar[:mark], ("│", "red"), bar[mark:], "  ", ("system ", "blue"), ("summary ", "green"), ("messages", "yellow")
    )


def _parts(show: Demonstration) -> dict[str, int]:
    """Count the tokens of the window by part."""
    system = sum(count_message(message) for message in show.window if is_system(message))
    total = count_messages(show.window)
    rest = strip_summary(show.window).messages
    without = sum(count_message(message) for message in rest if not is_system(message))
    return {"system": system, "summary": total - system - without, "messages": without}


def _line(report: CompactionReport) -> str:
    return (
        f"{report.messages_before} → {report.messages_after} messages, {report.tokens_before:,} → "
        f"{report.tokens_after:,} tokens ({report.saved:.0%} saved) in {report.seconds * 1000:.0f} ms"
    )


def _report(show: Demonstration) -> list[Any]:
    table = Table(title="Before and after", title_justify="left", min_width=70)
    for name in ("", "messages", "tokens", "time", "model calls"):
        table.add_column(name, justify="right" if name else "left")
    table.add_row("whole conversation", str(show.seen), f"{show.original_tokens:,}", "", "")
    for number, report in enumerate(show.reports, start=1):
        table.add_row(f"compaction {number}: before", str(report.messages_before), f"{report.tokens_before:,}", "", "")
        after = (str(report.messages_after), f"{report.tokens_after:,}", f"{report.seconds * 1000:.0f} ms")
        table.add_row("              after", *after, str(report.model_calls))
    table.add_row("window at the end", str(len(show.window)), f"{count_messages(show.window):,}", "", "")
    kept = Table(title="Still in the window", title_justify="left", show_header=False, min_width=70)
    for name, value in show.kept().items():
        kept.add_row(name, value)
    lines = show.summary.splitlines()
    more = f"\n\n*… and {len(lines) - SHOWN_SUMMARY_LINES} more lines*" if len(lines) > SHOWN_SUMMARY_LINES else ""
    summary = Panel(
        Markdown("\n".join(lines[:SHOWN_SUMMARY_LINES]) + more), title="The summary, made without a model", width=110
    )
    return [summary, table, kept]


def _figures(show: Demonstration) -> dict[str, Any]:
    return {
        "messages": show.seen,
        "tokens": show.original_tokens,
        "largest_window": show.largest,
        "window_messages": len(show.window),
        "window_tokens": count_messages(show.window),
        "compactions": [asdict(report) for report in show.reports],
        "kept": show.kept(),
    }
