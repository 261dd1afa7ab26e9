"""What happens while an agent works: pieces of the answer, tools, questions to the user, and how the turn ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from leporello.events import Event

if TYPE_CHECKING:
    from leporello.errors import LeporelloError
    from leporello.messages import ToolCall

End: TypeAlias = Literal["done", "interrupted", "failed", "limit"]


@dataclass(frozen=True, kw_only=True)
class TextPiece(Event):
    """The next piece of the answer, as the model wrote it; make it `visible` before a terminal gets it."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, kw_only=True)
class ThinkingPiece(Event):
    """The next piece of what the model thinks before it answers."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, kw_only=True)
class ConfirmationWanted(Event):
    """A tool is about to do something that the user must agree to; `title` and `detail` are safe to show."""

    call: ToolCall
    title: str
    detail: str

    def __str__(self) -> str:
        return f"{self.title}?"


@dataclass(frozen=True, kw_only=True)
class ToolStarted(Event):
    """A tool begins."""

    call: ToolCall
    title: str

    def __str__(self) -> str:
        return self.title


@dataclass(frozen=True, kw_only=True)
class ToolOutput(Event):
    """Lines that a running command wrote, as they came; make them `visible` before a terminal gets them."""

    call: ToolCall
    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, kw_only=True)
class ToolFinished(Event):
    """A tool came to an end; `text` is what the model is told, safe to show."""

    call: ToolCall
    title: str
    text: str
    failed: bool
    seconds: float

    def __str__(self) -> str:
        return f"{self.title}: {'failed' if self.failed else 'done'} in {self.seconds:.1f} s"


@dataclass(frozen=True, kw_only=True)
class Retrying(Event):
    """The provider could not answer; it is asked again after `seconds`, as `attempt` of at most `attempts`."""

    error: str
    seconds: float
    attempt: int
    attempts: int

    def __str__(self) -> str:
        return f"{self.error.rstrip('.')}; asking again in {self.seconds:.0f} s (attempt {self.attempt})"


@dataclass(frozen=True, kw_only=True)
class TurnEnded(Event):
    """The agent has nothing more to do, was interrupted, failed (`error`), or used up its requests for one turn."""

    reason: End
    requests: int
    error: LeporelloError | None = None

    def __str__(self) -> str:
        told = {
            "done": "done",
            "interrupted": "interrupted; the conversation goes on with your next message",
            "limit": f"stopped after {self.requests} requests; say so if it shall go on",
        }
        return told.get(self.reason, str(self.error))
