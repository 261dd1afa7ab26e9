"""One turn of a conversation, from top to bottom.

    user message ─▶ add ─▶ stored
                 ─▶ request ─▶ mended, counted ─▶ the engine is asked ─▶ folded ─▶ the window is saved
                            ─▶ the request (marked for the cache, and sent by the caller)
    the provider's answer ─▶ record ─▶ the engine gets the count ─▶ stored, journalled
                                    ─▶ calls of engine tools are answered; the others go back to the caller

Everything here is synchronous and does nothing by itself: each function is a generator that yields what is to be done
(`leporello.session.steps`) and is sent back what came of it. Whoever drives it does the steps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leporello.caching import tools_within_limit
from leporello.engine import CompactionReport
from leporello.errors import ContextTooLongError, MessageError, SessionError
from leporello.messages import copied, is_system, role_of, text_of, tool_result
from leporello.messages.types import ROLES
from leporello.redact import redact
from leporello.session import steps
from leporello.session.accounts import FOLDED, REQUEST, UNDO
from leporello.session.calls import add_lines, known_calls, with_own_ids
from leporello.session.conversation import Sent, Tools
from leporello.session.events import (
    AnswerRecorded,
    PrefixMoved,
    RequestFailed,
    RequestReady,
    ToolAnswered,
    WindowCorrected,
)
from leporello.session.folding import LEASE_SECONDS, asking, folding
from leporello.session.keeping import (
    catching_up,
    handing_out,
    hearing,
    mending,
    newest_said,
    saying,
    storing,
    unstored_turn,
    withdrawing,
    writing,
)
from leporello.session.lines import Said, line_of
from leporello.session.walk import Walk, tell, telling, trying
from leporello.session.windows import common
from leporello.store import Request
from leporello.tokens import count_message, count_tools

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.errors import ModelError
    from leporello.messages import Message, ToolCall
    from leporello.session.answers import Answered
    from leporello.session.conversation import Conversation, Route

__all__ = [
    "FOLDED",
    "Walk",
    "adding",
    "compressing",
    "ending",
    "folding",
    "handing_out",
    "mending",
    "opening",
    "recording",
    "recovering",
    "requesting",
    "resetting",
    "starting",
    "storing",
    "switching",
    "telling",
    "trying",
    "unanswered",
    "undoing",
    "unwritten",
    "withdrawing",
    "writing",
]

_COUNTS = ("prompt_tokens", "completion_tokens", "cache_read_tokens", "cache_write_tokens")
SMALLEST_WINDOW = 2_048  # no model has less: an overflow answer to a shorter request speaks of something else
UNAVAILABLE = '{"error": "The store cannot be used at the moment; try again later."}'


def starting(talk: Conversation, *, introduced: bool = True) -> Walk[None]:
    """Begin or resume; an engine that was not introduced to the model yet is so first."""
    if not introduced:
        yield from trying(talk, steps.Adopt(route=talk.route))
    yield from trying(talk, steps.Start(session_id=talk.session_id))


def opening(talk: Conversation, system: str) -> Walk[None]:
    """Let the conversation begin with this system prompt; one that says the same already stays, with its note.

    As long as nothing was said there is nothing to store.
    """
    lines = talk.window.lines
    first = lines[0] if talk.window.systems() else None
    if first is not None and any(text_of(one.message) == system for one in (*first.said, Said(message=first.message))):
        return
    said = Said(message={"role": "system", "content": system}, prompt=bool(lines))
    line = line_of(said.message, said=[said])
    if not lines:
        talk.unspoken = [said]
        talk.window.extend([line])
        return
    yield from storing(talk, [said])
    talk.window.replace(0, [line, *(lines if first is None else lines[1:])])
    talk.cut(0, "system prompt changed")


def adding(talk: Conversation, messages: Sequence[Message]) -> Walk[None]:
    """Take what somebody said: it is stored before anything else happens with it."""
    said = [Said(message=message) for message in known_calls(talk, [copied(checked(message)) for message in messages])]
    begins = any(role_of(one.message) == "user" for one in said)
    if begins:
        yield from catching_up(talk)
    yield from storing(talk, said)
    talk.recovered = False
    if begins:
        talk.accounts.next_turn()
    add_lines(talk, [line_of(one.message, said=[one]) for one in said])


def requesting(talk: Conversation, tools: Sequence[dict[str, Any]]) -> Walk[None]:
    """Make the window ready to be sent: stored, valid, counted, and folded when the engine says so."""
    if all(is_system(message) for message in talk.window.messages):
        raise SessionError("there is nothing to send yet: add a message of the user first.")
    yield from unanswered(talk, "no answer was recorded")
    yield from storing(talk)
    yield from mending(talk)
    yield from offering(talk, tools)
    size = talk.size()
    if (yield from asking(talk, size.tokens, reported=size.reported)):
        yield from folding(talk, size.tokens, reason="the window is filling")
    yield from sending(talk)


def recording(talk: Conversation, answer: Answered) -> Walk[list[ToolCall]]:
    """Take the model's answer, let the engine answer the calls of its own tools, and return the other calls."""
    message = with_own_ids(talk, copied(answer.message))
    yield from trying(talk, steps.Used(usage=_usage(talk, answer)))
    dollars = talk.cost(answer.usage) if answer.usage else None
    used: dict[str, Any] = {"usage": dict(answer.usage or {}), "cost_usd": dollars}
    if talk.sent:
        yield from hearing(talk, message, talk.sent.lines, _row(talk, talk.sent, **used))
    else:
        yield from hearing(talk, message, len(talk.window), Request(reason=REQUEST, keep=0, added=(), **used))
    yield from accounting(talk, answer, dollars)
    own = _tools(talk).owned
    calls = talk.open_calls()
    for call in calls:
        if call.name in own:
            yield from answering(talk, call)
    if not talk.engine_waits:
        yield from handing_out(talk)
        yield from trying(talk, steps.Complete(messages=talk.shown(), usage=answer.usage, stored=talk.stored))
    return [call for call in calls if call.name not in own]


