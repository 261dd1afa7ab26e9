"""One compaction: take the lease, call the engine, judge its result, commit it as the new window, report.

If a third party's engine fails, the built-in engine folds in its place: after three refused results in a row, or when
the request has reached 85 % of the model's context length and the engine did not bring it below that.
"""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING

from leporello.engine import CompactionReport
from leporello.errors import EngineError, StaleWindowError, StoreError
from leporello.events import CompactionStarted
from leporello.messages import copied
from leporello.session.acceptance import judge, unchanged
from leporello.session.engine_host import CompressCall
from leporello.session.kept_entries import with_kept
from leporello.session.lease import Lease
from leporello.session.result_entries import folded_entries, proposed_entries
from leporello.store import FOLD, JournalRow
from leporello.summary.refire import SAFE_SHARE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leporello.messages import Message
    from leporello.session.acceptance import CompressResult
    from leporello.session.conversation import Conversation
    from leporello.session.window import Entry, Window
    from leporello.store import Proposal

LEASE_SECONDS = 15.0  # renewed while a compaction goes on; what a killed process held is free after that
REST = 0.05  # of the context length: the growth before an engine whose result was refused is asked again
MOST_REFUSALS = 3
COMPACTION = "compaction"  # the reason why the prefix of the next request moves


def above_safety_limit(conversation: Conversation, tokens: int) -> bool:
    """Tell whether a request of this size has reached the safety share of the context length."""
    return 0 < safety_limit(conversation) <= tokens


def safety_limit(conversation: Conversation) -> int:
    """Return the smallest request that has reached the safety share of the context length; 0 when that is not known."""
    return math.ceil(SAFE_SHARE * conversation.route.context_length)


def fold(
    conversation: Conversation,
    tokens: int,
    *,
    trigger: str,
    focus: str | None = None,
    force: bool = False,
    wait: float = 0.0,
) -> CompactionReport:
    """Let the engine fold the window while holding the lease, and use the result if it is accepted.

    `wait` is the number of seconds to wait for the lease of another process.
    """
    persistence = conversation.persistence
    lease = Lease(branch=persistence.branch, token=persistence.lease_token, seconds=LEASE_SECONDS)
    if not conversation.attempt(lease.acquire, wait, default=True):
        return _refused(conversation, "another process is compacting this conversation")
    try:
        window = conversation.window
        started = CompactionStarted(
            session_id=conversation.id,
            reason=trigger,
            messages=len(window),
            tokens=window.tokens,
            prompt_tokens=tokens,
        )
        conversation.emit(started)
        report = _replace_window(conversation, tokens, trigger, focus=focus, force=force)
    finally:
        conversation.attempt(lease.release)
    row = _compaction_row(report, trigger)
    conversation.accounts.compacted(row)
    after = conversation.size().tokens if report.folded else tokens
    conversation.refire_at = 0 if report.folded and not conversation.refusals else _refire_at(conversation, after)
    if report.model_calls and not report.folded:
        persistence.write(conversation.window, persistence.journalled, row)
    finished = report.finished(conversation.id, tokens, after)
    if report.folded:  # counted as everything else that is shown of the window
        parts = conversation.parts(after)
        finished = replace(finished, summary_tokens=parts.summaries, masked_tokens=parts.masked)
    conversation.emit(finished)
    return report


def _replace_window(
    conversation: Conversation, tokens: int, trigger: str, *, focus: str | None, force: bool
) -> CompactionReport:
    """Replace the window by the engine's result; the window stays when the result is refused."""
    window, persistence = conversation.window, conversation.persistence
    before = list(window.entries)
    given = [conversation.engine.copy(message) for message in window.messages]
    call = CompressCall(messages=given, sources=_sources(window), tokens=tokens, focus=focus, force=force)
    report = _fold_by(conversation, partial(conversation.engine.compress, call, conversation.branch), given, trigger)
    if conversation.engine.is_foreign:
        report = _fall_back(conversation, report, call, trigger)
    if report.folded and persistence.journalled < len(window):  # a proposal is committed with its window already
        persistence.save(window, _compaction_row(report, trigger))
    if window.entries != before:
        conversation.repair(COMPACTION)
    if report.folded and conversation.pending is not None:  # its row must not cut off what the fold has saved
        conversation.pending = replace(conversation.pending, length=len(window))
    return report


