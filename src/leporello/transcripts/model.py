"""What a file of conversations holds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from leporello.messages import Message


@dataclass(frozen=True, kw_only=True)
class RecordedCompaction:
    """A compaction that a log records: it stands before `messages[at]`; `summary` is what was written then."""

    at: int
    summary: str = ""
    tokens_before: int = 0
    trigger: str = ""


@dataclass(frozen=True, kw_only=True)
class Transcript:
    """One conversation in OpenAI's format; `timestamp` of a message is when it was said, where the file knows it.

    Summaries that a program put in the place of messages are not among `messages` but in `compactions`. `parent` names
    the conversation that a sub-agent worked for. `left_out` counts the records of a database that are no messages of
    this conversation, by what they are: together with `messages`, without a system prompt that stands elsewhere in the
    database, they are all of its records.
    """

    name: str
    format: str
    messages: list[Message]
    compactions: tuple[RecordedCompaction, ...] = ()
    tools: tuple[dict[str, Any], ...] = ()
    model: str = ""
    parent: str = ""
    meta: dict[str, Any] = field(default_factory=dict)
    left_out: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Skipped:
    """Something in a file that could not be read and was left out; `line` is 0 where a file has no lines."""

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        place = f"{self.file}, line {self.line}" if self.line else self.file
        return f"{place}: {self.reason}"


OnSkip: TypeAlias = Callable[[Skipped], None]


def seconds_of(message: Message) -> float | None:
    """Return when a message was said, in seconds since the epoch; None when it is unknown."""
    return seconds(message.get("timestamp"))


def seconds(time: Any) -> float | None:
    """Read a time: ISO-8601, or a number of seconds or milliseconds."""
    if isinstance(time, bool):
        return None
    if isinstance(time, (int, float)):
        return (time / 1_000 if time > _MILLISECONDS else float(time)) if abs(time) < _NO_TIME else None
    if not isinstance(time, str):
        return None
    try:
        read = datetime.fromisoformat(time)
    except ValueError:
        return None
    return (read if read.tzinfo else read.replace(tzinfo=UTC)).timestamp()


_MILLISECONDS = 100_000_000_000  # as seconds, a year after 5000
_NO_TIME = 1_000 * _MILLISECONDS


def as_text(value: Any) -> str:
    """Return what names a kind, a role or an id; "" for what is no text, as a strange file may have anything there."""
    return value if isinstance(value, str) else ""


def as_count(value: Any) -> int:
    """Return a count; 0 for what is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < _MILLISECONDS else 0


def timed(message: Message, time: Any) -> Message:
    """Return a message with its time; as it is when there is none."""
    return {**message, "timestamp": time} if seconds(time) is not None else message