def recovering(talk: Conversation, error: ModelError) -> Walk[bool]:
    """After an overflow answer fold once, with the window corrected if the answer names it."""
    yield from unanswered(talk, str(error))
    if not isinstance(error, ContextTooLongError) or talk.recovered:
        return False
    talk.recovered = True
    limit = error.limit or _refused_size(talk, error)
    if limit != talk.route.context_length:
        yield tell(talk, WindowCorrected, before=talk.route.context_length, after=limit)
        talk.route = talk.route.with_window(limit)
        yield from trying(talk, steps.Adopt(route=talk.route))
    if error.actual:
        talk.meter.refused(error.actual)
    tokens = max(error.actual or 0, talk.size().tokens, talk.route.context_length + 1)
    reason = "the provider found it too long"
    report = yield from folding(talk, tokens, reason=reason, force=True, patience=LEASE_SECONDS)
    return report.status in FOLDED


def compressing(talk: Conversation, focus: str | None) -> Walk[CompactionReport]:
    """Fold because somebody asked for it."""
    yield from storing(talk)
    if all(is_system(message) for message in talk.window.messages):
        return CompactionReport(status="unchanged", reason="there is nothing to compact yet")
    yield from mending(talk)
    reason = f"asked for, with focus on {redact(focus)}" if focus else "asked for"
    return (yield from folding(talk, talk.size().tokens, reason=reason, focus=focus, force=True))


def undoing(talk: Conversation) -> Walk[list[Message]]:
    """Take back the newest message of the user and everything after it; the store keeps it on the branch that is left.

    The turn before it is the newest one then, so it comes back word by word if it was folded. One that is in a store
    that is away cannot come back: then a further undo waits for the store.
    """
    at = talk.window.newest_user()
    if at is None:
        return []
    if _may_be_folded(talk, at):
        yield from telling(talk, "the store is away: nothing more is taken back until it is there again")
        return []
    removed = talk.window.lines[at:]
    said = [one for line in removed for one in line.said]
    newest = yield from newest_said(talk)
    talk.window.replace(at, [])
    talk.cut(at, UNDO)
    talk.sent, talk.recovered = None, False
    talk.withdrawn.append((said[0], newest or said[-1]))
    talk.newest = None
    yield from withdrawing(talk)
    if talk.withdrawn:
        talk.window.extend(unstored_turn(talk))
    else:
        yield from reloading(talk, UNDO)
    yield from writing(talk, len(talk.window), Request(reason=UNDO, keep=0, added=()))
    return [copied(line.message) for line in removed]


def reloading(talk: Conversation, why: str) -> Walk[None]:
    """Go on from the window of the branch as the store has it: what was written may stand for less than before."""
    saved = yield from trying(talk, steps.Load())
    if saved is None:
        return
    before = talk.window
    same = common(before, [*saved.lines, *saved.later])
    talk.cut(same, why)
    talk.resume(saved)
    talk.window.rewritten = min(before.rewritten, same)


def _may_be_folded(talk: Conversation, at: int) -> bool:
    """Tell whether, after an undo without the store, a newer message of the user than this one may be folded."""
    written = any(not line.said and not is_system(line.message) for line in talk.window.lines)
    return bool(talk.withdrawn) and written and not any(one in talk.waiting for one in talk.window.lines[at].said)


def switching(talk: Conversation, route: Route) -> Walk[None]:
    """Go on with another model: budgets are worked out anew, and the count of the one before is not used."""
    talk.route = route
    talk.meter.switch(route.model)
    talk.rests_until = 0
    yield from trying(talk, steps.Adopt(route=route))


def ending(talk: Conversation) -> Walk[None]:
    """End at a real boundary: exit, reset, expiry."""
    yield from unanswered(talk, "the conversation ended first")
    yield from storing(talk)
    yield from handing_out(talk)
    messages = [] if talk.unspoken else talk.shown()
    yield from trying(talk, steps.End(session_id=talk.session_id, messages=messages, stored=talk.stored))


