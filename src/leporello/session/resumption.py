"""Reads from the journal what a resumed conversation or a fork needs: the provider's last count, and the last fold.

Without the count its size would be estimated. Without the fold it would be folded again at once if the fold before has
left it above the threshold.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from leporello.engine import CompactionReport
from leporello.session.accounts import REQUEST
from leporello.session.meter import Meter
from leporello.session.saved_branch import load
from leporello.session.window import Window
from leporello.store import FOLD
from leporello.summary.refire import fires_at
from leporello.tokens import count_message

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from leporello.engine import ContextEngine
    from leporello.session.meter import Count
    from leporello.session.saved_branch import SavedBranch
    from leporello.store import Branch, JournalRow, WindowItem

_MOST_TRIED: Final = 8  # rows of other branches


class LastCount(NamedTuple):
    """The provider's count of the first `items` items of a window, with the uncalibrated estimate of the tools."""

    tokens: int
    tools: int
    items: int


def learn(meter: Meter, rows: Iterable[JournalRow]) -> None:
    """Calibrate the estimates of a meter with the requests of the journal."""
    for row in rows:
        tokens = row.usage.get("prompt_tokens") if row.reason == REQUEST else None
        if tokens:
            estimate, tools = row.report.get("estimate", 0), row.report.get("tools", 0)
            meter.learned(str(row.report.get("model", "")), estimate, tokens, tools)


def stored_size(branch: Branch, rows: Sequence[JournalRow]) -> Count:
    """Return the size that a request with the window of a branch has, as `Session.usage()` tells it after a resume."""
    model = next((str(row.report.get("model", "")) for row in reversed(rows) if row.reason == REQUEST), "")
    saved, window, meter = load(branch), Window(), Meter(model)
    window.extend([*saved.entries, *saved.later])
    resume_meter(meter, branch, saved, rows)
    return meter.count(window, None)


def resume_meter(meter: Meter, branch: Branch, saved: SavedBranch, rows: Sequence[JournalRow]) -> LastCount | None:
    """Let a meter go on from the journal of a branch; returns the provider's last count, if it still holds."""
    learn(meter, rows)
    count = last_count(branch, saved.items, rows) if saved.whole else None
    if count is not None:
        meter.resumed(count.tokens, saved.length_of(count.items), count.tools)
    return count


def last_count(branch: Branch, items: tuple[WindowItem, ...], rows: Sequence[JournalRow]) -> LastCount | None:
    """Return the count of the branch's last request, or of a request of its parent whose window begins the same.

    `items` are the branch's window, `rows` the journal. If the parent's request had more messages, the estimate of
    those is subtracted.
    """
    own = next(_newest(rows, branch.number), None)
    if own is not None:
        return _count(own, len(items))
    if branch.parent is None:
        return None
    shared = list(_shared(branch, items, _newest(rows, branch.parent, REQUEST)))
    shorter = next((_count(row, len(window)) for row, window in shared if len(window) <= len(items)), None)
    if shorter is not None or not shared:
        return shorter
    row, window = shared[0]
    count = _count(row, len(items))
    rest = [item["m"] for item in window[len(items) :] if "m" in item]
    cut = sum(count_message(one.message) for one in branch.get(rest).values())
    return count and count._replace(tokens=count.tokens - cut)


def refire_at(
    branch: Branch, items: tuple[WindowItem, ...], rows: Sequence[JournalRow], engine: ContextEngine, tools: int
) -> int:
    """Return the tokens that a request must have for the next fold; 0 when the threshold decides."""
    row = next(_newest(rows, branch.number, FOLD), None)
    if row is None:  # else the fold that made the window of the branch it was forked from
        row = next((row for row, _ in _shared(branch, items, _newest(rows, None, FOLD))), None)
    if row is None or not engine.threshold_tokens:
        return 0
    before, after = int(row.report.get("tokens_before", 0)), int(row.report.get("tokens_after", 0))
    report = CompactionReport(status="folded", tokens_before=before, tokens_after=after)
    return fires_at(report, before + tools, threshold=engine.threshold_tokens, window=engine.context_length)


def _newest(rows: Sequence[JournalRow], branch: int | None, reason: str | None = None) -> Iterator[JournalRow]:
    """Yield the journal rows of a branch, or of all, with this reason, or any, newest first."""
    return (row for row in reversed(rows) if branch in (None, row.branch) and reason in (None, row.reason))


def _shared(
    branch: Branch, items: tuple[WindowItem, ...], rows: Iterable[JournalRow]
) -> Iterator[tuple[JournalRow, tuple[WindowItem, ...]]]:
    """Yield those of the first rows after which the window began as this one, with that window."""
    for row in islice(rows, _MOST_TRIED):
        window = branch.store.window_at(branch.conversation, row.number, owner=branch.owner)
        shorter = min(len(window), len(items))
        if shorter > 0 and window[:shorter] == items[:shorter]:
            yield row, window


def _count(row: JournalRow, items: int) -> LastCount | None:
    tokens = row.usage.get("prompt_tokens") if row.reason == REQUEST else None
    return LastCount(tokens, int(row.report.get("tools", 0)), items) if tokens else None
