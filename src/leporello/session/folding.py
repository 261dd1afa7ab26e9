"""The part of a turn that folds: the engine makes a shorter window, and a good one is used and saved.

An engine of a third party has a net under it: where its results are refused three times in a row, or the request has
reached 85 % of the model's window and it does not bring it down, the built-in engine folds in its place.
"""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from leporello.engine import CompactionReport
from leporello.errors import EngineError, StaleWindowError, StoreError
from leporello.events import CompactionFinished, CompactionStarted
from leporello.messages import copied
from leporello.session import steps
from leporello.session.accounts import FOLDED
from leporello.session.keeping import reloading, writing
from leporello.session.lines import Line, Said, Window, line_of
from leporello.session.verdict import judge, kept
from leporello.session.walk import tell, telling, trying
from leporello.session.windows import folded_lines, place_of, proposed_lines
from leporello.store import FOLD, Request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.session.conversation import Conversation
    from leporello.session.walk import Walk
    from leporello.store import Proposal, WindowItem

LEASE_SECONDS = 15.0  # prolonged while a compaction goes on; what a killed process held is free after that
REST = 0.05  # of the window: what a request grows by before an engine whose result was of no use is asked again
NET = 0.85  # of the model's window: where a conversation is folded, whatever its engine thinks of the size
MOST_REFUSALS = 3
COMPACTION = "compaction"  # why the front of the next request is another one


def asking(talk: Conversation, tokens: int, *, reported: bool) -> Walk[bool]:
    """Ask the engine whether to fold: about the messages, then about the count, both always."""
    early = yield from trying(talk, steps.Preflight(messages=talk.shown()), default=False)
    due = yield from trying(talk, steps.ShouldCompress(tokens=tokens), default=False)
    caught = talk.foreign and in_net(talk, tokens)
    if not (early or due or caught) or not talk.automatic or talk.recovered or tokens < talk.rests_until:
        return False
    return reported or caught or not (yield from trying(talk, steps.Defer(tokens=tokens), default=False))


def in_net(talk: Conversation, tokens: int) -> bool:
    """Tell whether a request of this size has reached the net."""
    return 0 < NET * talk.route.context_length <= tokens


def folding(
    talk: Conversation,
    tokens: int,
    *,
    reason: str,
    focus: str | None = None,
    force: bool = False,
    patience: float = 0.0,
) -> Walk[CompactionReport]:
    """Let the engine fold the window, one process at a time, and use the result if it is good.

    `patience`: how many seconds to wait for a process that is at it already.
    """
    if not (yield from trying(talk, steps.Lease(seconds=LEASE_SECONDS, patience=patience), default=True)):
        return _refused(talk, "another process is compacting this conversation")
    try:
        size = {"tokens": talk.window.tokens, "prompt_tokens": tokens}
        yield tell(talk, CompactionStarted, reason=reason, messages=len(talk.window), **size)
        report = yield from replacing(talk, tokens, focus=focus, force=force, reason=reason)
    finally:
        yield from trying(talk, steps.Release())
    talk.accounts.compacted(report)
    if report.status in FOLDED:
        talk.rests_until = 0 if not talk.refusals else _rests_until(talk, talk.size().tokens)
    else:
        if report.model_calls:
            yield from writing(talk, talk.journalled, _row(report, reason))
        talk.rests_until = _rests_until(talk, tokens)
    fields = {key: value for key, value in asdict(report).items() if key != "unfoldable"}
    yield tell(talk, CompactionFinished, **fields)
    return report


def replacing(
    talk: Conversation, tokens: int, *, focus: str | None, force: bool, reason: str
) -> Walk[CompactionReport]:
    """Replace the window by what the engine makes of it; a result that is no good is refused, and the window stays."""
    before = talk.window
    given = [talk.copy(message) for message in before.messages]
    step = steps.Compress(messages=given, sources=_sources(before), tokens=tokens, focus=focus, force=force)
    report = yield from using(talk, step, reason)
    if talk.foreign:
        report = yield from catching(talk, report, tokens, focus=focus, force=force, reason=reason)
    if talk.window is not before:
        if not talk.journalled:
            yield from saving(talk, _row(report, reason))
        yield from pinning(talk, before.lines)
        talk.sound.mend(talk.window, talk.dialect)
        if talk.sent is not None:  # its row must not cut off what the fold has saved
            talk.sent = replace(talk.sent, lines=len(talk.window))
    return report


def pinning(talk: Conversation, before: Sequence[Line]) -> Walk[None]:
    """Put pinned messages back that a fold has taken out of the window, each before what was said after it."""
    pinned = yield from trying(talk, steps.Pinned(), default=[])
    said = {one.id: one for line in before for one in line.said}
    for row in pinned:
        if any(one.id == row.id for line in talk.window.lines for one in line.said):
            continue
        one = said.get(row.id) or Said(message=row.message, id=row.id)
        at = place_of(talk.window, row.id)
        talk.window.replace(at, [line_of(one.message, said=[one]), *talk.window.lines[at:]])
        talk.cut(at, COMPACTION)


