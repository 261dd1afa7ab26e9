"""The agent: a model, a conversation and tools, until there is nothing more to do.

    ask ─▶ session.add
        ─▶ session.request ─▶ model.chunks ─▶ session.stream      overflow: fold once; overload: wait; then again
        ─▶ every tool call ─▶ look at it ─▶ the user agrees ─▶ do it ─▶ session.add
        ─▶ and again, until the model calls no tool

Whatever ends a turn early, the conversation stays valid: calls that were not carried out are answered with why.
"""

from __future__ import annotations

import time
from collections import deque
from contextlib import closing
from typing import TYPE_CHECKING, Any, Self, TypeAlias, cast

from leporello.agent.events import ConfirmationWanted, End, Retrying, ToolFinished, ToolOutput, ToolStarted, TurnEnded
from leporello.agent.interrupt import StopSign
from leporello.agent.model import StoppedError
from leporello.agent.reading import AnswerReader
from leporello.agent.retry import RetryPolicy
from leporello.agent.tools.text import one_line
from leporello.agent.tools.tool import Action
from leporello.agent.tools.toolbox import ToolOutcome
from leporello.agent.turn_hooks import TurnHooks
from leporello.errors import EmptyAnswerError, LeporelloError, ModelError
from leporello.events import Notice
from leporello.messages import tool_result
from leporello.plugins.hooks import Hooks

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from types import TracebackType

    from leporello.agent.model import Model
    from leporello.agent.tools import Toolbox
    from leporello.agent.tools.tool import Wrote
    from leporello.events import Event, Sink
    from leporello.messages import ToolCall
    from leporello.session import Session

    Confirm: TypeAlias = Callable[[ConfirmationWanted], bool | str]

MAX_REQUESTS = 100
# All of these begin as errors do: a summary must not report such a call as something that was done.
_INTERRUPTED = "Error: this call was not carried out, because the user interrupted the turn."
REFUSED = "Error: this call was not carried out, because the user refused it."
_NOBODY = (
    "Error: this call was not carried out. It needs the user's consent, and nobody is there to give it. "
    "Find a way without it, or say what to do."
)
_BLOCKED = "Error: this call was not carried out. A plugin refused it: {}"
_FAILED = "Error: this call was not carried out, because the turn failed: {}"


