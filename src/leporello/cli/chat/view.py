"""Shows a turn while it happens: from the events of the agent and of its session to the screen."""

from __future__ import annotations

import threading
from collections import deque
from functools import singledispatchmethod
from typing import TYPE_CHECKING, Final

from leporello.agent.events import (
    ConfirmationWanted,
    Retrying,
    TextPiece,
    ThinkingPiece,
    ToolFinished,
    ToolOutput,
    ToolStarted,
    TurnEnded,
)
from leporello.agent.loop import REFUSED
from leporello.cli.format import counted
from leporello.events import CompactionFinished, CompactionStarted, Event, Notice, SummaryFellBack
from leporello.session.events import RequestReady, ToolAnswered, WindowCorrected

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello.cli.chat.screen import Screen
    from leporello.errors import LeporelloError

_RESULT_LINES: Final = 6
_NOT_DONE: Final = "not done; the model is told"


def not_folded(reason: str) -> str:
    """Say that nothing was folded, and why."""
    return f"nothing was folded: {reason or 'there is nothing to fold yet'}"


class ChatView:
    """Takes every event, and shows those that a person wants to see. `compactions` counts those that were shown.

    `remedy` says what can be done about an error, `known_pace` how many seconds per token a compaction took earlier.
    What happens in another thread, where an engine prepares summaries, is shown when the user is not typing.
    """

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self.remedy: Callable[[LeporelloError | None], str] = lambda _: ""
        self.known_pace: Callable[[], float] = lambda: 0.0
        self._thread = threading.get_ident()
        self._from_elsewhere: deque[Event] = deque()
        self._thinking = False
        self._asked_about = ""
        self._pace = 0.0  # seconds per token of the last compaction that asked a model
        self.compactions: int = 0

    def take(self, event: Event) -> None:
        """Show an event."""
        if threading.get_ident() != self._thread:
            self._from_elsewhere.append(event)
            return
        if not isinstance(event, ThinkingPiece):
            self._thinking = False
        self._show(event)

    def catch_up(self) -> None:
        """Show what happened in other threads."""
        while self._from_elsewhere:
            self.take(self._from_elsewhere.popleft())

    @singledispatchmethod
    def _show(self, event: Event) -> None:
        """Pass over it: `/usage` adds it up."""

    @_show.register
    def _text(self, event: TextPiece) -> None:
        self._screen.say(event.text)

    @_show.register
    def _thought(self, event: ThinkingPiece) -> None:
        if not self._thinking:
            self._thinking = True
            self._screen.busy("thinking")

    @_show.register
    def _request(self, event: RequestReady) -> None:
        self._screen.busy(f"waiting for {event.model}")

    @_show.register
    def _wanted(self, event: ConfirmationWanted) -> None:
        self._asked_about = event.call.id
        self._screen.line(f"⚙ {event.title}", "cyan")
        if event.detail.strip() not in event.title:
            self._screen.detail(event.detail, style="")

    @_show.register
    def _started(self, event: ToolStarted) -> None:
        if event.call.id != self._asked_about:
            self._screen.line(f"⚙ {event.title}", "cyan")
        self._screen.busy("running")

    @_show.register
    def _finished(self, event: ToolFinished) -> None:
        if event.text.startswith(REFUSED):
            self._screen.detail(_NOT_DONE)
            return
        style = "red" if event.failed else "dim"
        self._screen.ends(event.text or "(no output)", style, lines=_RESULT_LINES)

    @_show.register
    def _output(self, event: ToolOutput) -> None:
        self._screen.output(event.text)

    @_show.register
    def _answered(self, event: ToolAnswered) -> None:
        self._screen.line(f"⚙ {event.name}, answered by the engine", "cyan")

    @_show.register
    def _retrying(self, event: Retrying) -> None:
        error = event.error.rstrip(".")
        self._screen.busy(f"{error} · attempt {event.attempt} of {event.attempts}", left=event.seconds)

    @_show.register
    def _compacting(self, event: CompactionStarted) -> None:
        messages = counted(event.messages, "message")
        self._pace = self._pace or self.known_pace()
        about = self._pace * event.tokens if self._pace else None
        tokens = event.prompt_tokens or event.tokens
        self._screen.busy(f"folding {messages}, {tokens:,} tokens ({event.reason})", about=about)

    @_show.register
    def _compacted(self, event: CompactionFinished) -> None:
        self.compactions += 1
        if event.model_calls and event.tokens_before:
            self._pace = event.seconds / event.tokens_before
        if event.folded:
            self._screen.line(f"❖ {event}", "magenta")
        else:
            self._screen.notice(not_folded(event.reason))

    @_show.register
    def _fell_back(self, event: SummaryFellBack) -> None:
        self._screen.notice(str(event))

    @_show.register
    def _notice(self, event: Notice) -> None:
        self._screen.notice(str(event))

    @_show.register
    def _corrected(self, event: WindowCorrected) -> None:
        self._screen.notice(str(event))

    @_show.register
    def _ended(self, event: TurnEnded) -> None:
        self._screen.end_of_answer()
        if event.reason == "failed":
            self._screen.problem(f"{event}")
            if hint := self.remedy(event.error):
                self._screen.notice(hint)
            self._screen.line("/retry asks again, /undo takes your message back", "dim")
        elif event.reason != "done":
            self._screen.notice(str(event))
