"""Does what a turn asks for: every call on the engine and on the store, in the thread that drives it."""

from __future__ import annotations

import time
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from uuid import uuid4

from leporello.config.engines import BUILT_IN
from leporello.engine import CompactionReport, ContextEngine, ForeignCall, call_fitting, fitting
from leporello.errors import EngineError, StaleWindowError
from leporello.events import CompactionFinished, CompactionStarted, Event, Sink
from leporello.plugins import dispatch, merge_tools, route_llm
from leporello.redact import logger, redact
from leporello.session import steps
from leporello.session.lease import Lease
from leporello.session.verdict import Made
from leporello.session.windows import load
from leporello.store import Window

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from contextlib import AbstractContextManager
    from types import TracebackType

    from leporello.llm import LLM
    from leporello.session.windows import Saved
    from leporello.store import Store, Stored, WindowItem

T = TypeVar("T")
_log = logger()


class Driver(Protocol):
    """Whoever does the steps of a turn."""

    def do(self, step: steps.Step) -> Any:
        """Do one step and return what came of it."""


def drive(walk: Generator[steps.Step, Any, T], driver: Driver) -> T:
    """Walk through a turn: do every step, and hand back what came of it or how it failed."""
    try:
        step = next(walk)
        while True:
            try:
                came = driver.do(step)
            except BaseException as error:  # noqa: BLE001 - the turn decides what a failure means
                step = walk.throw(error)
            else:
                step = walk.send(came)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True)
class ToolAnswer:
    """What an engine answered to a call, and how long that took."""

    text: str
    seconds: float


