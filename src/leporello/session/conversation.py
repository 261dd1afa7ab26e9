"""One conversation; the methods of a turn are `add`, `request` and `record`.

user message      ─▶ add      stored (persistence.py), appended to the window
                  ─▶ request  repaired (validity.py), counted (meter.py), the engine is asked whether to fold
                              folded if so (folding.py); marked for the cache, and sent by the caller
provider's answer ─▶ record   the engine gets the usage; stored with its journal row (persistence.py)
                              calls of engine tools are answered; the others go back to the caller
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

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
from leporello.messages.types import ROLES, newest_of
from leporello.prices import cost_at, price_of
from leporello.prices.table import report_of
from leporello.redact import logger, redact
from leporello.session.accounts import REQUEST, Accounts, Parts, apportioned
from leporello.session.answers import INCOMPLETE
from leporello.session.calls import add_entries, open_call_ids, renamed_calls, with_renamed_ids, with_unique_ids
from leporello.session.events import (
    AnswerRecorded,
    PrefixMoved,
    RequestFailed,
    RequestReady,
    ToolAnswered,
    WindowCorrected,
)
from leporello.session.folding import LEASE_SECONDS, above_safety_limit, fold, safety_limit
from leporello.session.meter import Meter
from leporello.session.persistence import Persistence
from leporello.session.saved_branch import common_prefix
from leporello.session.undo import undo
from leporello.session.validity import Validity
from leporello.session.window import Source, Window
from leporello.store import JournalRow
from leporello.summary.masking import masked_stop
from leporello.tokens import count_message, count_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leporello.caching import CachePolicy
    from leporello.engine import Usage
    from leporello.errors import ModelError
    from leporello.events import Event, Sink
    from leporello.messages import Dialect, Message, ToolCall
    from leporello.session.answers import ModelAnswer
    from leporello.session.engine_host import EngineHost
    from leporello.session.meter import Count
    from leporello.session.route import Route
    from leporello.session.saved_branch import SavedBranch
    from leporello.session.window import Entry
    from leporello.store import Branch

T = TypeVar("T")
_log = logger()

_COUNTS = ("prompt_tokens", "completion_tokens", "cache_read_tokens", "cache_write_tokens")
SMALLEST_WINDOW = 2_048  # no model has less: an overflow answer to a shorter request is about something else


@dataclass(frozen=True, kw_only=True)
class Tools:
    """The tools of a request: the caller's (`given`, None before the first request), and with the engine's (`merged`).

    `owned` are the names of the engine's tools.
    """

    given: list[dict[str, Any]] | None = None
    merged: list[dict[str, Any]] = field(default_factory=list)
    owned: frozenset[str] = frozenset()
    tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class PendingRequest:
    """The request that has no answer yet: `length` entries of the window, and the hash of its prefix."""

    length: int
    tokens: int
    prefix: str
    moved: str
    tokens_lost: int
    route: Route


class Conversation:
    """A conversation with its engine, its window and its branch in the store.

    A failure of the engine or the store is reported as a notice; the conversation goes on.
    """

    def __init__(
        self,
        branch: Branch,
        engine: EngineHost,
        *,
        route: Route,
        dialect: Dialect,
        caching: CachePolicy,
        automatic: bool = True,
        sink: Sink | None = None,
    ) -> None:
        self.id: str = branch.conversation
        """The name of the conversation."""
        self.branch = branch
        """The branch of the store that it reads and writes."""
        self.engine = engine
        self.route: Route = route
        self.dialect = dialect
        self.caching = caching
        self.automatic = automatic
        """Whether it is folded when the engine says so."""
        self.sink = sink
        self.persistence: Persistence = Persistence(branch, self.notice)
        self.window: Window = Window()
        self.validity: Validity = Validity()
        self.meter: Meter = Meter(route.model)
        self.prefix: PrefixTracker = PrefixTracker()
        self.accounts: Accounts = Accounts()
        self.tools: Tools = Tools()
        self.pending: PendingRequest | None = None
        self.recovered: bool = False
        """Whether an overflow answer to the current request has led to a compaction already."""
        self.refusals = 0
        """How many results of the engine were refused in a row."""
        self.refire_at: int = 0
        """The tokens that a request must have before the engine may fold again; 0 leaves it to the engine."""
        self.renamed: dict[str, str] = {}
        """Ids of tool calls that the provider repeated, and the unique ids that they have in the window."""
        self._moved = ""
        self._engine_name = engine.name
        self._noticed: set[str] = set()

    # one turn

    def begin(self, *, introduced: bool = True) -> None:
        """Start the engine's session; `introduced` is False for an engine that does not know the model yet."""
        if not introduced:
            self.attempt(self.engine.use_model, self.route)
        self.attempt(self.engine.begin, self.branch, self.persistence.lease_token)

    def add(self, messages: Sequence[Message], known: Sequence[bytes] = ()) -> None:
        """Store messages and append them to the window.

        `known` are the hashes by which the gateway recognises a client's history up to the last of them.
        """
        new = [copied(checked(message)) for message in messages]
        roles = {message["role"] for message in new}
        if "tool" in roles:
            new = with_renamed_ids(self, new)
        if "user" in roles:
            saved = None if self.pending else self.persistence.changed_elsewhere(self.window)
            if saved is not None:
                self._reload_changed(saved)
        sources = [Source(message=message) for message in new]
        if sources:
            sources[-1].known = tuple(known)
            self.persistence.store(self.window, sources)
        self.recovered = False
        if "user" in roles:
            self.accounts.turn_rows = []
        entries = [source.entry() for source in sources]
        if "tool" in roles:
            add_entries(self, entries)
        else:
            self.window.extend(entries)

    def request(self, tools: Sequence[dict[str, Any]]) -> None:
        """Make the window ready to be sent: stored, valid, counted, and folded when the engine says so."""
        if all(is_system(message) for message in self.window.messages):
            raise SessionError("there is nothing to send yet: add a message of the user first.")
        if self.pending is not None:
            self.request_failed("no answer was recorded")
        self.persistence.flush(self.window)
        self.repair()
        if self.tools.given != list(tools):
            self._merge_tools(list(tools))
        size = self.size()
        if self._is_due(size):
            fold(self, size.tokens, trigger="the window is filling")
        self._note_request()

    def openai_request(self) -> dict[str, Any]:
        """Return the request in OpenAI's format: `messages` and, if there are any, `tools`."""
        tools = self.tools.merged
        messages = self.caching.mark(self.window.wire, tools=tools, clean=True)
        self.window.rewritten = len(messages)
        return {"messages": messages, "tools": list(tools)} if tools else {"messages": messages}

    def record(self, answer: ModelAnswer, known: Sequence[bytes] = ()) -> list[ToolCall]:
        """Store the model's answer, let the engine answer the calls of its own tools, and return the other calls.

        `known` are the hashes by which the gateway recognises a client that got the answer.
        """
        message = copied(answer.message)
        if "tool_calls" in message:
            message = with_unique_ids(self, message)
        self.attempt(self.engine.report_usage, dict(answer.usage) if answer.usage else self._estimated_usage(answer))
        source = Source(message=message, known=tuple(known))
        upto = self.pending.length if self.pending else len(self.window)
        row = self._row(self.pending, answer.usage)
        self.persistence.store_answer(source, self.window, upto, row)
        self.window.extend([source.entry()])
        self._account(answer, row)
        calls = self.open_calls() if "tool_calls" in message else []
        for call in calls:
            if call.name in self.tools.owned:
                self._answer(call)
        self.attempt(self.engine.turn_completed, self.window.engine_messages(self.engine.copy), answer.usage)
        return [call for call in calls if call.name not in self.tools.owned]

    def recover(self, error: ModelError) -> bool:
        """Fold once after the provider refused a request as too long; returns whether to send it again.

        The model's context length is corrected if the error names it.
        """
        self.request_failed(str(error))
        if not isinstance(error, ContextTooLongError) or self.recovered:
            return False
        self.recovered = True
        limit = error.limit or self._refused_size(error)
        if limit != self.route.context_length:
            self.emit(WindowCorrected(session_id=self.id, before=self.route.context_length, after=limit))
            self.route = self.route.with_window(limit)
            self.attempt(self.engine.use_model, self.route)
        if error.actual:
            self.meter.refused(error.actual)
        before = self.window.tokens
        tokens = max(error.actual or 0, self.size().tokens, self.route.context_length + 1)
        report = fold(self, tokens, trigger="the provider found it too long", force=True, wait=LEASE_SECONDS)
        return report.folded or self.window.tokens < before  # another process may have folded it

    def compact(self, focus: str | None) -> CompactionReport:
        """Fold now, whatever the engine's threshold."""
        self.persistence.flush(self.window)
        if all(is_system(message) for message in self.window.messages):
            return CompactionReport(status="unchanged", reason="there is nothing to compact yet")
        self.repair()
        trigger = f"asked for, with focus on {redact(focus)}" if focus else "asked for"
        return fold(self, self.size().tokens, trigger=trigger, focus=focus, force=True)

    def undo(self) -> list[Message]:
        """Go back to before the newest message of the user; returns the removed messages, which stay on the old branch.

        The turn before it is shown in full again if it was folded. While the store cannot be used it cannot be read
        back, and a second undo does nothing.
        """
        return undo(self)

    def switch_model(self, route: Route) -> None:
        """Go on with another model; the token count of the one before is discarded."""
        self.route = route
        self.meter.switch(route.model)
        self.refire_at = 0
        self.attempt(self.engine.use_model, route)

    def request_failed(self, why: str) -> None:
        """Write a journal row for the pending request, which got no answer."""
        if self.pending is None:
            return
        row = self._row(self.pending, error=why)
        self.persistence.write(self.window, self.pending.length, row)
        self.accounts.uncounted.append(row)
        self.pending = None
        self.emit(RequestFailed(session_id=self.id, error=why))

    def end(self) -> None:
        """Store what is not stored yet, and end the engine's session."""
        self.request_failed("the conversation ended first")
        self.persistence.flush(self.window)
        messages = [] if self.persistence.unstored_prompt else self.window.engine_messages(self.engine.copy)
        self.attempt(self.engine.end, self.id, messages)
        self.attempt(self.persistence.end)

    # changing the window

    def set_system_prompt(self, text: str) -> None:
        """Replace the system prompt, unless it has this text already; it is stored with the first message."""
        entries = self.window.entries
        first = entries[0] if self.window.systems() else None
        if first is not None and text in [text_of(message) for message in (first.message, *first.source_messages)]:
            return
        source = Source(message={"role": "system", "content": text}, prompt=bool(entries))
        if not entries:
            self.persistence.unstored_prompt = [source]
            self.window.extend([source.entry()])
            return
        self.persistence.store(self.window, [source])
        self.change(0, [source.entry(), *(entries if first is None else entries[1:])], "system prompt changed")

    def replace_system_messages(self, systems: Sequence[Message]) -> None:
        """Replace the leading system messages."""
        sources = [Source(message=copied(message), prompt=True) for message in systems]
        if sources:
            self.persistence.store(self.window, sources)
        rest = self.window.entries[self.window.systems() :]
        self.change(0, [*(source.entry() for source in sources), *rest], "system prompt changed")

    def repair(self, why: str = "repaired") -> None:
        """Make the window valid for the dialect; the changes stay in it, because they are sent."""
        if takes_turns(self.window.messages, self.validity.checked):
            self.validity.checked = len(self.window)
            return
        repaired = self.validity.repaired(self.window, self.dialect)
        if repaired is not None:
            self.change(*repaired, why)
        self.validity.mark_valid(self.window)

    def reload(self, saved: SavedBranch | None, why: str = "") -> None:
        """Replace the window by the one in the store; None, when that could not be read, changes nothing."""
        if saved is not None:
            entries = [*saved.entries, *saved.later]
            self.change(0, entries, why, first=common_prefix(self.window, entries))
            self.renamed = renamed_calls(self.window.messages)
            self.persistence.resume(saved)

    def change(self, start: int, entries: Sequence[Entry], why: str, *, first: int | None = None) -> None:
        """Replace the entries from `start` on; besides appending, this is the only way to change the window.

        `first` is the first index whose content differs, if it lies behind `start`. What was known about the entries
        from there on is discarded: validity, the provider's count, the journal, the pending request.
        """
        first = start if first is None else first
        self.window.replace(start, entries, first)
        self._moved = why
        self.validity.changed_from(first)
        self.meter.changed_from(first)
        self.persistence.changed_from(first, self.window)
        if self.pending is not None and first < self.pending.length:
            self.pending = replace(self.pending, length=first)

    def put_back(self, tokens: int) -> None:
        """Let the next fold come later by what a client has put back into the window since the newest one.

        The engine counts from the size that its fold left. Only the first time: what comes later is growth.
        """
        threshold = int(getattr(self.engine.engine, "threshold_tokens", 0) or 0)
        if tokens > 0 and 0 < threshold < self.folds_at and not self.refire_at:
            self.refire_at = min(self.folds_at + tokens, safety_limit(self))

    # reading

    @property
    def folds_at(self) -> int:
        """The size of the request that is folded next; 0 when none is folded by itself, or the engine does not say."""
        if not self.automatic:
            return 0
        engine = self.engine.engine
        threshold = int(getattr(engine, "folds_at", 0) or getattr(engine, "threshold_tokens", 0) or 0)
        if self.engine.built_in is not None and (safe := safety_limit(self)):
            threshold = min(threshold, safe) if threshold else safe
        return max(threshold, self.refire_at) if threshold else 0

    def size(self) -> Count:
        """Count the tokens of a request with this window and these tools."""
        return self.meter.count(self.window, None if self.tools.given is None else self.tools.tokens)

    def parts(self, tokens: int) -> Parts:
        """Divide the tokens of a request among what the window holds, in proportion to the estimates of the parts."""
        window = self.window
        systems = window.systems()
        system = sum(entry.tokens for entry in window.entries[:systems])
        summaries = sum(entry.tokens for entry in window.entries[systems:] if entry.is_summary)
        tools = self.meter.tools if self.tools.given is None else self.tools.tokens
        behind = max((at + 1 for at, entry in enumerate(window.entries) if entry.is_summary), default=systems)
        masked = sum(entry.tokens for entry in window.entries[behind : masked_stop(window.messages, behind)])
        tail = window.tokens - system - summaries - masked
        return Parts(*apportioned(tokens, [system, tools, summaries, masked, tail]))

    def open_calls(self) -> list[ToolCall]:
        """Return the calls of the newest answer that have no result yet; those of one that broke off are not run."""
        messages = self.window.messages
        waiting = open_call_ids(messages)
        if not waiting or (answer := messages[newest_of(messages, "assistant")]).get(INCOMPLETE):
            return []
        return [call for call in tool_calls_of(answer) if call.id in waiting]

    @property
    def done(self) -> bool:
        """Whether the model has answered and no tool call waits for a result."""
        at = last_speaker(self.window.messages)
        newest = self.window.messages[at] if at >= 0 else {}
        return role_of(newest) not in ("user", "tool") and not self.open_calls()

    def unwritten_rows(self) -> list[JournalRow]:
        """Return the journal rows that are not stored yet, with one for the pending request."""
        waiting = [] if self.pending is None else [self._row(self.pending, error="no answer yet")]
        return [*self.persistence.unwritten_rows, *waiting]

    # events

    def notice(self, text: str) -> None:
        """Emit a notice for the user; the same text only once."""
        if text not in self._noticed:
            self._noticed.add(text)
            self.emit(Notice(session_id=self.id, text=text))

    def emit_from_engine(self, event: Event) -> None:
        """Emit an event of the engine; the events of a compaction are left out, as `folding.py` emits its own."""
        if not isinstance(event, (CompactionStarted, CompactionFinished)):
            self.emit(event if event.session_id else replace(event, session_id=self.id))

    def emit(self, event: Event) -> None:
        """Hand an event to the listener; an exception of the listener is logged."""
        if self.sink is None:
            return
        try:
            self.sink(event)
        except Exception:  # noqa: BLE001 - a listener may raise anything
            _log.exception("on_event failed at: %s", event)

    def attempt(self, work: Callable[..., T], *args: Any, default: Any = None) -> T | Any:
        """Call a function; an error of the engine or the store becomes a notice, and `default` is returned."""
        try:
            return work(*args)
        except (EngineError, StoreError) as error:
            self.notice(str(error))
            return default

    # the parts of a turn

    def _reload_changed(self, saved: SavedBranch) -> None:
        """Replace the window by one to which another process has added messages."""
        self.reload(saved, "another process went on with the conversation")
        self.persistence.unstored_prompt = []
        self.notice("another process went on with this conversation: it is taken up from there")

    def _is_due(self, size: Count) -> bool:
        """Ask the engine whether to fold; both of its questions are asked once per request."""
        engine, tokens = self.engine, size.tokens
        early = self.attempt(engine.preflight, self.window.engine_messages(self.engine.copy), default=False)
        due = self.attempt(engine.should_compress, tokens, default=False)
        caught = engine.built_in is not None and above_safety_limit(self, tokens)
        rests = self.recovered or tokens < self.refire_at
        if not (early or due or caught) or not self.automatic or rests:
            return False
        return bool(size.reported or caught or not self.attempt(engine.should_defer, tokens, default=False))

    def _merge_tools(self, given: list[dict[str, Any]]) -> None:
        """Append the engine's tools to the caller's, once as long as those stay the same, so that the order stays."""
        merged, owned = self.attempt(self.engine.merged_tools, given, default=(given, frozenset()))
        merged = tools_within_limit(merged)
        self.tools = Tools(given=copied(given), merged=merged, owned=owned, tokens=count_tools(merged))

    def _note_request(self) -> None:
        """Keep the size and the prefix of the request as pending, and emit whether the cached prefix has moved."""
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
            self.emit(PrefixMoved(session_id=self.id, reason=change.reason, index=change.index, tokens_lost=lost))
        tokens = self.size().tokens
        self.meter.sent(self.window, self.tools.tokens)
        route, length = self.route, len(self.window)
        self.pending = PendingRequest(
            length=length,
            prefix=change.hash,
            tokens=tokens,
            moved=change.reason,
            tokens_lost=change.tokens_lost,
            route=route,
        )
        ready = RequestReady(
            session_id=self.id,
            model=route.model,
            provider=route.provider,
            messages=length,
            tokens=tokens,
            context_length=route.context_length,
        )
        self.emit(ready)

    def _answer(self, call: ToolCall) -> None:
        """Let the engine answer a call of one of its tools, and store the result."""
        text, seconds = self.engine.answer(call, self.window.engine_messages(self.engine.copy))
        source = Source(message=tool_result(call, text))
        self.persistence.store(self.window, [source])
        self.window.extend([source.entry()])
        self.emit(ToolAnswered(session_id=self.id, name=call.name, call_id=call.id, seconds=seconds))

    def _account(self, answer: ModelAnswer, row: JournalRow) -> None:
        """Add the usage and cost of an answer to the accounts, and emit them."""
        if answer.usage and self.pending:
            self.meter.reported(answer.usage["prompt_tokens"])
        self.accounts.turn_rows.append(row)
        self.accounts.uncounted.append(row)
        self.pending, self.recovered = None, False
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
        self.emit(recorded)

    def _row(self, sent: PendingRequest | None, usage: Usage | None = None, *, error: str | None = None) -> JournalRow:
        """Return the journal row of a request, with the usage and cost of its answer, or the error."""
        route = sent.route if sent else self.route
        report: dict[str, Any] = {}
        if sent is not None:
            report = {
                "tokens": sent.tokens,
                "tools": self.tools.tokens,
                "prefix": sent.moved,
                "model": route.model,
                "provider": route.provider,
                "context_length": route.context_length,
                "engine": self._engine_name,
            }
            if usage and (estimate := self.meter.sent_estimate):
                report["estimate"] = estimate
            if sent.tokens_lost:
                report["tokens_lost"] = sent.tokens_lost
            if route.own_price is not None:
                report["price"] = report_of(route.own_price)
        if error is not None:
            report["error"] = error
        ttl: Literal["5m", "1h"] = "1h" if self.caching.ttl == "1h" else "5m"
        price = (route.own_price or price_of(route.model, route.provider)) if usage else None
        return JournalRow(
            reason=REQUEST,
            keep=0,
            added=(),
            prefix=sent.prefix if sent else "",
            usage=dict(usage or {}),
            cost_usd=cost_at(usage, price, cache_ttl=ttl) if usage and price else None,
            report=report,
        )

    def _estimated_usage(self, answer: ModelAnswer) -> dict[str, Any]:
        """Return an estimate for the engine when the provider reports no usage."""
        prompt, written = self.pending.tokens if self.pending else 0, count_message(answer.message)
        return {"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written}

    def _refused_size(self, error: ContextTooLongError) -> int:
        """Return the context length when the provider does not name it: less than the request that was refused."""
        known, refused = self.route.context_length, error.actual or self.size().tokens
        return refused if SMALLEST_WINDOW <= refused < known else known


def checked(message: Any) -> Message:
    """Return a message; raises MessageError for what is none."""
    if not isinstance(message, dict):
        raise MessageError(f"a message is a dict, not {type(message).__name__}.", path="message")
    if role_of(message) not in ROLES:
        known = ", ".join(sorted(ROLES))
        raise MessageError(f"{message.get('role')!r} is no role; there are {known}.", path="message.role")
    return cast("Message", message)
