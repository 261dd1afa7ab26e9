"""The lists of a host that has no session: what is new in them is stored, and what the host gets is noted.

Such a host (Hermes Agent, a loop of one's own) hands over its whole list again and again. It is reconciled with the
stored branch, so every message has its id; the window that a fold proposes is committed at once.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from operator import is_not
from typing import TYPE_CHECKING, Any

from leporello.errors import MessageError
from leporello.messages import align, copied, repair
from leporello.messages.values import cleaned
from leporello.store import open_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.lcm.settings import Settings
    from leporello.messages import Message
    from leporello.store import Branch, Ingested, Store

MEMORY = ":memory:"
_LOOK_BACK = 128


class OwnStores:
    """The stores of an engine: the one it was given, opened at the first use, and one in memory."""

    def __init__(self, settings: Settings, address: Store | str | os.PathLike[str] | None) -> None:
        self.address = address
        self._settings = settings
        self._kept: Store | None = None
        self._unkept: Store | None = None

    def of(self, conversation: str) -> Store:
        """Return the store of a conversation; one that is not to be kept has a store in memory."""
        if self._settings.lcm.ignores(conversation):
            self._unkept = self._unkept or open_store(MEMORY)
            return self._unkept
        if self._kept is None:
            given = self.address
            named = given is None or isinstance(given, (str, os.PathLike))
            self._kept = open_store(given or MEMORY) if named else given  # type: ignore[arg-type, assignment]
        return self._kept  # type: ignore[return-value]

    def gives_way_to(self, branch: Branch) -> bool:
        """Tell whether a session's branch is to be used: there is no other store for this conversation."""
        if self._settings.lcm.ignores(branch.conversation):
            return False
        if self.address is None or self.address is branch.store:
            return True
        url = self.of(branch.conversation).url
        return url == branch.store.url and MEMORY not in url

    def close(self) -> None:
        """Give back the stores that were opened here; one that was handed over stays open."""
        if self._unkept is not None:
            self._unkept.close()
        if self._kept is not None and self._kept is not self.address:
            self._kept.close()
        self._kept = self._unkept = None


@dataclass(frozen=True, kw_only=True)
class Owed:
    """A list that the host handed over while the store could not be used, and what it got: what was made of what."""

    given: list[Message]
    made: list[Message]
    places: list[tuple[int, ...]]


class HostLists:
    """The lists of one conversation."""

    def __init__(self, branch: Branch) -> None:
        self._branch = branch
        self._looked_at = 0
        self.owed: list[Owed] = []
        """What the store is to learn as soon as it can be used, oldest first."""

    def take(self, messages: Sequence[Message], *, full: bool = False) -> Ingested:
        """Store what is new in a list.

        A value that cannot be stored as it is, because it is not JSON, is stored as the text it amounts to.
        """
        while self.owed:
            self._note(self.owed[0])
            del self.owed[0]
        return self._taken(messages, full=full)

    def owe(self, given: list[Message], made: list[Message]) -> None:
        """Remember a list that the host gets while the store cannot be used, to be noted later; most are as given."""
        if len(given) != len(made) or any(map(is_not, given, made)):
            self.owed.append(Owed(given=copied(given), made=copied(made), places=align(given, made)))

    def readable(self, messages: list[Any], *, full: bool = False) -> list[Message]:
        """Return the list as it is; one that holds something else than messages, as a repair reads it."""
        return messages if self._are_messages(messages, full=full) else list(repair(messages).messages)

    def handed_out(self, messages: Sequence[tuple[Message, tuple[str, ...]]]) -> None:
        """Note the list that the host gets, each message with the stored ones it stands for."""
        self._branch.store.handed_out(self._branch.conversation, messages, **self._branch.here)

    def end(self) -> None:
        """Mark the end of the conversation, if anything of it is stored."""
        branch = self._branch
        if branch.store.info(branch.conversation, owner=branch.owner) is not None:
            branch.store.end(branch.conversation, owner=branch.owner)

    def _note(self, owed: Owed) -> None:
        """Store the list as it came, and note what was handed out for it."""
        ingested = self._taken(owed.given, full=True)
        origins = [tuple(i for place in places for i in ingested.origins(place)) for places in owed.places]
        self.handed_out(list(zip(owed.made, origins, strict=True)))

    def _taken(self, messages: Sequence[Message], *, full: bool) -> Ingested:
        try:
            return self._ingested(messages, full=full)
        except MessageError:
            plain = [{str(key): cleaned(value) for key, value in message.items()} for message in messages]
            return self._ingested(plain, full=full)

    def _ingested(self, messages: Sequence[Message], *, full: bool) -> Ingested:
        return self._branch.store.ingest(self._branch.conversation, messages, full=full, **self._branch.here)

    def _are_messages(self, messages: Sequence[Any], *, full: bool) -> bool:
        """Tell whether all of a list are messages; what was looked at in an earlier turn is not looked at again."""
        start = 0 if full or len(messages) < self._looked_at else max(0, self._looked_at - _LOOK_BACK)
        sound = all(isinstance(messages[index], dict) for index in range(start, len(messages)))
        self._looked_at = len(messages) if sound else 0
        return sound