@dataclass(kw_only=True)
class Host:
    """One engine and one store, for one conversation after another."""

    engine: ContextEngine
    store: Store
    conversation: str
    owner: str = ""
    branch: int = 1
    """The branch of the conversation that this session is on."""
    start: dict[str, Any] = field(default_factory=dict)
    """What on_session_start is told besides the id."""
    llm: LLM | None = None
    routed: bool = False
    """Whether the engine's own calls of a model, in the manner of Hermes Agent, go to `llm`."""
    built_in: Callable[[], ContextEngine] | None = None
    """Makes the engine that folds where a third party's does not; None when the session's engine is one of ours."""
    sink: Sink | None = None
    clock: Callable[[], float] = time.monotonic
    token: str = field(default_factory=lambda: uuid4().hex)
    """The name under which this session holds the right to compact."""
    _lease_held: Lease | None = None
    _built_in: ContextEngine | None = None
    _taken: dict[tuple[str, ...], frozenset[str]] = field(default_factory=dict)

    def do(self, step: steps.Step) -> Any:
        """Do one step and return what came of it; an engine's failure is an EngineError that names it."""
        return getattr(self, f"_{type(step).__name__.lower()}")(step)

    def from_engine(self, event: Event) -> None:
        """Pass on what an engine reports, with the conversation it is about; how a compaction went, the turn tells."""
        if not isinstance(event, (CompactionStarted, CompactionFinished)):
            named = event if event.session_id else replace(event, session_id=self.conversation)
            self._tell(steps.Tell(event=named))

    @property
    def engine_stores(self) -> bool:
        """Whether the engine keeps the conversation itself, in the same store."""
        return getattr(self.engine, "store", None) is self.store

    # the store

    def _append(self, step: steps.Append) -> tuple[str, ...]:
        return self.store.append(
            self.conversation, step.messages, request=step.request, prompt=step.prompt, **self._here
        )

    def _handout(self, step: steps.HandOut) -> None:
        if not self.engine_stores:
            return
        listed = [(line.message, [one.id for one in line.said if one.id is not None]) for line in step.lines]
        self.store.handed_out(self.conversation, listed, **self._here)

    @property
    def _here(self) -> dict[str, Any]:
        """The owner and the branch, as the store's methods take them."""
        return {"owner": self.owner, "branch": self.branch}

    def _switch_branch(self, branch: int) -> None:
        """Go on on another branch, and let an engine that keeps the conversation in the same store know."""
        self.branch = branch
        if self.engine_stores:
            self._call("switch_branch", branch)

    def carry_over(self, parent: ContextEngine) -> None:
        """Let the engine of a fork go on from where the engine of its parent stands."""
        self._call("carry_over_new_session_context", self.conversation, self.conversation)
        if type(parent) is type(self.engine):
            self._call("go_on_from", parent)

    def _takeback(self, step: steps.TakeBack) -> int:
        first = self.store.get([step.first], **self._here).get(step.first)
        if first is not None and not first.superseded:
            self._switch_branch(self.store.fork(self.conversation, before=first.id, move=True, **self._here))
        return self.branch

    def _newest(self, step: steps.Newest) -> str | None:
        return self.store.newest(self.conversation, **self._here)

    def _pinned(self, step: steps.Pinned) -> list[Stored]:
        ids = self.store.pins(self.conversation, owner=self.owner)
        return [row for row in self.store.get(ids, **self._here).values() if not row.superseded] if ids else []

    def _load(self, step: steps.Load) -> Saved:
        return load(self.store, self.conversation, self.owner, self.branch)

    def _journal(self, step: steps.Journal) -> int:
        return self.store.record_request(self.conversation, step.request, **self._here)

    def _lease(self, step: steps.Lease) -> bool:
        lease = Lease(
            store=self.store,
            conversation=self.conversation,
            token=self.token,
            owner=self.owner,
            branch=self.branch,
            seconds=step.seconds,
        )
        is_ours = lease.take(step.patience)
        self._lease_held = lease if is_ours else None
        return is_ours

    def _release(self, step: steps.Release) -> None:
        lease, self._lease_held = self._lease_held, None
        if lease is not None:
            lease.give_back()

    def _version(self, step: steps.Version) -> int:
        return self.store.window(self.conversation, **self._here).version

    def _save(self, step: steps.Save) -> Sequence[WindowItem]:
        now = self.store.window(self.conversation, **self._here)
        if now.version != step.version:
            return now.items
        try:
            self._save_window(step, now.version)
        except StaleWindowError:
            self._save_window(step, self.store.window(self.conversation, **self._here).version)
        return step.items

    def _save_window(self, step: steps.Save, version: int) -> None:
        window = Window(version=version, items=tuple(step.items))
        self.store.save_window(self.conversation, window, step.request, **self._here)

    # the engine

    def _start(self, step: steps.Start) -> None:
        self.conversation = step.session_id
        told = {**self.start, "conversation_id": step.session_id, "owner": self.owner, "lease_token": self.token}
        if self.engine_stores:
            told["branch"] = self.branch
        self._call("on_session_start", step.session_id, **told)

    def _end(self, step: steps.End) -> None:
        try:
            self._call("on_session_end", step.session_id, step.messages, **self._known(step))
        finally:
            if self.store.info(self.conversation, owner=self.owner) is not None:
                self.store.end(self.conversation, owner=self.owner)

    def _reset(self, step: steps.Reset) -> None:
        self._call("on_session_reset")

    def _adopt(self, step: steps.Adopt) -> None:
        route = step.route
        self.start = {**self.start, "model": route.model, "context_length": route.context_length}
        self._call(
            "update_model",
            model=route.model,
            context_length=route.context_length,
            base_url=route.base_url,
            provider=route.provider,
        )

    def _offer(self, step: steps.Offer) -> tuple[list[dict[str, Any]], frozenset[str]]:
        with self._blamed("get_tool_schemas"):
            return merge_tools(step.tools, self.engine)

    def _preflight(self, step: steps.Preflight) -> bool:
        return bool(self._call("should_compress_preflight", step.messages, **self._known(step)))

    def _shouldcompress(self, step: steps.ShouldCompress) -> bool:
        return bool(self._call("should_compress", step.tokens))

    def _defer(self, step: steps.Defer) -> bool:
        return bool(self._call("should_defer_preflight_to_real_usage", step.tokens))

    def _compress(self, step: steps.Compress) -> Made:
        with self._blamed("compress"):
            made = self._made(self.engine, step)
        if self.engine_stores:
            self.branch = getattr(self.engine, "branch", None) or self.branch
        return made

    def _compressbuiltin(self, step: steps.CompressBuiltIn) -> Made:
        if self.built_in is None:
            raise EngineError("there is no engine to fold in the place of this one")
        with self._blamed("compress", BUILT_IN):
            if self._built_in is None:
                self._built_in = self.built_in()
                self._built_in.on_event = self.from_engine
            route = step.route
            self._built_in.update_model(route.model, route.context_length, route.base_url, provider=route.provider)
            return self._made(self._built_in, step)

    def _made(self, engine: ContextEngine, step: steps.Compress | steps.CompressBuiltIn) -> Made:
        """Let an engine compress, and return its result with its report if it made one."""
        before: CompactionReport | None = getattr(engine, "last_compaction", None)
        started = self.clock()
        if note_written := getattr(engine, "note_written", None):
            note_written(step.written)
        result = call_fitting(
            engine.compress, step.messages, current_tokens=step.tokens, focus_topic=step.focus, force=step.force
        )
        report = getattr(engine, "last_compaction", None)
        own = report if isinstance(report, CompactionReport) and report is not before else None
        return Made(result=result, report=own, seconds=self.clock() - started)

    def _used(self, step: steps.Used) -> None:
        self._call("update_from_response", step.usage)

    def _complete(self, step: steps.Complete) -> None:
        self._call("on_turn_complete", step.messages, usage=step.usage, **self._known(step))

    def _answer(self, step: steps.Answer) -> ToolAnswer:
        started = self.clock()
        with self.routing():
            text = dispatch(self.engine, step.call.name, step.call.arguments, step.messages, **self._known(step))
        return ToolAnswer(text=text, seconds=self.clock() - started)

    def _known(self, step: steps.Showing) -> dict[str, bool]:
        """Return what an engine that keeps the conversation in the same store is told about the list it is shown."""
        return {"stored": True} if step.stored and self.engine_stores else {}

    def close_engine(self) -> None:
        """Let the engine give back what it holds."""
        self._call("close")

    def _call(self, method: str, *args: Any, **offered: Any) -> Any:
        """Call the engine with what its signature takes; an engine on an older base class may lack the method."""
        function = getattr(self.engine, method, None)
        if function is None:
            return None
        with self._blamed(method):
            return function(*args, **self._fitting(method, function, offered))

    def _fitting(self, method: str, function: Callable[..., Any], offered: dict[str, Any]) -> dict[str, Any]:
        """Return what the method takes of what is offered; its signature is read once."""
        if not offered:
            return offered
        key = (method, *offered)
        if key not in self._taken:
            self._taken[key] = frozenset(fitting(function, **offered))
        taken = self._taken[key]
        return offered if len(taken) == len(offered) else {name: offered[name] for name in taken}

    def _blamed(self, method: str, engine: str = "") -> _Blame:
        return _Blame(self, method, engine or self.engine_name)

    def routing(self) -> AbstractContextManager[None]:
        """Return what must surround a call of the engine, so that its own calls of a model find their way."""
        return route_llm(self.llm) if self.routed else nullcontext()

    @property
    def engine_name(self) -> str:
        """The engine's name, whatever its author made of it."""
        name = getattr(self.engine, "name", None)
        return name if isinstance(name, str) else type(self.engine).__name__

    # everybody else

    def _tell(self, step: steps.Tell) -> None:
        if self.sink is None:
            return
        try:
            self.sink(step.event)
        except Exception:  # noqa: BLE001 - whatever a listener does, it is no part of the conversation
            _log.exception("on_event failed at: %s", step.event)


class _Blame:
    """Turn whatever an engine raises itself into an EngineError that says where; the user's interrupts pass."""

    def __init__(self, host: Host, method: str, engine: str) -> None:
        self._method = method
        self._engine = engine
        self._around = host.routing()
        self._call = ForeignCall()

    def __enter__(self) -> None:
        self._around.__enter__()
        self._call.__enter__()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._call.__exit__(kind, error, trace)
        finally:
            self._around.__exit__(kind, error, trace)
        if error is not None and self._call.blames(error):
            where = f"engine '{self._engine}' failed in {self._method}()"
            raise EngineError(redact(f"{where}: {type(error).__name__}: {error}")) from error
