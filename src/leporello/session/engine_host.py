"""Calls the engine of a conversation with the arguments that its signatures take; its exceptions become EngineError."""

from __future__ import annotations

import time
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from leporello.config.engines import BUILT_IN
from leporello.engine import CompactionReport, ContextEngine, ForeignCall, call_fitting
from leporello.errors import EngineError
from leporello.messages import copied, copied_as_text
from leporello.plugins import dispatch, merge_tools, route_llm
from leporello.redact import redact
from leporello.session.acceptance import CompressResult

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from leporello.engine import Usage
    from leporello.events import Sink
    from leporello.llm import LLM
    from leporello.messages import Message, ToolCall
    from leporello.session.route import Route
    from leporello.store import Branch


OWN_MODULES = "leporello."
"""The prefix of the modules of our own engines: their signatures need no check."""


def takes_branch(engine: ContextEngine) -> bool:
    """Tell whether an engine works on the session's branch; its `on_session_start` takes `branch` then."""
    return getattr(engine, "works_on_branch", False) is True


@dataclass(frozen=True, kw_only=True)
class CompressCall:
    """The arguments of `compress()`.

    `sources` are the ids of the stored messages behind each message, None for one that is not stored yet; a message
    without any was written by an engine or a repair.
    """

    messages: list[Message]
    sources: Sequence[tuple[str | None, ...]]
    tokens: int
    focus: str | None
    force: bool


