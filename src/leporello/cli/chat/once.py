"""One question and its answer, for scripts: the answer on the standard output, everything else on the other one."""

from __future__ import annotations

import errno
import os
import sys
import threading
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from leporello.agent.events import Retrying, TextPiece, ToolFinished, TurnEnded
from leporello.cli.chat.factory import model_note, opened
from leporello.cli.chat.greeting import resumed_line
from leporello.cli.chat.interrupts import interrupts, proper_end
from leporello.cli.chat.remedy import remedy
from leporello.cli.chat.screen import Screen
from leporello.cli.chat.warned import warnings_to
from leporello.cli.format import print_json
from leporello.events import CompactionFinished, Event, Notice, SummaryFellBack
from leporello.messages.visible import visible
from leporello.session.events import WindowCorrected

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello.cli.chat.factory import Setting
    from leporello.errors import LeporelloError
    from leporello.session import SessionUsage
    from leporello.store import Store

_PATIENCE_SECONDS: Final = 1.0
_CODES: Final = {"done": 0, "interrupted": 130}
_TOLD: Final = (CompactionFinished, Notice, Retrying, SummaryFellBack, WindowCorrected)


def answer(setting: Setting, question: str, *, as_json: bool) -> int:
    """Ask once, print the answer, and return the exit code: 0 answered, 1 failed, 130 interrupted."""
    try:
        return _answer(setting, question, as_json=as_json)
    except OSError as error:
        if error.errno != errno.EPIPE:  # the reader has closed the pipe, which is no error
            tell(
                f"leporello: the answer cannot be written: {error.strerror or error}; the conversation keeps what came"
            )
        _close_output()
        return 1


def _answer(setting: Setting, question: str, *, as_json: bool) -> int:
    turn = PrintedTurn(screen=None if as_json else Screen())
    with proper_end(), warnings_to(tell):
        conversation = opened(setting, on_event=turn.take, ready=wait_for)
        try:
            if note := model_note(setting):
                tell(note)
            if kept := resumed_line(conversation):
                tell(kept)
            conversation.note_settings()
            agent = conversation.agent
            turn.remedy = lambda error: remedy(error, conversation.route)
            with interrupts(agent.stop):
                for event in agent.ask(question):
                    turn.take(event)
            usage = agent.session.usage()
            turn.finish()
        finally:
            conversation.close()
    if as_json:
        print_json(turn.report(usage))
    return _CODES.get(turn.reason, 1)


def wait_for(store: Store) -> None:
    """Wait until the store can be written, and say so; a `StoreBusyError` when others keep it locked for too long.

    A question whose answer cannot be stored is not asked: it would be paid for, and missing in the conversation.
    """
    said = threading.Timer(_PATIENCE_SECONDS, tell, [f"waiting for {store.url}: another process may have it locked"])
    said.start()
    try:
        store.release("", token="")  # writes, and changes nothing
    finally:
        said.cancel()


def _close_output() -> None:
    """Let what could not be written go, or the interpreter tries, and complains, once more when it ends."""
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def tell(text: str) -> None:
    """Write a line for people, where it does not get into the answer."""
    click.echo(visible(text), err=True)


@dataclass(kw_only=True)
class PrintedTurn:
    """What happened; with a screen, the answer is written as it comes.

    `remedy` says what can be done about an error.
    """

    screen: Screen | None
    remedy: Callable[[LeporelloError | None], str] = lambda _: ""
    text: str = ""
    reason: str = "failed"
    error: str | None = None
    tools: list[dict[str, Any]] = field(default_factory=list)

    def take(self, event: Event) -> None:
        """Take note of an event."""
        if isinstance(event, TextPiece):
            self._say(event.text)
        elif isinstance(event, ToolFinished):
            self.tools.append({"name": event.call.name, "title": event.title, "failed": event.failed})
            self._pause()
            tell(f"⚙ {event}")
        elif isinstance(event, TurnEnded):
            self.reason, self.error = event.reason, str(event.error) if event.error else None
            if event.reason != "done":
                self._pause()
                tell(f"leporello: {event}")
                if hint := self.remedy(event.error):
                    tell(hint)
        elif isinstance(event, _TOLD):
            tell(str(event))

    def finish(self) -> None:
        """End the answer's last line."""
        self._pause()

    def report(self, usage: SessionUsage) -> dict[str, Any]:
        """Return everything that a program may want to know."""
        return {
            "session": usage.session_id,
            "model": usage.model,
            "engine": usage.engine,
            "answer": self.text,
            "ended": self.reason,
            "error": self.error,
            "tools": self.tools,
            "usage": asdict(usage),
        }

    def _say(self, text: str) -> None:
        self.text += text
        if self.screen is not None:
            self.screen.say(text)

    def _pause(self) -> None:
        if self.screen is not None:
            self.screen.end_of_answer()
            self.screen.console.file.flush()
