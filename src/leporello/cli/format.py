"""How commands show what is stored: text that is safe on a terminal, times, sizes, costs, JSON, progress."""

from __future__ import annotations

import json
import re
import shutil
import sys
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from leporello.messages.visible import visible

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from leporello.session.accounts import Spent

_T = TypeVar("_T")

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")
_STEP = 1024
_LABEL: Final = re.compile(r"\s*(?:[✓✗!·•-] )?(?:\S(?:.{0,24}?\S)? {2,})?")
"""What stands before the text of a line: spaces, a sign, a word or two and at least two spaces."""


def on_one_line(text: str, length: int) -> str:
    """Return the beginning of a text, on one line."""
    words = " ".join(visible(text[: 8 * length]).split())
    return words if len(words) <= length and len(text) <= 8 * length else words[: length - 1].rstrip() + "…"


def wrapped(text: str, width: int) -> list[str]:
    """Break a line between words; what is continued stands below the text, not below its label."""
    from rich.cells import cell_len
    from rich.console import Console
    from rich.text import Text

    if cell_len(text) <= width:
        return [text]
    label = _LABEL.match(text)
    start = label[0] if label and 2 * cell_len(label[0]) <= width else ""
    hang = cell_len(start)
    pieces = Text(text.removeprefix(start)).wrap(Console(width=width), max(1, width - hang), overflow="fold")
    first, *more = [piece.plain.rstrip() for piece in pieces]
    return [start + first, *(" " * hang + piece for piece in more)]


def echo(text: str, *, err: bool = False) -> None:
    """Print a text; on a terminal its lines are broken between words."""
    click.echo("\n".join(fitted(text, err=err)), err=err)


def fitted(text: str, *, err: bool = False) -> list[str]:
    """Return the lines of a text as they are printed: on a terminal they are broken between words."""
    stream = sys.stderr if err else sys.stdout
    lines = text.split("\n")
    if not stream.isatty():
        return lines
    width = shutil.get_terminal_size().columns
    return [part for line in lines for part in wrapped(line, width)]


def print_json(value: Any) -> None:
    """Print a value as JSON, whatever its texts hold."""
    text = json.dumps(value, ensure_ascii=False, indent=2)
    click.echo(text.encode("utf-8", "backslashreplace"))


def timestamp(time: float | None) -> str | None:
    """Write a time for programs: ISO-8601, in UTC."""
    if time is None:
        return None
    try:
        return datetime.fromtimestamp(time, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    except (OverflowError, ValueError, OSError):
        return None


def moment(time: float | None) -> str:
    """Write a time for people, in UTC."""
    return (timestamp(time) or "?").replace("T", " ").removesuffix("Z")


def size(count: float) -> str:
    """Write a number of bytes."""
    unit = 0
    while count >= _STEP and unit < len(_UNITS) - 1:
        count, unit = count / _STEP, unit + 1
    return f"{count:,.0f} {_UNITS[unit]}" if unit == 0 else f"{count:,.1f} {_UNITS[unit]}"


def counted(number: int, noun: str) -> str:
    """Write a number of things."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def spent(spent: Spent) -> str:
    """Say what something cost, and what came from the cache."""
    cost = "cost unknown" if spent.cost_usd is None else dollars(spent.cost_usd) if spent.cost_usd else "no cost"
    read = f"{spent.prompt_tokens:,} tokens read ({100 * spent.cache_share:.0f} % from the cache)"
    summaries = f" · {counted(spent.engine_calls, 'model call')} of the engine" if spent.engine_calls else ""
    return f"{cost} · {counted(spent.requests, 'request')} · {read} · {spent.completion_tokens:,} written{summaries}"


def dollars(amount: float) -> str:
    """Write an amount of money; small ones with the digits that matter."""
    return f"${amount:.4f}" if amount < 1 else f"${amount:,.2f}"


def watched(items: Iterable[_T], label: str, *, total: int | None = None) -> Iterator[_T]:
    """Pass items on, with a progress bar on a terminal."""
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        yield from bar.track(items, total=total, description=label)


@contextmanager
def waiting(label: str) -> Iterator[None]:
    """Show that something is under way, on a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(label):
        yield