@dataclass(kw_only=True)
class EngineHost:
    """Makes the calls on one engine. Its exceptions are raised as EngineError; the user's interrupts pass."""

    engine: ContextEngine
    start: dict[str, Any] = field(default_factory=dict)
    """The keyword arguments of `on_session_start`."""
    llm: LLM | None = None
    routed: bool = False
    """Whether `call_llm` of Hermes Agent, called by the engine, goes to `llm`."""
    built_in: Callable[[], ContextEngine] | None = None
    """Makes the built-in engine that folds if a third party's fails; None when this engine is one of ours."""
    offers_tools: bool = True
    """Whether the model may use the engine's tools."""
    clock: Callable[[], float] = time.monotonic
    copy: Callable[[Message], Message] = field(init=False)
    """Copies messages for the engine; a third party's may not know lists of parts."""
    _built_in: ContextEngine | None = None

    def __post_init__(self) -> None:
        self.copy = copied_as_text if self.is_foreign else copied

    @property
    def name(self) -> str:
        """The engine's name as text."""
        name = getattr(self.engine, "name", None)
        return name if isinstance(name, str) else type(self.engine).__name__

    @property
    def is_foreign(self) -> bool:
        """Whether the engine is a third party's: its results are repaired, and the built-in one folds if it fails."""
        return self.built_in is not None

    def begin(self, branch: Branch, lease_token: str) -> None:
        """Begin or resume a conversation: on_session_start."""
        told = {
            **self.start,
            "conversation_id": branch.conversation,
            "owner": branch.owner,
            "lease_token": lease_token,
        }
        if takes_branch(self.engine):
            told["branch"] = branch
        self._call("on_session_start", branch.conversation, **told)

    def carry_over(self, conversation: str, parent: ContextEngine) -> None:
        """Hand the state of the parent's engine to the engine of a fork."""
        self._call("carry_over_new_session_context", conversation, conversation)
        if type(parent) is type(self.engine):
            self._call("go_on_from", parent)

    def end(self, conversation: str, messages: list[Message]) -> None:
        """End a conversation: on_session_end."""
        self._call("on_session_end", conversation, messages)

    def reset(self) -> None:
        """Reset the engine for another conversation: on_session_reset."""
        self._call("on_session_reset")

    def use_model(self, route: Route) -> None:
        """Tell the engine its model and window: update_model."""
        self.start = {**self.start, "model": route.model, "context_length": route.context_length}
        self._call(
            "update_model",
            model=route.model,
            context_length=route.context_length,
            base_url=route.base_url,
            provider=route.provider,
        )

    def merged_tools(self, tools: Sequence[dict[str, Any]]) -> tuple[list[dict[str, Any]], frozenset[str]]:
        """Put the engine's tools behind the caller's; returns the list and the names that the engine answers."""
        if not self.offers_tools:
            return list(tools), frozenset()
        with self._named_errors("get_tool_schemas"):
            return merge_tools(tools, self.engine)

    def preflight(self, messages: list[Message]) -> bool:
        """Ask the engine about the messages: should_compress_preflight."""
        return bool(self._call("should_compress_preflight", messages))

    def should_compress(self, tokens: int) -> bool:
        """Ask the engine about the count: should_compress."""
        return bool(self._call("should_compress", tokens))

    def should_defer(self, tokens: int) -> bool:
        """Ask the engine whether to wait for the provider's count: should_defer_preflight_to_real_usage."""
        return bool(self._call("should_defer_preflight_to_real_usage", tokens))

    def compress(self, call: CompressCall, branch: Branch) -> CompressResult:
        """Call compress of the engine; returns its result, its report if it made one, and its proposal."""
        branch.take_proposal()  # drops that of a call that failed
        branch.sources = call.sources
        try:
            with self._named_errors("compress"):
                made = self._compressed_by(self.engine, call)
        finally:
            branch.sources = ()
        return replace(made, proposal=branch.take_proposal())

    def compress_built_in(self, call: CompressCall, route: Route, sink: Sink) -> CompressResult:
        """Call compress of the built-in engine in the place of this one."""
        if self.built_in is None:
            raise EngineError("there is no engine to fold in the place of this one")
        with self._named_errors("compress", BUILT_IN):
            if self._built_in is None:
                self._built_in = self.built_in()
                self._built_in.on_event = sink
            self._built_in.update_model(route.model, route.context_length, route.base_url, provider=route.provider)
            return self._compressed_by(self._built_in, call)

    def report_usage(self, usage: dict[str, Any]) -> None:
        """Hand the usage of an answer to the engine: update_from_response."""
        self._call("update_from_response", usage)

    def turn_completed(self, messages: list[Message], usage: Usage | None) -> None:
        """Tell the engine that a model call is over: on_turn_complete."""
        self._call("on_turn_complete", messages, usage=usage)

    def answer(self, call: ToolCall, messages: list[Message]) -> tuple[str, float]:
        """Let the engine answer a call of one of its tools: handle_tool_call; returns the text and the seconds."""
        started = self.clock()
        with self._routing():
            text = dispatch(self.engine, call.name, call.arguments, messages)
        return text, self.clock() - started

    def close(self) -> None:
        """Close the engine."""
        self._call("close")

    def _compressed_by(self, engine: ContextEngine, call: CompressCall) -> CompressResult:
        """Call compress of an engine, and return its result with its report if it made one."""
        before: CompactionReport | None = getattr(engine, "last_compaction", None)
        started = self.clock()
        if note_written := getattr(engine, "note_written", None):
            note_written([message for message, ids in zip(call.messages, call.sources, strict=True) if not ids])
        result = call_fitting(
            engine.compress, call.messages, current_tokens=call.tokens, focus_topic=call.focus, force=call.force
        )
        report = getattr(engine, "last_compaction", None)
        own = report if isinstance(report, CompactionReport) and report is not before else None
        return CompressResult(result=result, report=own, seconds=self.clock() - started)

    def _call(self, method: str, *args: Any, **offered: Any) -> Any:
        """Call a method with the keyword arguments that it takes; returns None if the engine has no such method."""
        function = getattr(self.engine, method, None)
        if function is None:
            return None
        if not type(self.engine).__module__.startswith(OWN_MODULES):
            with self._named_errors(method):
                return call_fitting(function, *args, **offered)
        try:
            return function(*args, **offered)
        except (Exception, SystemExit) as error:
            if not ForeignCall().blames(error):
                raise
            raise _failed(f"engine '{self.name}' failed in {method}()", error) from error

    @contextmanager
    def _named_errors(self, method: str, engine: str = "") -> Iterator[None]:
        """Raise an exception of the engine as EngineError; the user's interrupts pass."""
        call = ForeignCall()
        try:
            with self._routing(), call:
                yield
        except BaseException as error:
            if not call.blames(error):
                raise
            raise _failed(f"engine '{engine or self.name}' failed in {method}()", error) from error

    def _routing(self) -> AbstractContextManager[None]:
        """Return the context in which the engine's `call_llm` goes to `llm`."""
        return route_llm(self.llm) if self.routed else nullcontext()


def _failed(where: str, error: BaseException) -> EngineError:
    return EngineError(redact(f"{where}: {type(error).__name__}: {error}"))