def _fold_by(
    conversation: Conversation, compress: Callable[[], CompressResult], given: list[Message], trigger: str
) -> CompactionReport:
    """Call an engine with a list, judge its result and make it the window; one with a proposal is committed first."""
    try:
        compressed = compress()
    except EngineError as error:
        return _refused(conversation, str(error))
    window, is_foreign = conversation.window, conversation.engine.is_foreign
    room = int(SAFE_SHARE * conversation.route.context_length) if is_foreign else None
    report, result = judge(compressed, window, conversation.dialect, room=room)
    if result is None:
        return report
    if compressed.proposal is None:
        entries = folded_entries(result, window.messages if is_foreign else given, window.entries)
    else:
        entries = proposed_entries(result, compressed.proposal.window.items, window.entries)
    entries = with_kept(entries, window.entries, conversation.persistence.pinned())
    if compressed.proposal is not None:
        problem = _commit(conversation, entries, compressed.proposal, _compaction_row(report, trigger))
        if problem:
            return unchanged(report, conversation.window, status="refused", reason=problem)
    conversation.change(0, entries, COMPACTION)
    if compressed.proposal is not None:
        conversation.persistence.is_saved(conversation.window)
    return report


def _commit(conversation: Conversation, entries: Sequence[Entry], proposal: Proposal, row: JournalRow) -> str:
    """Commit a window that an engine proposed; returns why that failed, "" on success."""
    if not entries:
        return "the engine proposed another window than it returned"
    try:
        conversation.persistence.commit(entries, proposal, row)
    except StaleWindowError:
        conversation.reload(conversation.persistence.load(), "another process folded the conversation")
        return "another process has folded the conversation meanwhile"
    except StoreError as error:
        return f"the store could not be used: {error}"
    return ""


def _fall_back(
    conversation: Conversation, report: CompactionReport, call: CompressCall, trigger: str
) -> CompactionReport:
    """Let the built-in engine fold if a third party's was refused too often or left the request too large."""
    folded = report.folded
    conversation.refusals = 0 if folded else conversation.refusals + (report.status == "refused")
    factor = conversation.meter.calibration.factor(conversation.meter.model)
    left = call.tokens - round((report.tokens_before - report.tokens_after) * factor)
    caught = above_safety_limit(conversation, left)
    if not caught and (folded or conversation.refusals < MOST_REFUSALS):
        return report
    cause = f"{left:,} tokens are left" if folded else report.reason or "it returned the same list"
    why = f"engine '{conversation.engine.name}' did not bring the conversation down: {cause}"
    window = conversation.window
    given = [copied(message) for message in window.messages]
    call = replace(call, messages=given, sources=_sources(window), tokens=left, force=call.force or caught)
    engine = conversation.engine
    built_in = partial(engine.compress_built_in, call, conversation.route, conversation.emit_from_engine)
    second = _fold_by(conversation, built_in, given, trigger)
    if not second.folded:
        return report if folded else replace(report, reason=f"{why}; nor did the built-in compressor: {second.reason}")
    why = f"{why}; the built-in compressor folded in its place"
    conversation.notice(why)
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


def _compaction_row(report: CompactionReport, trigger: str) -> JournalRow:
    """Return the journal row of a compaction."""
    told = {"trigger": trigger, **asdict(report)}
    return JournalRow(reason=FOLD, keep=0, added=(), cost_usd=report.cost_usd, report=told)


def _refused(conversation: Conversation, reason: str) -> CompactionReport:
    report = CompactionReport(status="refused", reason=reason)
    return unchanged(report, conversation.window, status="refused")


def _refire_at(conversation: Conversation, tokens: int) -> int:
    """Return the tokens that a request must have before an engine whose result was refused is asked again."""
    window = conversation.route.context_length
    later = tokens + int(window * REST)
    if not conversation.engine.is_foreign or above_safety_limit(conversation, tokens):
        return later
    return min(later, math.ceil(SAFE_SHARE * window))


def _sources(window: Window) -> list[tuple[str | None, ...]]:
    """Return the ids of the stored messages behind each message of a window."""
    return [entry.source_ids for entry in window.entries]


def _sum(*costs: float | None) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known else None
