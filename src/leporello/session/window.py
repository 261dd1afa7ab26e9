"""The window as the session holds it: one entry per message, with how the store knows it and what it weighs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from leporello.messages import leading_systems, role_of, text_of, without_private
from leporello.messages.fixed import FIXED_TEXTS
from leporello.tokens import count_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from leporello.messages import Message
    from leporello.store import WindowItem

NOT_SENT = frozenset({"timestamp", "annotations"})  # fields that are kept, but that providers do not take back


@dataclass(eq=False, kw_only=True, slots=True)
class Source:
    """A message that somebody said, and its id once it is stored; `prompt` when it replaces the system prompt.

    `known` are the hashes by which a client's history up to it is recognised.
    """

    message: Message
    id: str | None = None
    prompt: bool = False
    known: tuple[bytes, ...] = ()


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Entry:
    """One message of the window.

    `message` is what the engine sees, `wire` the same as it goes to the provider: without private keys, cache markers
    and fields that providers do not take. `sources` are the messages that
    it shows: usually one, several when a repair joined them, none when an engine or a repair wrote it. `stored_as` is
    how the store's window writes an entry that was read from there or proposed.
    """

    message: Message
    wire: Message
    tokens: int
    sources: tuple[Source, ...] = ()
    stored_as: tuple[WindowItem, ...] = ()

    @property
    def role(self) -> str:
        """Who speaks."""
        return role_of(self.message)

    @property
    def id(self) -> str | None:
        """The stored message that this entry shows."""
        return self.sources[0].id if self.sources else None

    @property
    def source_ids(self) -> tuple[str | None, ...]:
        """The stored messages that this entry stands for; None is one that waits for the store."""
        return tuple(one.id for one in self.sources)

    @property
    def source_messages(self) -> list[Message]:
        """The messages that this entry shows, as they were said."""
        return [one.message for one in self.sources]

    @property
    def is_user(self) -> bool:
        """Whether a user really said this."""
        return bool(self.sources) and self.role == "user"

    @property
    def is_block(self) -> bool:
        """Whether this shows nodes of an engine that keeps its summaries in the store."""
        return bool(self.stored_as) and "n" in self.stored_as[0]

    @property
    def is_summary(self) -> bool:
        """Whether an engine wrote this, and not a repair one of its fixed lines."""
        return not self.sources and text_of(self.message) not in FIXED_TEXTS

    def items(self) -> tuple[WindowItem, ...]:
        """Return how the store's window writes this entry."""
        if self.stored_as:
            return self.stored_as
        if not self.sources:
            bare = self.message.keys() == {"role", "content"}
            item: WindowItem = {"t": self.message.get("content"), "role": self.role}
            return (item if bare else {**item, "as": self.message},)
        first, *others = self.sources
        shown: WindowItem = {"m": first.id} if self.message is first.message else {"m": first.id, "as": self.message}
        return (shown, *({"m": other.id, "as": None} for other in others))


def entry_of(message: Message, *, sources: Sequence[Source] = (), stored_as: Iterable[WindowItem] = ()) -> Entry:
    """Return the entry of a message."""
    wire = without_private(message)
    if not NOT_SENT.isdisjoint(wire):
        wire = {key: value for key, value in wire.items() if key not in NOT_SENT}
    tokens = count_message(message)
    return Entry(message=message, wire=wire, tokens=tokens, sources=tuple(sources), stored_as=tuple(stored_as))


class Window:
    """The entries in order, with their messages and their weight at hand: what a turn costs does not grow with them."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.entries: list[Entry] = []
        self.messages: list[Message] = []
        self.wire: list[Message] = []
        self.weights: list[int] = []
        self.tokens = 0
        self.rewritten = 0
        """The first entry that was replaced since the last request was made; whoever makes it sets it to the end."""
        self._shown: list[Message] = []
        self.extend(entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def extend(self, entries: Iterable[Entry]) -> None:
        """Add entries at the end."""
        for entry in entries:
            self.entries.append(entry)
            self.messages.append(entry.message)
            self.wire.append(entry.wire)
            self.weights.append(entry.tokens)
            self.tokens += entry.tokens

    def replace(self, start: int, entries: Sequence[Entry], first: int) -> None:
        """Put other entries in the place of those from `start` on; up to `first` they say the same as before."""
        self.rewritten = min(self.rewritten, first)
        if start:
            del self._shown[start:]
        else:
            self._shown = []
        self.tokens -= self.tokens_from(start)
        del self.entries[start:], self.messages[start:], self.wire[start:], self.weights[start:]
        self.extend(entries)

    def shown(self, copy: Callable[[Message], Message]) -> list[Message]:
        """Return the live list for the engine: of copies, so that what is done to it does not reach the window."""
        known = len(self._shown)
        if known > len(self.messages):
            self._shown = [copy(message) for message in self.messages]
        elif known < len(self.messages):
            self._shown += [copy(message) for message in self.messages[known:]]
        return self._shown

    def tokens_from(self, start: int) -> int:
        """Return the weight of the entries from a place on."""
        return sum(self.weights[start:])

    def newest_user(self) -> int | None:
        """Return the place of the newest message that a user really said."""
        return next((at for at in range(len(self.entries) - 1, -1, -1) if self.entries[at].is_user), None)

    def systems(self) -> int:
        """Return how many system messages stand at the front."""
        return leading_systems(self.messages)
