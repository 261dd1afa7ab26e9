"""The window: one entry per message, with its tokens and the stored messages behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from leporello.messages import is_system, leading_systems, role_of, text_of, without_private
from leporello.messages.custom_calls import with_custom_calls
from leporello.messages.fixed import FIXED_TEXTS
from leporello.tokens import count_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from leporello.messages import Message
    from leporello.store import WindowItem

NOT_SENT = frozenset({"timestamp", "annotations"})  # fields that are kept, but that providers do not take back


@dataclass(eq=False, kw_only=True, slots=True)
class Source:
    """A message as the caller or the provider gave it, and its id once it is stored.

    `prompt` is set when it replaces the system prompt; `known` are the hashes by which the gateway recognises a history
    that ends with it.
    """

    message: Message
    id: str | None = None
    prompt: bool = False
    known: tuple[bytes, ...] = ()

    def entry(self) -> Entry:
        """Return the entry that shows the message as it was given."""
        return entry_of(self.message, sources=[self])


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Entry:
    """One message of the window.

    `message` is for the engine, `wire` for the provider: without private keys, cache markers and fields that providers
    do not take. `sources` are the messages behind it: usually one, several when a repair joined them, none when an
    engine or a repair wrote it. `stored_as` are its items in the store's window, if it was loaded or proposed.
    """

    message: Message
    wire: Message
    tokens: int
    sources: tuple[Source, ...] = ()
    stored_as: tuple[WindowItem, ...] = ()

    @property
    def role(self) -> str:
        """The role of the message."""
        return role_of(self.message)

    @property
    def id(self) -> str | None:
        """The id of the first message behind this entry."""
        return self.sources[0].id if self.sources else None

    @property
    def source_ids(self) -> tuple[str | None, ...]:
        """The ids of the messages behind this entry; None for one that is not stored yet."""
        return tuple(one.id for one in self.sources)

    @property
    def source_messages(self) -> list[Message]:
        """The messages behind this entry, as they were given."""
        return [one.message for one in self.sources]

    @property
    def is_user(self) -> bool:
        """Whether this is a message of the user, and not one that an engine or a repair wrote."""
        return bool(self.sources) and self.role == "user"

    @property
    def is_block(self) -> bool:
        """Whether this shows nodes of the lossless engine."""
        return bool(self.stored_as) and "n" in self.stored_as[0]

    @property
    def is_summary(self) -> bool:
        """Whether an engine wrote this; a repair writes only its fixed texts."""
        return not self.sources and text_of(self.message) not in FIXED_TEXTS

    def items(self) -> tuple[WindowItem, ...]:
        """Return the items of this entry in the store's window."""
        if self.stored_as:
            return self.stored_as
        if not self.sources:
            bare = self.message.keys() == {"role", "content"}
            item: WindowItem = {"t": self.message.get("content"), "role": self.role}
            return (item if bare else {**item, "as": self.message},)
        first, *others = self.sources
        shown: WindowItem = {"m": cast("str", first.id)}  # only what is stored is written
        if self.message is not first.message:
            shown["as"] = self.message
        hidden: list[WindowItem] = [{"m": cast("str", other.id), "as": None} for other in others]
        return (shown, *hidden)


def entry_of(message: Message, *, sources: Sequence[Source] = (), stored_as: Iterable[WindowItem] = ()) -> Entry:
    """Return the entry of a message."""
    wire = without_private(with_custom_calls(message))
    if not NOT_SENT.isdisjoint(wire):
        wire = {key: value for key, value in wire.items() if key not in NOT_SENT}
    tokens = count_message(message)
    return Entry(message=message, wire=wire, tokens=tokens, sources=tuple(sources), stored_as=tuple(stored_as))


class Window:
    """The entries in order, with lists of their messages and tokens, which are not made anew for each turn."""

    def __init__(self, entries: Iterable[Entry] = ()) -> None:
        self.entries: list[Entry] = []
        self.messages: list[Message] = []
        self.wire: list[Message] = []
        self.weights: list[int] = []
        self.tokens: int = 0
        self.rewritten: int = 0
        """The first index that was replaced since the last request was made.

        What makes the next one, `openai_request` or a converter, reads it and sets it to the end.
        """
        self._systems = 0
        self._engine_messages: list[Message] = []
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
            self._systems += is_system(entry.message)

    def replace(self, start: int, entries: Sequence[Entry], first: int) -> None:
        """Replace the entries from `start` on; those before `first` have the same content as before."""
        self.rewritten = min(self.rewritten, first)
        if start:
            del self._engine_messages[start:]
        else:
            self._engine_messages = []
        self.tokens -= self.tokens_from(start)
        self._systems -= sum(map(is_system, self.messages[start:]))
        del self.entries[start:], self.messages[start:], self.wire[start:], self.weights[start:]
        self.extend(entries)

    def engine_messages(self, copy: Callable[[Message], Message]) -> list[Message]:
        """Return a list of copies for the engine, which is kept from call to call."""
        known = len(self._engine_messages)
        if known > len(self.messages):
            self._engine_messages = [copy(message) for message in self.messages]
        elif known < len(self.messages):
            self._engine_messages += [copy(message) for message in self.messages[known:]]
        return self._engine_messages

    def tokens_from(self, start: int) -> int:
        """Return the tokens of the entries from an index on."""
        return sum(self.weights[start:])

    def newest_user(self) -> int | None:
        """Return the index of the newest message of the user."""
        return next((at for at in range(len(self.entries) - 1, -1, -1) if self.entries[at].is_user), None)

    def systems(self) -> int:
        """Return the number of leading system messages."""
        return leading_systems(self.messages)

    @property
    def has_notes(self) -> bool:
        """Whether there are system messages between others."""
        return self._systems > self.systems()