def using(talk: Conversation, step: steps.Compress | steps.CompressBuiltIn, reason: str) -> Walk[CompactionReport]:
    """Let an engine compress, and make its result the window if it is good; one that it proposed is committed too."""
    try:
        made = yield step
    except EngineError as error:
        return _refused(talk, str(error))
    window = talk.window
    room = int(NET * talk.route.context_length) if talk.foreign else None
    verdict = judge(made, window, talk.dialect, room=room)
    if verdict.result is None:
        return verdict.report
    if made.proposal is not None:
        lines = proposed_lines(verdict.result, made.proposal.window.items, window.lines)
        problem = yield from committing(talk, lines, made.proposal, _row(verdict.report, reason))
        return _refused(talk, problem) if problem else verdict.report
    given = window.messages if talk.foreign else step.messages
    talk.window = Window(folded_lines(verdict.result, given, window.lines))
    talk.cut(0, COMPACTION)
    return verdict.report


def committing(talk: Conversation, lines: list[Line] | None, proposal: Proposal, row: Request) -> Walk[str]:
    """Commit a window that the engine proposed, with its nodes and its row of the journal, or drop all of it.

    Returns why it was dropped, "" when it was not.
    """
    if lines is None:
        return "the engine proposed another window than it returned"
    items = _items(lines)
    try:
        yield steps.Commit(proposal=proposal, items=items, request=row)
    except StaleWindowError:
        yield from reloading(talk, "another process folded the conversation")
        return "another process has folded the conversation meanwhile"
    except StoreError as error:
        return f"the store could not be used: {error}"
    talk.window = Window(lines)
    talk.cut(0, COMPACTION)
    talk.journalled, talk.items = len(lines), len(items)
    return ""


def catching(
    talk: Conversation, report: CompactionReport, tokens: int, *, focus: str | None, force: bool, reason: str
) -> Walk[CompactionReport]:
    """Count the refusals of a third party's engine, and let the built-in one fold where it failed too often or late."""
    folded = report.status in FOLDED
    talk.refusals = 0 if folded else talk.refusals + (report.status == "refused")
    factor = talk.meter.calibration.factor(talk.meter.model)
    left = tokens - round((report.tokens_before - report.tokens_after) * factor)
    caught = in_net(talk, left)
    if not caught and (folded or talk.refusals < MOST_REFUSALS):
        return report
    cause = f"{left:,} tokens are left" if folded else report.reason or "it returned the same list"
    why = f"engine '{talk.engine}' did not bring the conversation down: {cause}"
    given = [copied(message) for message in talk.window.messages]
    step = steps.CompressBuiltIn(
        messages=given,
        sources=_sources(talk.window),
        tokens=left,
        focus=focus,
        force=force or caught,
        route=talk.route,
    )
    second = yield from using(talk, step, reason)
    if second.status not in FOLDED:
        return report if folded else replace(report, reason=f"{why}; nor did the built-in compressor: {second.reason}")
    why = f"{why}; the built-in compressor folded in its place"
    yield from telling(talk, why)
    return replace(
        second,
        status="fallback",
        reason=f"{why} ({second.reason})" if second.status == "fallback" else why,
        tokens_before=report.tokens_before,
        messages_before=report.messages_before,
        model_calls=report.model_calls + second.model_calls,
        seconds=report.seconds + second.seconds,
        cost_usd=_sum(report.cost_usd, second.cost_usd),
    )


def saving(talk: Conversation, row: Request) -> Walk[None]:
    """Save the window and its row of the journal."""
    lines = talk.window.lines
    items = _items(lines)
    if talk.waiting or (yield from trying(talk, steps.Save(items=items, request=row))) is None:
        talk.unwritten.append(row)
    else:
        talk.journalled, talk.items = len(lines), len(items)


def _items(lines: Sequence[Line]) -> tuple[WindowItem, ...]:
    """Return how the store's window writes these lines."""
    return tuple(item for line in lines for item in line.items())


def _row(report: CompactionReport, trigger: str) -> Request:
    """Return the row of a compaction, with what led to it."""
    told = {"trigger": trigger, **asdict(report)}
    return Request(reason=FOLD, keep=0, added=(), cost_usd=report.cost_usd, report=told)


def _refused(talk: Conversation, reason: str) -> CompactionReport:
    return kept(CompactionReport(status="refused", reason=reason), talk.window).report


def _rests_until(talk: Conversation, tokens: int) -> int:
    """Return how large the request must be before an engine whose result was of no use is asked again."""
    window = talk.route.context_length
    later = tokens + int(window * REST)
    return later if not talk.foreign or in_net(talk, tokens) else min(later, math.ceil(NET * window))


def _sources(window: Window) -> list[steps.Sources]:
    """Return the stored messages that each message of a window stands for."""
    return [line.sources for line in window.lines]


def _sum(*costs: float | None) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known else None
