"""The part of a turn that folds: the engine makes a shorter window, and a good one is used and saved."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from leporello.engine import CompactionReport
from leporello.errors import EngineError
from leporello.events import CompactionFinished, CompactionStarted
from leporello.messages import copied
from leporello.session import steps
from leporello.session.accounts import FOLDED
from leporello.session.keeping import handing_out, writing
from leporello.session.lines import Line, Window
from leporello.session.verdict import judge, kept
from leporello.session.walk import tell, trying
from leporello.session.windows import folded_lines, saved_lines
from leporello.store import Request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.session.conversation import Conversation
    from leporello.session.walk import Walk

LEASE_SECONDS = 15.0  # prolonged while a compaction goes on; what a killed process held is free after that
REST = 0.05  # of the window: what a request grows by before an engine whose result was of no use is asked again


def asking(talk: Conversation, tokens: int, *, reported: bool) -> Walk[bool]:
    """Ask the engine whether to fold: about the messages, then about the count, both always."""
    early = False
    if not talk.engine_waits:
        early = yield from trying(
            talk, steps.Preflight(messages=talk.window.shown(), stored=talk.stored), default=False
        )
    due = yield from trying(talk, steps.ShouldCompress(tokens=tokens), default=False)
    if not (early or due) or not talk.automatic or talk.recovered or tokens < talk.rests_until:
        return False
    return reported or not (yield from trying(talk, steps.Defer(tokens=tokens), default=False))


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
    if talk.engine_waits:
        return _refused(talk, "the store cannot be used at the moment")
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
        talk.rests_until = 0
    else:
        if report.model_calls:
            yield from writing(talk, talk.journalled, _row(reason, report))
        talk.rests_until = tokens + int(talk.route.context_length * REST)
    fields = {key: value for key, value in asdict(report).items() if key != "unfoldable"}
    yield tell(talk, CompactionFinished, **fields)
    return report


def replacing(
    talk: Conversation, tokens: int, *, focus: str | None, force: bool, reason: str
) -> Walk[CompactionReport]:
    """Replace the window by what the engine makes of it; a result that is no good is refused, and the window stays."""
    yield from handing_out(talk)
    version = yield from trying(talk, steps.Version())
    given = [copied(message) for message in talk.window.messages]
    written = [message for message, line in zip(given, talk.window.lines, strict=True) if not line.said]
    try:
        made = yield steps.Compress(messages=given, written=written, tokens=tokens, focus=focus, force=force)
    except EngineError as error:
        return _refused(talk, str(error))
    verdict = judge(made, talk.window, talk.dialect)
    if verdict.result is not None:
        before = talk.window.lines
        talk.window = Window(folded_lines(verdict.result, given, before))
        talk.cut(0, "compaction")
        if version is not None and not talk.waiting:
            yield from saving(talk, before, version, reason, verdict.report)
        else:
            talk.unwritten.append(_row(reason, verdict.report))
        talk.sound.mend(talk.window, talk.dialect)
        if talk.sent is not None:  # its row must not cut off what the fold has saved
            talk.sent = replace(talk.sent, lines=len(talk.window))
    return verdict.report


def saving(
    talk: Conversation, before: Sequence[Line], version: int, reason: str, report: CompactionReport
) -> Walk[None]:
    """Save the window and its row of the journal; an engine that keeps the conversation itself has done so already."""
    lines = talk.window.lines
    items = [item for line in lines for item in line.items()]
    row = _row(reason, report)
    saved = yield from trying(talk, steps.Save(version=version, items=items, request=row))
    if saved is None:
        talk.unwritten.append(row)
        return
    if saved is items:
        talk.journalled, talk.items = len(lines), len(items)
        return
    own = saved_lines(talk.window.messages, saved, before)
    talk.edited = False
    if own is not None:
        talk.window = Window(own)
        talk.journalled = next((at for at, line in enumerate(own) if line.is_block), len(own))
        talk.items = sum(len(line.kept) for line in own[: talk.journalled])


def _row(reason: str, report: CompactionReport) -> Request:
    """Return the row of a compaction."""
    return Request(reason=reason, keep=0, added=(), cost_usd=report.cost_usd, report=asdict(report))


def _refused(talk: Conversation, reason: str) -> CompactionReport:
    return kept(CompactionReport(status="refused", reason=reason), talk.window).report
