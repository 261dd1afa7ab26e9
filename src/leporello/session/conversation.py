"""One conversation, from top to bottom of a turn.

user message ─▶ add ─▶ stored
─▶ request ─▶ mended, counted ─▶ the engine is asked ─▶ folded (folding.py) ─▶ the window is saved
─▶ the request (marked for the cache, and sent by the caller)
the provider's answer ─▶ record ─▶ the engine gets the count ─▶ stored, journalled (persistence.py)
─▶ calls of engine tools are answered; the others go back to the caller
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from leporello.caching import PrefixTracker, tools_within_limit
from leporello.engine import CompactionReport
from leporello.errors import ContextTooLongError, EngineError, MessageError, SessionError, StoreError
from leporello.events import CompactionFinished, CompactionStarted, Notice
from leporello.messages import (
    copied,
    is_system,
    last_speaker,
    role_of,
    text_of,
    tool_calls_of,
    tool_result,
)
from leporello.messages.rules import takes_turns
from leporello.messages.types import ROLES
from leporello.prices import cost
from leporello.redact import logger, redact
from leporello.session.accounts import FOLDED, REQUEST, Accounts
from leporello.session.answers import INCOMPLETE
from leporello.session.calls import add_entries, known_calls, with_own_ids
from leporello.session.entries import common
from leporello.session.events import (
    AnswerRecorded,
    PrefixMoved,
    RequestFailed,
    RequestReady,
    ToolAnswered,
    WindowCorrected,
)
from leporello.session.folding import LEASE_SECONDS, fold, in_net
from leporello.session.meter import Meter
from leporello.session.persistence import Persistence
from leporello.session.undo import retract_answer, undo
from leporello.session.validity import Validity
from leporello.session.window import Source, Window, entry_of
from leporello.store import Request
from leporello.tokens import count_message, count_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leporello.caching import CachePolicy
    from leporello.engine import Usage
    from leporello.errors import ModelError
    from leporello.events import Event, Sink
    from leporello.messages import Message, ToolCall
    from leporello.session.answers import Answered
    from leporello.session.engine_host import EngineHost
    from leporello.session.entries import Saved
    from leporello.session.meter import Count
    from leporello.session.route import Route
    from leporello.session.window import Entry
    from leporello.store import Branch

T = TypeVar("T")
_log = logger()

_COUNTS = ("prompt_tokens", "completion_tokens", "cache_read_tokens", "cache_write_tokens")
SMALLEST_WINDOW = 2_048  # no model has less: an overflow answer to a shorter request speaks of something else


@dataclass(frozen=True, kw_only=True)
class Tools:
    """The tools of a request: as the caller gave them, with the engine's behind them, and what they weigh.

    `given` is None as long as nobody named any.
    """

    given: list[dict[str, Any]] | None = None
    merged: list[dict[str, Any]] = field(default_factory=list)
    owned: frozenset[str] = frozenset()
    tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class Sent:
    """The request that waits for its answer."""

    length: int
    tokens: int
    prefix: str
    moved: str
    route: Route


class Conversation:
    """A conversation with its engine, its window and its place in the store; what fails is told and does not end it."""

    def __init__(
        self,
        branch: Branch,
        engine: EngineHost,
        *,
        route: Route,
        dialect: str,
        caching: CachePolicy,
        automatic: bool = True,
        sink: Sink | None = None,
    ) -> None:
        self.id = branch.conversation
        """The name of the conversation."""
        self.branch = branch
        """The branch that it is on."""
        self.engine = engine
        self.route = route
        self.dialect = dialect
        self.caching = caching
        self.automatic = automatic
        """Whether it is folded when the engine says so."""
        self.sink = sink
        self.persistence = Persistence(branch, self.notice)
        self.window = Window()
        self.validity = Validity()
        self.meter = Meter(route.model)
        self.prefix = PrefixTracker()
        self.accounts = Accounts()
        self.tools = Tools()
        self.sent: Sent | None = None
        self.recovered = False
        """Whether an overflow answer to the current request has led to a compaction already."""
        self.refusals = 0
        """How many results of the engine were refused since the last one that was used."""
        self.rests_until = 0
        """After a compaction that was refused, how large the request must be before the engine is asked for another."""
        self.renamed: dict[str, str] = {}
        """The ids of calls as the provider named them, and as they are named here."""
        self._moved = ""
        self._noticed: set[str] = set()

    # one turn

    def begin(self, *, introduced: bool = True) -> None:
        """Begin or resume; an engine that was not introduced to the model yet is so first."""
        if not introduced:
            self.attempt(self.engine.use_model, self.route)
        self.attempt(self.engine.begin, self.branch, self.persistence.lease_token)

    def add(self, messages: Sequence[Message], known: Sequence[bytes] = ()) -> None:
        """Take what somebody said: it is stored before anything else happens with it.

        `known` are the hashes by which a client's history up to the last of them is recognised.
        """
        new = [copied(checked(message)) for message in messages]
        roles = {message["role"] for message in new}
        if "tool" in roles:
            new = known_calls(self, new)
        if "user" in roles:
            saved = None if self.sent else self.persistence.went_on_elsewhere(self.window)
            if saved is not None:
                self._take_up(saved)
        said = [Source(message=message) for message in new]
        if said:
            said[-1].known = tuple(known)
            self.persistence.store(self.window, said)
        self.recovered = False
        if "user" in roles:
            self.accounts.turn_rows = []
        entries = [entry_of(one.message, sources=[one]) for one in said]
        if "tool" in roles:
            add_entries(self, entries)
        else:
            self.window.extend(entries)

    def request(self, tools: Sequence[dict[str, Any]]) -> None:
        """Make the window ready to be sent: stored, valid, counted, and folded when the engine says so."""
        if all(is_system(message) for message in self.window.messages):
            raise SessionError("there is nothing to send yet: add a message of the user first.")
        if self.sent is not None:
            self.unanswered("no answer was recorded")
        self.persistence.flush(self.window)
        self.mend()
        if self.tools.given != list(tools):
            self._offer(list(tools))
        size = self.size()
        if self._is_due(size):
            fold(self, size.tokens, trigger="the window is filling")
        self._send()

    def record(self, answer: Answered, known: Sequence[bytes] = ()) -> list[ToolCall]:
        """Take the model's answer, let the engine answer the calls of its own tools, and return the other calls.

        `known` are the hashes by which a client that got it is recognised.
        """
        message = copied(answer.message)
        if "tool_calls" in message:
            message = with_own_ids(self, message)
        self.attempt(self.engine.used, dict(answer.usage) if answer.usage else self._estimated_usage(answer))
        said, upto = Source(message=message, known=tuple(known)), self.sent.length if self.sent else len(self.window)
        row = self._row(self.sent, answer.usage)
        self.persistence.store_answer(said, self.window, upto, row)
        self.window.extend([entry_of(message, sources=[said])])
        self._account(answer, row)
        calls = self.open_calls() if "tool_calls" in message else []
        for call in calls:
            if call.name in self.tools.owned:
                self._answer(call)
        self.attempt(self.engine.completed, self.shown(), answer.usage)
        return [call for call in calls if call.name not in self.tools.owned]

    def recover(self, error: ModelError) -> bool:
        """After an overflow answer fold once, with the window corrected if the answer names it."""
        self.unanswered(str(error))
        if not isinstance(error, ContextTooLongError) or self.recovered:
            return False
        self.recovered = True
        limit = error.limit or self._refused_size(error)
        if limit != self.route.context_length:
            self.tell(WindowCorrected(session_id=self.id, before=self.route.context_length, after=limit))
            self.route = self.route.with_window(limit)
            self.attempt(self.engine.use_model, self.route)
        if error.actual:
            self.meter.refused(error.actual)
        tokens, before = max(error.actual or 0, self.size().tokens, self.route.context_length + 1), self.window.tokens
        report = fold(self, tokens, trigger="the provider found it too long", force=True, patience=LEASE_SECONDS)
        return report.status in FOLDED or self.window.tokens < before  # another process may have folded it

    def compact(self, focus: str | None) -> CompactionReport:
        """Fold because a person asked for it."""
        self.persistence.flush(self.window)
        if all(is_system(message) for message in self.window.messages):
            return CompactionReport(status="unchanged", reason="there is nothing to compact yet")
        self.mend()
        trigger = f"asked for, with focus on {redact(focus)}" if focus else "asked for"
        return fold(self, self.size().tokens, trigger=trigger, focus=focus, force=True)

    def undo(self) -> list[Message]:
        """Take back the newest message of the user and everything after it; the branch that is left keeps it.

        The turn before it is the newest one then, so it comes back word by word if it was folded. One that is in a
        store that is away cannot come back: then a further undo waits for the store.
        """
        return undo(self)

    def switch_model(self, route: Route) -> None:
        """Go on with another model: budgets are worked out anew, and the count of the one before is not used."""
        self.route = route
        self.meter.switch(route.model)
        self.rests_until = 0
        self.attempt(self.engine.use_model, route)

    def unanswered(self, why: str) -> None:
        """Write down that the request under way got no answer."""
        if self.sent is None:
            return
        row = self._row(self.sent, error=why)
        self.persistence.write(self.window, self.sent.length, row)
        self.accounts.unread.append(row)
        self.sent = None
        self.tell(RequestFailed(session_id=self.id, error=why))

    def end(self) -> None:
        """End at a real boundary: exit, reset, expiry."""
        self.unanswered("the conversation ended first")
        self.persistence.flush(self.window)
        messages = [] if self.persistence.unspoken else self.shown()
        self.attempt(self.engine.end, self.id, messages)
        self.attempt(self.persistence.end)

    # what stands already

    def set_system_prompt(self, text: str) -> None:
        """Let the conversation begin with this system prompt; one that says the same already stays, with its note.

        As long as nothing was said there is nothing to store.
        """
        entries = self.window.entries
        first = entries[0] if self.window.systems() else None
        if first is not None and text in [text_of(message) for message in (first.message, *first.source_messages)]:
            return
        said = Source(message={"role": "system", "content": text}, prompt=bool(entries))
        entry = entry_of(said.message, sources=[said])
        if not entries:
            self.persistence.unspoken = [said]
            self.window.extend([entry])
            return
        self.persistence.store(self.window, [said])
        self.change(0, [entry, *(entries if first is None else entries[1:])], "system prompt changed")

    def replace_system_messages(self, systems: Sequence[Message]) -> None:
        """Let the conversation begin with other system messages."""
        said = [Source(message=copied(message), prompt=True) for message in systems]
        if said:
            self.persistence.store(self.window, said)
        rest = self.window.entries[self.window.systems() :]
        self.change(0, [*(entry_of(one.message, sources=[one]) for one in said), *rest], "system prompt changed")

    def retract_answer(self) -> None:
        """Take back the newest answer, not what it answers; the branch that is left keeps it."""
        retract_answer(self)

    def mend(self, why: str = "mended") -> None:
        """Make the window valid; what had to be changed stays in it, as it is sent."""
        if takes_turns(self.window.messages, self.validity.checked):
            self.validity.checked = len(self.window)
            return
        repaired = self.validity.repaired(self.window, self.dialect)
        if repaired is not None:
            self.change(*repaired, why)
        self.validity.note(self.window)

    def follow(self, saved: Saved | None, why: str = "") -> None:
        """Go on from the conversation as it stands in the store; what was written may stand for less than before.

        None, where the store cannot be read: the window stays.
        """
        if saved is not None:
            entries = [*saved.entries, *saved.later]
            self.change(0, entries, why, first=common(self.window, entries))
            self.persistence.resume(saved)

    def change(self, start: int, entries: Sequence[Entry], why: str, *, first: int | None = None) -> None:
        """Put other entries in the place of those from `start` on; a window changes in no other way but at its end.

        Everything that follows the window goes back to the first index that changed: what is known to be valid, the
        provider's count, the journal and the request under way. `first` names it where it lies behind `start`.
        """
        first = start if first is None else first
        self.window.replace(start, entries, first)
        self._moved = why
        self.validity.cut(first)
        self.meter.cut(first)
        self.persistence.cut(first, self.window)
        if self.sent is not None and first < self.sent.length:
            self.sent = replace(self.sent, length=first)

    # what can be asked

    def shown(self) -> list[Message]:
        """Return the live list of the messages for the engine."""
        return self.window.shown(self.engine.copy)

    def openai_request(self) -> dict[str, Any]:
        """Return the request in OpenAI's format: `messages` and, if there are any, `tools`."""
        tools = self.tools.merged
        messages = self.caching.mark(self.window.wire, tools=tools, clean=True)
        self.window.rewritten = len(messages)
        return {"messages": messages, "tools": list(tools)} if tools else {"messages": messages}

    def size(self) -> Count:
        """Count the request that the window and the tools make."""
        return self.meter.count(self.window, None if self.tools.given is None else self.tools.tokens)

    def open_calls(self) -> list[ToolCall]:
        """Return the calls of the newest answer that have no result yet."""
        answered: set[str] = set()
        for message in reversed(self.window.messages):
            if role_of(message) == "tool":
                answered.add(str(message.get("tool_call_id")))
                continue
            if is_system(message):
                continue
            if role_of(message) != "assistant" or message.get(INCOMPLETE):
                return []
            return [call for call in tool_calls_of(message) if call.id not in answered]
        return []

    @property
    def done(self) -> bool:
        """Whether the newest answer needs nothing more: no result, no further request."""
        at = last_speaker(self.window.messages)
        newest = self.window.messages[at] if at >= 0 else {}
        return role_of(newest) not in ("user", "tool") and not self.open_calls()

    def unwritten(self) -> list[Request]:
        """Return the rows that the journal lacks: what the store could not take, and the request without an answer."""
        waiting = [] if self.sent is None else [self._row(self.sent, error="no answer yet")]
        return [*self.persistence.unwritten, *waiting]

    # what the user is told

    def notice(self, text: str) -> None:
        """Tell the user something, once."""
        if text not in self._noticed:
            self._noticed.add(text)
            self.tell(Notice(session_id=self.id, text=text))

    def from_engine(self, event: Event) -> None:
        """Pass on what an engine reports, with the conversation it is about; how a compaction went is told here."""
        if not isinstance(event, (CompactionStarted, CompactionFinished)):
            self.tell(event if event.session_id else replace(event, session_id=self.id))

    def tell(self, event: Event) -> None:
        """Hand an event to the listener; whatever that does is no part of the conversation."""
        if self.sink is None:
            return
        try:
            self.sink(event)
        except Exception:  # noqa: BLE001 - the same
            _log.exception("on_event failed at: %s", event)

    def attempt(self, work: Callable[..., T], *args: Any, default: Any = None) -> T | Any:
        """Do something whose failure is told but does not end the conversation."""
        try:
            return work(*args)
        except (EngineError, StoreError) as error:
            self.notice(str(error))
            return default

    # the parts of a turn

    def _take_up(self, saved: Saved) -> None:
        """Go on from where another process has taken the conversation meanwhile."""
        self.follow(saved, "another process went on with the conversation")
        self.persistence.unspoken = []
        self.notice("another process went on with this conversation: it is taken up from there")

    def _is_due(self, size: Count) -> bool:
        """Ask the engine whether to fold: about the messages, then about the count, both always."""
        engine, tokens = self.engine, size.tokens
        early = self.attempt(engine.preflight, self.shown(), default=False)
        due = self.attempt(engine.should_compress, tokens, default=False)
        caught = engine.built_in is not None and in_net(self, tokens)
        rests = self.recovered or tokens < self.rests_until
        if not (early or due or caught) or not self.automatic or rests:
            return False
        return bool(size.reported or caught or not self.attempt(engine.defers, tokens, default=False))

    def _offer(self, given: list[dict[str, Any]]) -> None:
        """Put the engine's tools behind the caller's; the list is made once, so that its order stays."""
        merged, owned = self.attempt(self.engine.merged_tools, given, default=(given, frozenset()))
        merged = tools_within_limit(merged)
        self.tools = Tools(given=copied(given), merged=merged, owned=owned, tokens=count_tools(merged))

    def _send(self) -> None:
        """Note what goes out: how large it is, and whether the front of it is still the one that is cached."""
        change = self.prefix.see(
            self.window.wire,
            self.tools.merged,
            model=self.route.model,
            why=self._moved or None,
            unchanged=self.window.rewritten,
            weights=self.window.weights,
        )
        self._moved = ""
        if change.moved:
            lost = change.tokens_lost
            self.tell(PrefixMoved(session_id=self.id, reason=change.reason, index=change.index, tokens_lost=lost))
        tokens = self.size().tokens
        self.meter.sent(self.window, self.tools.tokens)
        route, length = self.route, len(self.window)
        self.sent = Sent(length=length, prefix=change.hash, tokens=tokens, moved=change.reason, route=route)
        ready = RequestReady(
            session_id=self.id,
            model=route.model,
            provider=route.provider,
            messages=length,
            tokens=tokens,
            context_length=route.context_length,
        )
        self.tell(ready)

    def _answer(self, call: ToolCall) -> None:
        """Let the engine answer a call of one of its tools."""
        answer = self.engine.answer(call, self.shown())
        said = Source(message=tool_result(call, answer.text))
        self.persistence.store(self.window, [said])
        self.window.extend([entry_of(said.message, sources=[said])])
        self.tell(ToolAnswered(session_id=self.id, name=call.name, call_id=call.id, seconds=answer.seconds))

    def _account(self, answer: Answered, row: Request) -> None:
        """Add up what the answer used and cost, and tell it."""
        if answer.usage and self.sent:
            self.meter.reported(answer.usage["prompt_tokens"])
        self.accounts.turn_rows.append(row)
        self.accounts.unread.append(row)
        self.sent, self.recovered = None, False
        recorded = AnswerRecorded(
            session_id=self.id,
            model=answer.model or self.route.model,
            provider=self.route.provider,
            finish=answer.finish,
            answer_id=answer.id,
            cost_usd=row.cost_usd,
            incomplete=bool(answer.message.get(INCOMPLETE)),
            **{key: row.usage.get(key, 0) for key in _COUNTS},
        )
        self.tell(recorded)

    def _row(self, sent: Sent | None, usage: Usage | None = None, *, error: str | None = None) -> Request:
        """Return the journal's row of a request, with what its answer used and cost, or why there is none."""
        route = sent.route if sent else self.route
        report: dict[str, Any] = {}
        if sent is not None:
            report = {
                "tokens": sent.tokens,
                "tools": self.tools.tokens,
                "prefix": sent.moved,
                "model": route.model,
                "provider": route.provider,
            }
        if error is not None:
            report["error"] = error
        ttl: Literal["5m", "1h"] = "1h" if self.caching.ttl == "1h" else "5m"
        return Request(
            reason=REQUEST,
            keep=0,
            added=(),
            prefix=sent.prefix if sent else "",
            usage=dict(usage or {}),
            cost_usd=cost(usage, route.model, route.provider, cache_ttl=ttl) if usage else None,
            report=report,
        )

    def _estimated_usage(self, answer: Answered) -> dict[str, Any]:
        """Return a count for the engine where the provider gives none."""
        prompt, written = self.sent.tokens if self.sent else 0, count_message(answer.message)
        return {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}

    def _refused_size(self, error: ContextTooLongError) -> int:
        """Return the window when an overflow answer does not name it: what was refused is more than it holds."""
        known, refused = self.route.context_length, error.actual or self.size().tokens
        return refused if SMALLEST_WINDOW <= refused < known else known


def checked(message: Any) -> Message:
    """Return a message, or say what is wrong with it."""
    if not isinstance(message, dict):
        raise MessageError(f"a message is a dict, not {type(message).__name__}.", path="message")
    if role_of(message) not in ROLES:
        known = ", ".join(sorted(ROLES))
        raise MessageError(f"{message.get('role')!r} is no role; there are {known}.", path="message.role")
    return message
