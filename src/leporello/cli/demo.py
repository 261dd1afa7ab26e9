"""`leporello demo`: a long agent conversation is folded before your eyes by both engines; no key needed."""

from __future__ import annotations

import json
import time
from contextlib import nullcontext
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.markdown import Markdown
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from leporello.cli.demo_show import Demonstration, Side
from leporello.cli.format import on_one_line
from leporello.cli.store_options import opened
from leporello.cli.window_bar import STYLES, window_bar
from leporello.testing.demo_conversation import demo_conversation

if TYPE_CHECKING:
    from leporello.engine import CompactionReport

SECONDS_PER_MESSAGE = 0.02
PANEL_WIDTH = 62
BAR_WIDTH = 56
SHOWN_SUMMARY_LINES = 12
SHOWN_HIT = 170
SHOWN_FOLDS = 6
_STYLES = {name: style for name, style in STYLES.items() if name != "tools"}
_NAMES = {"compressor": "compressor: folds into a summary", "lcm": "lcm: folds, and keeps every word in a store"}


@click.command(name="demo")
@click.option(
    "--window", type=click.IntRange(8_000), default=128_000, show_default=True, help="The model's window in tokens."
)
@click.option("--fast", is_flag=True, help="No live view.")
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option("--store", "address", metavar="ADDRESS", default=":memory:", help="Keep the conversation in this store.")
def command(window: int, fast: bool, as_json: bool, address: str) -> None:
    """Fold a long agent conversation before your eyes, with both engines; no key needed.

    With --store you can go on with it: leporello grep, expand, verify.

    Example: leporello demo --window 64000 --store demo.db
    """
    console = Console()
    begun = time.time()  # every message has this time: blocks name times, and the figures must not depend on the pace
    with opened(address, must_exist=False, clock=lambda: begun) as store:
        show = Demonstration.of(demo_conversation(), window, store)
        _play(show, console, live=console.is_terminal and not fast and not as_json)
        if as_json:
            click.echo(json.dumps(_figures(show), indent=2))
        else:
            console.print(*_report(show), sep="\n")


def _play(show: Demonstration, console: Console, *, live: bool) -> None:
    """Let the conversation run, at a pace that can be followed on a terminal."""
    started = time.monotonic()
    with Live(console=console, auto_refresh=False) if live else nullcontext() as view:
        for message in show.story.messages:
            show.step(message)
            ahead = started + show.seen * SECONDS_PER_MESSAGE - time.monotonic()
            if view is not None and (ahead > 0 or show.seen == len(show.story.messages)):
                view.update(_frame(show), refresh=True)
                time.sleep(max(0.0, ahead))


def _frame(show: Demonstration) -> Group:
    """Draw both windows: what they hold, how full they are, where their thresholds lie."""
    so_far = f"message {show.seen} of {len(show.story.messages)}, {show.original_tokens:,} tokens so far   "
    head = Text.assemble((so_far, "dim"), *[(f"{name} ", style) for name, style in _STYLES.items()])
    return Group(head, Columns([_panel(side) for side in show.sides]))


def _panel(side: Side) -> Panel:
    window, threshold = side.engine.context_length, side.engine.threshold_tokens
    lines = Group(
        _bar(side),
        Text(f"{side.tokens:,} of {window:,} tokens ({side.tokens / window:.0%}), folds at {threshold:,}"),
        *[Text(f"✂ {_line(report)}", style="green") for report in side.reports[-SHOWN_FOLDS:]],
    )
    return Panel(lines, title=_NAMES[side.engine.name], border_style="cyan", width=PANEL_WIDTH)


def _bar(side: Side) -> Text:
    return window_bar(side.parts(), side.engine.context_length, side.engine.threshold_tokens, BAR_WIDTH)


def _line(report: CompactionReport) -> str:
    return (
        f"{report.messages_before} → {report.messages_after} messages, {report.tokens_before:,} → "
        f"{report.tokens_after:,} tokens, {report.seconds * 1000:.0f} ms"
    )


