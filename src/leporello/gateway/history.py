"""The history that a client sends, longer each time, and the hashes that it is recognised by.

The hash of a message holds all messages before it, as they were said (`leporello.messages.spoken`): equal hashes are
equal histories. System messages have none: they change between requests, and the conversation is the same. Everything
is hashed for one client: whose key it is, which API it speaks and the name that it gave the conversation.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from leporello.messages import is_system, leading_systems, role_of, spoken
from leporello.messages.types import ROLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.messages import Message

_VERSION: Final = "1"  # of the form in which messages are compared: hashes of another version are not found
_HASH_BYTES: Final = 16
_ANSWER: Final = b"answer"
_UNANSWERED: Final = b"unanswered"


@dataclass(frozen=True, kw_only=True)
class History:
    """What a client sent: its system prompt, the messages, and the hash of the history up to each spoken one."""

    systems: list[Message]
    messages: list[Message]
    hashes: list[bytes]
    scope: bytes = field(repr=False)
    places: list[int] = field(repr=False)
    """Where in `messages` each hashed one stands."""
    answers: list[int] = field(repr=False)
    """How many hashed messages there are up to each answer, that included."""

    @property
    def is_readable(self) -> bool:
        """Whether all who speak are known; a conversation with others in it can be passed on, but not kept."""
        return all(role_of(message) in ROLES for message in self.messages)

    @property
    def unanswered(self) -> bytes:
        """The hash of a request that got no answer, which only the same request goes on from."""
        return extended(self.hashes[-1], _UNANSWERED)

    def at(self, count: int) -> Message:
        """Return the hashed message that is the last of so many."""
        return self.messages[self.places[count - 1]]

    def before(self, count: int) -> list[Message]:
        """Return the messages up to a hashed one, that included."""
        return self.messages[: self.places[count - 1] + 1] if count else []

    def after(self, count: int, until: int | None = None) -> list[Message]:
        """Return what stands behind so many hashed messages, up to another one or to the end."""
        first = self.places[count - 1] + 1 if count else 0
        end = None if until is None or until >= len(self.places) else self.places[until - 1] + 1
        return self.messages[first:end]

    def answered(self, answer: Message) -> tuple[bytes, bytes]:
        """Return the hashes of this history with its answer, and of the answer alone."""
        return extended(self.hashes[-1], _said(answer)), self.alone(answer)

    def alone(self, answer: Message) -> bytes:
        """Return the hash of an answer by itself, whatever came before it."""
        return extended(self.scope, _ANSWER, _said(answer))


def parse(messages: Sequence[Message], *, owner: str = "", dialect: str = "", name: str = "") -> History:
    """Read the messages of a request."""
    start = leading_systems(messages)
    rest = list(messages[start:])
    places = [at for at, message in enumerate(rest) if not is_system(message)]
    scope = extended(b"", f"{_VERSION}\0{owner}\0{dialect}\0{name}".encode("utf-8", "surrogatepass"))
    hashes = []
    newest = scope
    for at in places:
        newest = extended(newest, _said(rest[at]))
        hashes.append(newest)
    return History(
        systems=list(messages[:start]),
        messages=rest,
        hashes=hashes,
        scope=scope,
        places=places,
        answers=[count for count, at in enumerate(places, 1) if role_of(rest[at]) == "assistant"],
    )


def extended(hash_: bytes, *said: bytes) -> bytes:
    """Return the hash of a history that goes on with this."""
    return blake2b(hash_ + b"".join(said), digest_size=_HASH_BYTES).digest()


def _said(message: Message) -> bytes:
    return spoken(message).encode("utf-8", "surrogatepass")
