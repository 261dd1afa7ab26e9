"""What a turn asks to be done: every contact with the engine and the store, as data.

The turn (`leporello.session.turn`) yields these and is sent back what came of them; whoever drives it decides in which
thread, and against which engine and store, they are done. Where a step shows the engine the list, `stored` tells that
all of it is in the session's store.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.engine import Usage
    from leporello.events import Event
    from leporello.messages import Message, ToolCall
    from leporello.session.conversation import Route
    from leporello.session.lines import Line
    from leporello.store import Request, WindowItem


@dataclass(frozen=True, kw_only=True)
class Append:
    """Store messages, together with the row of the request that they answer; the answer is their ids.

    With `prompt` they are the new system prompt.
    """

    messages: Sequence[Message]
    request: Request | None = None
    prompt: bool = False


@dataclass(frozen=True, kw_only=True)
class TakeBack:
    """Fork the conversation before a stored message, and go on on the fork; the answer is its branch."""

    first: str


@dataclass(frozen=True, kw_only=True)
class Newest:
    """Ask for the id of the newest message that is stored: another process may have said something."""


@dataclass(frozen=True, kw_only=True)
class Pinned:
    """Ask for the pinned messages on this branch, oldest first."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """Read the branch as it stands in the store."""


@dataclass(frozen=True, kw_only=True)
class HandOut:
    """Tell the store what each line of the window stands for, before an engine hands it the list to be stored."""

    lines: Sequence[Line]


@dataclass(frozen=True, kw_only=True)
class Journal:
    """Write down a request."""

    request: Request


@dataclass(frozen=True, kw_only=True)
class Lease:
    """Take the right to compact this conversation, for `seconds` at a time; the answer tells whether it was free.

    `patience`: how many seconds to wait for whoever has it.
    """

    seconds: float
    patience: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Release:
    """Give the right back."""


@dataclass(frozen=True, kw_only=True)
class Version:
    """Ask which version the store's window has: it changes when an engine saves the window itself."""


@dataclass(frozen=True, kw_only=True)
class Save:
    """Replace the store's window, unless the engine did so itself since `version`; the answer is what it has now."""

    version: int
    items: Sequence[WindowItem]
    request: Request


@dataclass(frozen=True, kw_only=True)
class Offer:
    """Put the engine's tools behind the caller's; the answer is the list and the names that the engine answers."""

    tools: Sequence[dict[str, Any]]


@dataclass(frozen=True, kw_only=True)
class Preflight:
    """Ask the engine about the messages: should_compress_preflight."""

    messages: list[Message]
    stored: bool


@dataclass(frozen=True, kw_only=True)
class ShouldCompress:
    """Ask the engine about the count: should_compress."""

    tokens: int


@dataclass(frozen=True, kw_only=True)
class Defer:
    """Ask the engine whether it would rather wait for the provider's own count."""

    tokens: int


@dataclass(frozen=True, kw_only=True)
class Compress:
    """Let the engine compress; the answer is whatever it returned, and its report if it made one.

    `written` are those of the messages that nobody said: an engine, or a repair, wrote them.
    """

    messages: list[Message]
    written: list[Message]
    tokens: int
    focus: str | None
    force: bool


@dataclass(frozen=True, kw_only=True)
class CompressBuiltIn:
    """Let the built-in engine compress in the place of the session's own; the answer is the same as to Compress."""

    messages: list[Message]
    written: list[Message]
    tokens: int
    focus: str | None
    force: bool
    route: Route


@dataclass(frozen=True, kw_only=True)
class Used:
    """Hand the provider's count to the engine: update_from_response."""

    usage: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Complete:
    """Tell the engine that a model call is over: on_turn_complete."""

    messages: list[Message]
    usage: Usage | None
    stored: bool


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Let the engine answer a call of one of its tools; the answer is a JSON string."""

    call: ToolCall
    messages: list[Message]
    stored: bool


@dataclass(frozen=True, kw_only=True)
class Adopt:
    """Tell the engine its model and window: update_model."""

    route: Route


@dataclass(frozen=True, kw_only=True)
class Start:
    """Begin or resume a conversation: on_session_start."""

    session_id: str


@dataclass(frozen=True, kw_only=True)
class End:
    """End a conversation: on_session_end, and in the store."""

    session_id: str
    messages: list[Message]
    stored: bool


@dataclass(frozen=True, kw_only=True)
class Reset:
    """Let the engine forget the conversation that ended: on_session_reset."""


@dataclass(frozen=True, kw_only=True)
class Tell:
    """Report what happened."""

    event: Event


Showing: TypeAlias = Preflight | Complete | Answer | End
Step: TypeAlias = (
    Append
    | TakeBack
    | Newest
    | Pinned
    | Load
    | HandOut
    | Journal
    | Lease
    | Release
    | Version
    | Save
    | Offer
    | Preflight
    | ShouldCompress
    | Defer
    | Compress
    | CompressBuiltIn
    | Used
    | Complete
    | Answer
    | Adopt
    | Start
    | End
    | Reset
    | Tell
)