class Agent:
    """Works on what the user asks, with tools.

    session        the conversation
    model          what answers (`MainModel`)
    toolbox        what it may do
    confirm        asked before a command runs or a file is written: True agrees, False refuses, a text refuses and
                   says why. Without it such calls are refused
    max_requests   how often the model may be asked in one turn
    retry          how often, and after how long, a request to an overloaded provider is retried
    inbox          where the session puts its events (`on_event=inbox.append`), if they shall be yielded too
    on_output      takes a `ToolOutput` for what a running command writes, at the moment it does
    hooks          the hooks of plugins (`EnabledPlugins.hooks`), which are called on this agent's thread
    """

    def __init__(
        self,
        session: Session,
        model: Model,
        toolbox: Toolbox,
        *,
        confirm: Confirm | None = None,
        max_requests: int = MAX_REQUESTS,
        retry: RetryPolicy | None = None,
        inbox: deque[Event] | None = None,
        on_output: Sink | None = None,
        hooks: Hooks | None = None,
        wait: Callable[[StopSign, float], None] = StopSign.wait,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.session = session
        self.model = model
        self.toolbox = toolbox
        self.confirm = confirm
        self.max_requests = max_requests
        self._retry = retry or RetryPolicy()
        self._inbox = deque() if inbox is None else inbox
        self._on_output = on_output
        self._hooks = TurnHooks(hooks or Hooks(), session)
        self._wait = wait
        self._clock = clock
        self._stop = StopSign()

    def ask(self, content: str | list[dict[str, Any]]) -> Iterator[Event]:
        """Take what the user says and work on it; yields what happens, a `TurnEnded` last."""
        self._stop.clear()
        self.session.add({"role": "user", "content": self._hooks.begin(content)})
        yield from self._work()

    def go_on(self) -> Iterator[Event]:
        """Work on what the conversation asks for already, as after a limit or a failure."""
        self._stop.clear()
        yield from self._work()

    def stop(self) -> None:
        """End the turn, from any thread or signal handler: the answer, command or pause that is under way is left."""
        self._stop.set()
        self.model.stop()

    def close(self) -> None:
        """End the conversation properly and let go of the model."""
        self.model.close()
        self.session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _work(self) -> Iterator[Event]:
        requests = 0
        try:
            while not self.session.done and requests < self.max_requests:
                requests += 1
                yield from self._request()
                for call in self.session.calls:
                    yield from self._call(call)
        except (StoppedError, KeyboardInterrupt):
            self._answer_open_calls(_INTERRUPTED)
            yield from self._ended("interrupted", requests)
        except LeporelloError as error:
            self._answer_open_calls(_FAILED.format(error))
            yield from self._ended("failed", requests, error)
        except BaseException:  # the caller stopped listening, or `confirm` failed: the conversation can go on
            self._answer_open_calls(_INTERRUPTED)
            raise
        else:
            yield from self._ended("done" if self.session.done else "limit", requests)

    def _request(self) -> Iterator[Event]:
        """Get one answer: asked again after an overflow that could be folded, and after a pause for an overload."""
        attempt = 1
        while True:
            try:
                yield from self._answer()
            except ModelError as error:
                recovered = self.session.recover(error)
                yield from self._heard()
                if recovered:
                    continue
                pause = self._retry.pause(error, attempt)
                if pause is None or self.session.done:  # done: a part of the answer came, and is kept
                    raise
                attempt += 1
                yield Retrying(
                    session_id=self.session.id,
                    error=str(error),
                    seconds=pause,
                    attempt=attempt,
                    attempts=self._retry.attempts,
                )
                self._wait(self._stop, pause)
            else:
                return

    def _answer(self) -> Iterator[Event]:
        """Ask the model once, and show its answer as it comes."""
        self._check_stop()
        request = self.session.request(tools=self.toolbox.schemas())
        yield from self._heard()
        self._check_stop()
        reading = AnswerReader(self.session.id)
        answer = cast("Generator[Any, None, None]", self.session.stream(self._chunks(request)))
        with closing(answer):
            for chunk in answer:
                yield from reading.take(chunk)
        if reading.is_empty:
            raise EmptyAnswerError("the model's answer was empty")
        yield from self._heard()
        if remark := reading.remark():
            yield Notice(session_id=self.session.id, text=remark)

    def _chunks(self, request: dict[str, Any]) -> Iterator[Any]:
        for chunk in self.model.chunks(request):
            self._check_stop()
            yield chunk

    def _call(self, call: ToolCall) -> Iterator[Event]:
        """Carry out one tool call, if it can be done and the user agrees; the model gets an answer in any case."""
        self._check_stop()
        start = self._clock()
        prepared = self.toolbox.prepare(call)
        if isinstance(prepared, Action) and (refusal := self._hooks.before_tool(call)):
            prepared = ToolOutcome(text=_BLOCKED.format(refusal), failed=True)
        if isinstance(prepared, Action) and prepared.asks:
            prepared = yield from self._agreed(call, prepared)
        title = one_line(call.name)
        if isinstance(prepared, Action):
            title, start = prepared.title, self._clock()
            yield ToolStarted(session_id=self.session.id, call=call, title=title)
            prepared = self.toolbox.do(prepared, self._stop, self._wrote(call))
        self._hooks.after_tool(call, prepared.text, self._clock() - start)
        self.session.add(tool_result(call, prepared.text))
        yield ToolFinished(
            session_id=self.session.id,
            call=call,
            title=title,
            text=prepared.text,
            failed=prepared.failed,
            seconds=self._clock() - start,
        )

    def _wrote(self, call: ToolCall) -> Wrote | None:
        """Return what takes the output of a command while it runs, if anybody looks on."""
        sink, session = self._on_output, self.session.id
        if sink is None:
            return None
        return lambda text: sink(ToolOutput(session_id=session, call=call, text=text))

    def _agreed(self, call: ToolCall, action: Action) -> Generator[Event, None, Action | ToolOutcome]:
        """Return the action if the user agrees to it, else what the model is told."""
        wanted = ConfirmationWanted(session_id=self.session.id, call=call, title=action.title, detail=action.detail)
        yield wanted
        if self.confirm is None:
            return ToolOutcome(text=_NOBODY, failed=True)
        answer = self.confirm(wanted)
        if answer is True:
            return action
        why = f" They said: {answer}" if isinstance(answer, str) and answer.strip() else ""
        return ToolOutcome(text=REFUSED + why, failed=True)

    def _answer_open_calls(self, why: str) -> None:
        for call in self.session.calls:
            self.session.add(tool_result(call, why))

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise StoppedError

    def _heard(self) -> Iterator[Event]:
        while self._inbox:
            yield self._inbox.popleft()

    def _ended(self, reason: End, requests: int, error: LeporelloError | None = None) -> Iterator[Event]:
        self._hooks.end(completed=reason == "done", interrupted=reason == "interrupted")
        yield from self._heard()
        yield TurnEnded(session_id=self.session.id, reason=reason, requests=requests, error=error)
