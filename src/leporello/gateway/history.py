"""The history in a client's request, and the hashes by which it is recognised.

The hash of a message is computed from it and all messages before it, in canonical form (`leporello.messages.spoken`),
so equal hashes are equal histories. System messages have none, as clients change them between requests. The key, the
API and the name of the conversation go into every hash.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from leporello.messages import leading_systems, merged, role_of, spoken, text_of
from leporello.messages.types import ROLES, SYSTEM_ROLES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.messages import Message

_VERSION: Final = "1"  # of the canonical form of messages: hashes of another version are not found
_HASH_BYTES: Final = 16
_ANSWER: Final = b"answer"
_UNANSWERED: Final = b"unanswered"


@dataclass(frozen=True, kw_only=True)
class History:
    """The system prompt, the messages, and a hash for each message that is no system message."""

    systems: list[Message]
    messages: list[Message]
    hashes: list[bytes]
    scope: bytes = field(repr=False)
    places: list[int] = field(repr=False)
    """The index in `messages` of each hashed one."""
    answers: list[int] = field(repr=False)
    """The number of hashed messages up to and including each answer."""
    is_readable: bool
    """Whether all roles are known; a request with others is passed on, but not stored."""

    @property
    def unanswered(self) -> bytes:
        """The hash by which the same request is recognised if it got no answer."""
        return extended(self.hashes[-1], _UNANSWERED)

    def at(self, count: int) -> Message:
        """Return the last of the first `count` hashed messages."""
        return self.messages[self.places[count - 1]]

    def before(self, count: int) -> list[Message]:
        """Return the messages up to a hashed one, that included."""
        return self.messages[: self.places[count - 1] + 1] if count else []

    def after(self, count: int, until: int | None = None) -> list[Message]:
        """Return the messages behind the first `count` hashed ones, up to another one or to the end."""
        first = self.places[count - 1] + 1 if count else 0
        end = None if until is None or until >= len(self.places) else self.places[until - 1] + 1
        return self.messages[first:end]

    def answered(self, answer: Message) -> tuple[bytes, ...]:
        """Return the hashes of this history with its answer, and of the answer alone.

        An answer that goes on from the assistant's last words, as those that the client began itself, comes back as one
        message with them, its parts side by side or its text in one; both have hashes too.
        """
        known = extended(self.hashes[-1], _said(answer)), self.alone(answer)
        last = self.at(len(self.hashes))
        if role_of(last) != "assistant" or last.get("tool_calls"):
            return known
        before = self.hashes[-2] if len(self.hashes) > 1 else self.scope
        whole: Message = {**answer, "content": text_of(last) + text_of(answer)}
        together = extended(before, _said(merged([last, answer]))), extended(before, _said(whole)), self.alone(whole)
        return *known, *dict.fromkeys(together)

    def alone(self, answer: Message) -> bytes:
        """Return the hash of an answer without the messages before it."""
        return extended(self.scope, _ANSWER, _said(answer))


def parse(messages: Sequence[Message], *, owner: str = "", dialect: str = "", name: str = "") -> History:
    """Read the messages of a request."""
    start = leading_systems(messages)
    rest = list(messages[start:])
    roles = [role_of(message) for message in rest]
    places = [at for at, role in enumerate(roles) if role not in SYSTEM_ROLES]
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
        answers=[count for count, at in enumerate(places, 1) if roles[at] == "assistant"],
        is_readable=ROLES.issuperset(roles),
    )


def extended(hash_: bytes, *said: bytes) -> bytes:
    """Return the hash of a history with these bytes added."""
    return blake2b(hash_ + b"".join(said), digest_size=_HASH_BYTES).digest()


def _said(message: Message) -> bytes:
    return spoken(message).encode("utf-8", "surrogatepass")