def _report(show: Demonstration) -> list[RenderableType]:
    return [_summary(show.compressor), _questions(show), _before_and_after(show), _kept(show), *_verdict(show)]


def _summary(side: Side) -> Panel:
    lines = (side.summary or "Nothing had to be folded: the conversation fits the window.").splitlines()
    left = len(lines) - SHOWN_SUMMARY_LINES
    text = "\n".join(lines[:SHOWN_SUMMARY_LINES]) + (f"\n\n*… and {left} more lines*" if left > 0 else "")
    return Panel(Markdown(text), title="The compressor's summary, made without a model", width=110)


def _questions(show: Demonstration) -> Panel:
    lines: list[Text] = []
    for answer in show.answers():
        lines.append(Text(("\n" if lines else "") + answer["question"], style="bold"))
        for hit in answer["hits"][:1]:
            where = f"in {hit['node']}" if hit["node"] else "not folded"
            lines.append(Text(f"{hit['id']} {where}: {on_one_line(hit['snippet'], SHOWN_HIT)}"))
    return Panel(Group(*lines), title="Asked about folded turns, answered from the store with lcm_grep", width=110)


def _before_and_after(show: Demonstration) -> Table:
    table = Table(title="Before and after", title_justify="left", min_width=70)
    for name in ("", "messages", "tokens", "time", "model calls"):
        table.add_column(name, justify="right" if name else "left")
    table.add_row("whole conversation", str(show.seen), f"{show.original_tokens:,}", "", "")
    for side in show.sides:
        table.add_section()
        for number, report in _first_and_last(list(enumerate(side.reports, start=1))):
            table.add_row(
                f"{side.engine.name}, fold {number}",
                f"{report.messages_before} → {report.messages_after}",
                f"{report.tokens_before:,} → {report.tokens_after:,}",
                f"{report.seconds * 1000:.0f} ms",
                str(report.model_calls),
            )
        table.add_row(f"{side.engine.name}, at the end", str(len(side.window)), f"{side.tokens:,}", "", "")
    return table


def _first_and_last(folds: list[tuple[int, CompactionReport]]) -> list[tuple[int, CompactionReport]]:
    """Leave out the middle of many folds; their numbers show it."""
    half = SHOWN_FOLDS // 2
    return folds if len(folds) <= SHOWN_FOLDS else folds[:half] + folds[-half:]


def _kept(show: Demonstration) -> Table:
    table = Table(title="In the window at the end", title_justify="left", min_width=70)
    for name in ("", "compressor", "lcm"):
        table.add_column(name)
    compressor, lcm = ({**_zones(side), **side.kept(show.story)} for side in show.sides)
    for name, value in compressor.items():
        table.add_row(name, value, lcm[name])
    return table


def _zones(side: Side) -> dict[str, str]:
    """Say how large each zone of the window is."""
    names = {"system": "system", "summary": "summary or blocks", "masked": "masked zone", "messages": "word for word"}
    parts = side.parts()
    return {title: f"{parts[name]:,} tokens" for name, title in names.items()}


def _verdict(show: Demonstration) -> list[Text]:
    findings = show.verified()
    if findings:
        return [Text(f"✗ {finding.where}: {finding.problem}", style="red") for finding in findings]
    text = f"✓ verified: nothing is lost; {show.word_for_word()} messages unfold word for word"
    return [Text(text, style="green")]


def _figures(show: Demonstration) -> dict[str, Any]:
    return {
        "messages": show.seen,
        "tokens": show.original_tokens,
        **_side_figures(show.compressor, show),
        "lcm": _side_figures(show.lcm, show),
        "answers": show.answers(),
        "findings": [asdict(finding) for finding in show.verified()],
        "word_for_word": show.word_for_word(),
    }


def _side_figures(side: Side, show: Demonstration) -> dict[str, Any]:
    return {
        "largest_window": side.largest,
        "window_messages": len(side.window),
        "window_tokens": side.tokens,
        "zones": side.parts(),
        "compactions": [asdict(report) for report in side.reports],
        "kept": side.kept(show.story),
    }