def resetting(talk: Conversation) -> Walk[None]:
    """Let the engine forget the conversation that ended, without shutting down."""
    yield from trying(talk, steps.Reset())


def offering(talk: Conversation, tools: Sequence[dict[str, Any]]) -> Walk[None]:
    """Put the engine's tools behind the caller's; the list is made once, so that its order stays."""
    given = list(tools)
    if talk.tools is not None and talk.tools.given == given:
        return
    merged, owned = yield from trying(talk, steps.Offer(tools=given), default=(given, frozenset()))
    merged = tools_within_limit(merged)
    talk.tools = Tools(given=copied(given), merged=merged, owned=owned, tokens=count_tools(merged))


def sending(talk: Conversation) -> Walk[None]:
    """Note what goes out: how large it is, and whether the front of it is still the one that the provider cached."""
    tools = _tools(talk)
    change = talk.prefix.see(
        talk.window.wire,
        tools.merged,
        model=talk.route.model,
        why=talk.moved or None,
        unchanged=talk.window.rewritten,
        weights=talk.window.weights,
    )
    talk.moved = ""
    if change.moved:
        talk.accounts.moved()
        yield tell(talk, PrefixMoved, reason=change.reason, index=change.index, tokens_lost=change.tokens_lost)
    tokens = talk.size().tokens
    talk.meter.sent(talk.window, tools.tokens)
    route = talk.route
    talk.sent = Sent(lines=len(talk.window), prefix=change.hash, tokens=tokens, moved=change.reason, route=route)
    yield tell(
        talk,
        RequestReady,
        model=route.model,
        provider=route.provider,
        messages=len(talk.window),
        tokens=tokens,
        context_length=route.context_length,
    )


def answering(talk: Conversation, call: ToolCall) -> Walk[None]:
    """Let the engine answer a call of one of its tools."""
    if talk.engine_waits:
        yield from saying(talk, tool_result(call, UNAVAILABLE))
        return
    yield from handing_out(talk)
    answer = yield steps.Answer(call=call, messages=talk.shown(), stored=talk.stored)
    yield from saying(talk, tool_result(call, answer.text))
    yield tell(talk, ToolAnswered, name=call.name, call_id=call.id, seconds=answer.seconds)


def accounting(talk: Conversation, answer: Answered, dollars: float | None) -> Walk[None]:
    """Add up what the answer used and cost."""
    usage = answer.usage
    if usage and talk.sent:
        talk.meter.reported(usage["prompt_tokens"])
    talk.accounts.answered(usage or {}, dollars)
    talk.sent, talk.recovered = None, False
    counted: dict[str, Any] = {**usage} if usage else {}
    yield tell(
        talk,
        AnswerRecorded,
        model=answer.model or talk.route.model,
        provider=talk.route.provider,
        finish=answer.finish,
        answer_id=answer.id,
        cost_usd=dollars,
        incomplete=answer.incomplete,
        **{key: counted.get(key, 0) for key in _COUNTS},
    )


def unanswered(talk: Conversation, why: str) -> Walk[None]:
    """Write down a request that got no answer."""
    if talk.sent is None:
        return
    yield from writing(talk, talk.sent.lines, _row(talk, talk.sent, report={"error": why}))
    talk.sent = None
    yield tell(talk, RequestFailed, error=why)


def _refused_size(talk: Conversation, error: ContextTooLongError) -> int:
    """Return the window when an overflow answer does not name it: what was refused is more than it holds."""
    known, refused = talk.route.context_length, error.actual or talk.size().tokens
    return refused if SMALLEST_WINDOW <= refused < known else known


def unwritten(talk: Conversation) -> list[Request]:
    """Return the rows that the journal lacks: what the store could not take, and the request without an answer."""
    waiting = [] if talk.sent is None else [_row(talk, talk.sent, report={"error": "no answer yet"})]
    return [*talk.unwritten, *waiting]


def _row(talk: Conversation, sent: Sent, **more: Any) -> Request:
    """Return the row of a request."""
    report = {
        "tokens": sent.tokens,
        "tools": _tools(talk).tokens,
        "prefix": sent.moved,
        "model": sent.route.model,
        "provider": sent.route.provider,
        **more.pop("report", {}),
    }
    return Request(reason=REQUEST, keep=0, added=(), prefix=sent.prefix, report=report, **more)


def checked(message: Any) -> Message:
    """Return a message, or say what is wrong with it."""
    if not isinstance(message, dict):
        raise MessageError(f"a message is a dict, not {type(message).__name__}.", path="message")
    if role_of(message) not in ROLES:
        known = ", ".join(sorted(ROLES))
        raise MessageError(f"{message.get('role')!r} is no role; there are {known}.", path="message.role")
    return message


def _tools(talk: Conversation) -> Tools:
    return talk.tools or Tools()


def _usage(talk: Conversation, answer: Answered) -> dict[str, Any]:
    """Return the count for the engine: the provider's, or an estimate where it gives none."""
    if answer.usage:
        return dict(answer.usage)
    prompt, written = talk.sent.tokens if talk.sent else 0, count_message(answer.message)
    return {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}
