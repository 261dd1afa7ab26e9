"""Reads from the journal what a resumed conversation or a fork needs: the provider's last count, and the last fold.

Without the count its size would be estimated. Without the fold it would be folded again at once if the fold before has
left it above the threshold.
"""

from __future__ import annotations

from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from leporello.engine import CompactionReport
from leporello.events import FOLDED
from leporello.session.accounts import REQUEST
from leporello.session.meter import Meter
from leporello.session.saved_branch import load
from leporello.session.window import Window
from leporello.store import FOLD
from leporello.summary.refire import fires_at
from leporello.tokens import Calibration, count_message

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from leporello.engine import ContextEngine
    from leporello.session.meter import Count
    from leporello.session.saved_branch import SavedBranch
    from leporello.store import Branch, JournalRow, WindowItem

_MOST_TRIED: Final = 8  # rows of other branches
_CALIBRATING: Final = 50  # newest requests, from which an estimate is corrected: more than a factor remembers


class LastCount(NamedTuple):
    """The provider's count of the first `items` items of a window, with the uncalibrated estimate of the tools."""

    tokens: int
    tools: int
    items: int


def learn(meter: Meter, branch: Branch, rows: Iterable[JournalRow]) -> None:
    """Calibrate the estimates of a meter with the requests in the journal of a branch and of those it comes from.

    What another branch learns at the same time would change the size of this one from outside.
    """
    requests = [row for row in rows if row.reason == REQUEST]
    line = _line(branch) if any(row.branch != branch.number for row in requests) else {branch.number}
    for row in requests:
        tokens = row.usage.get("prompt_tokens")
        if tokens and row.branch in line:
            estimate, tools = row.report.get("estimate", 0), row.report.get("tools", 0)
            meter.learned(str(row.report.get("model", "")), estimate, tokens, tools)


def learn_anew(meter: Meter, branch: Branch) -> None:
    """Calibrate a meter for another branch of its conversation."""
    meter.calibration = Calibration()
    learn(meter, branch, _telling(branch))


def _line(branch: Branch) -> set[int | None]:
    """Return a branch and those that it comes from."""
    parents = {one.id: one.parent for one in branch.store.branches(branch.conversation, owner=branch.owner)}
    line: set[int | None] = set()
    number = branch.number
    while number is not None:
        line.add(number)
        number = parents.get(number)
    return line


def stored_size(branch: Branch) -> Count:
    """Return the size that a request with the window of a branch has, as `Session.usage()` tells it after a resume."""
    rows = _telling(branch)
    model = next((str(row.report.get("model", "")) for row in reversed(rows) if row.reason == REQUEST), "")
    saved, window, meter = load(branch), Window(), Meter(model)
    window.extend([*saved.entries, *saved.later])
    resume_meter(meter, branch, saved, rows)
    return meter.count(window, None)


def _telling(branch: Branch) -> list[JournalRow]:
    """Return the rows of a journal of any length that decide about a size."""

    def newest(last: int, **which: Any) -> list[JournalRow]:
        return branch.store.journal(branch.conversation, owner=branch.owner, last=last, **which)

    rows = [*newest(_CALIBRATING, reason=REQUEST), *newest(_CALIBRATING, branch=branch.number)]
    if branch.parent is not None:
        rows += newest(_MOST_TRIED, reason=REQUEST, branch=branch.parent)
    return sorted({row.number: row for row in rows}.values(), key=attrgetter("number"))


def resume_meter(meter: Meter, branch: Branch, saved: SavedBranch, rows: Sequence[JournalRow]) -> LastCount | None:
    """Let a meter go on from the journal of a branch; returns the provider's last count, if it still holds."""
    learn(meter, branch, rows)
    count = last_count(branch, saved.items, rows) if saved.whole else None
    if count is not None:
        meter.resumed(count.tokens, saved.length_of(count.items), count.tools)
    return count


def last_count(branch: Branch, items: tuple[WindowItem, ...], rows: Sequence[JournalRow]) -> LastCount | None:
    """Return the count of the branch's last request, or of a request of its parent whose window begins the same.

    `items` are the branch's window, `rows` the journal. If the parent's request had more messages, the estimate of
    those is subtracted.
    """
    own = next((row for row in _newest(rows, branch.number) if not _left_as_it_was(row)), None)
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


def _left_as_it_was(row: JournalRow) -> bool:
    """Tell whether a row is of a fold that did not change the window."""
    return row.reason == FOLD and row.report.get("status", FOLDED[0]) not in FOLDED


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
