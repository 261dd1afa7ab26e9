"""Serves a host without a session: its new messages are stored, and the lists that it gets are noted in the store.

Such a host (Hermes Agent, a loop of your own) passes its whole list in every call. The list is reconciled with the
stored branch, which gives every message its id; the window that a fold proposes is committed at once.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from operator import is_not
from typing import TYPE_CHECKING, Any, cast

from leporello.errors import MessageError, StaleWindowError
from leporello.messages import align, copied, repair
from leporello.messages.values import cleaned
from leporello.store import open_store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.lcm.compaction import Compaction, Outcome
    from leporello.lcm.settings import LCMSettings
    from leporello.messages import Message
    from leporello.store import Branch, Ingested, Store

MEMORY = ":memory:"
_LOOK_BACK = 128


class OwnStores:
    """The stores of an engine: the one it was given, opened at the first use, and one in memory."""

    def __init__(self, settings: LCMSettings, address: Store | str | os.PathLike[str] | None) -> None:
        self.address = address
        self._settings = settings
        self._opened: dict[str | os.PathLike[str], Store] = {}

    def of(self, conversation: str) -> Store:
        """Return the store of a conversation; one that is not to be kept has a store in memory."""
        address = MEMORY if self._settings.lcm.ignores(conversation) else self.address or MEMORY
        if not isinstance(address, (str, os.PathLike)):
            return address
        if address not in self._opened:
            self._opened[address] = open_store(address)
        return self._opened[address]

    def accepts(self, branch: Branch) -> bool:
        """Tell whether the engine works on a session's branch: it was given no other store, and is to keep this one."""
        if self._settings.lcm.ignores(branch.conversation):
            return False
        if self.address is None or self.address is branch.store:
            return True
        url = self.of(branch.conversation).url
        return url == branch.store.url and MEMORY not in url

    def close(self) -> None:
        """Close the stores that were opened here; one that was passed in stays open."""
        for store in self._opened.values():
            store.close()
        self._opened = {}


@dataclass(frozen=True, kw_only=True)
class UnnotedList:
    """A list of the host, and the one that it got, while the store could not be used; `places` maps them."""

    given: list[Message]
    made: list[Message]
    places: list[tuple[int, ...]]


class HostLists:
    """The lists of one conversation."""

    def __init__(self, branch: Branch) -> None:
        self._branch = branch
        self._looked_at = 0
        self.unnoted: list[UnnotedList] = []
        """Lists that are noted as soon as the store can be used, oldest first."""

    def ingest(self, messages: list[Any], *, full: bool = False) -> Ingested:
        """Store the new messages of a list; a value that is not JSON is stored as text."""
        while self.unnoted:
            self._note(self.unnoted[0])
            del self.unnoted[0]
        return self._ingested(self.readable(messages, full=full), full=full)

    def compact(self, compaction: Compaction, messages: list[Message], *, again: bool = True) -> Outcome:
        """Compact a list and commit the window; once more if another process has replaced the window meanwhile."""
        ingested = self.ingest(messages, full=True)
        outcome = compaction.fold(messages, [ingested.origins(index) for index in range(len(messages))])
        if outcome.proposal is not None:
            try:
                self._branch.commit(outcome.proposal, compaction.row(outcome))
            except StaleWindowError:
                if not again:
                    raise
                return self.compact(compaction, messages, again=False)
        self.handed_out(outcome.origins)
        return outcome

    def note_later(self, given: list[Message], made: list[Message]) -> None:
        """Keep a changed list that the host gets while the store cannot be used, to note it later."""
        if len(given) != len(made) or any(map(is_not, given, made)):
            self.unnoted.append(UnnotedList(given=copied(given), made=copied(made), places=align(given, made)))

    def readable(self, messages: list[Any], *, full: bool = False) -> list[Message]:
        """Return the list, repaired if it has something else than dicts."""
        return messages if self._are_messages(messages, full=full) else list(repair(messages).messages)

    def handed_out(self, messages: Sequence[tuple[Message, tuple[str, ...]]]) -> None:
        """Note the list that the host gets, with the ids of the stored messages behind each message."""
        self._branch.store.handed_out(self._branch.conversation, messages, **self._branch.here)

    def end(self) -> None:
        """Mark the end of the conversation, if anything of it is stored."""
        branch = self._branch
        if branch.store.info(branch.conversation, owner=branch.owner) is not None:
            branch.store.end(branch.conversation, owner=branch.owner)

    def _note(self, unnoted: UnnotedList) -> None:
        """Store a list, and note the one that the host got for it."""
        ingested = self._ingested(unnoted.given, full=True)
        origins = [tuple(i for place in places for i in ingested.origins(place)) for places in unnoted.places]
        self.handed_out(list(zip(unnoted.made, origins, strict=True)))

    def _ingested(self, messages: Sequence[Message], *, full: bool) -> Ingested:
        store, conversation = self._branch.store, self._branch.conversation
        try:
            return store.ingest(conversation, messages, full=full, **self._branch.here)
        except MessageError:
            plain = [{str(key): cleaned(value) for key, value in message.items()} for message in messages]
            return store.ingest(conversation, cast("list[Message]", plain), full=full, **self._branch.here)

    def _are_messages(self, messages: Sequence[Any], *, full: bool) -> bool:
        """Tell whether a list has dicts only; those of earlier turns are not checked again."""
        start = 0 if full or len(messages) < self._looked_at else max(0, self._looked_at - _LOOK_BACK)
        sound = all(isinstance(messages[index], dict) for index in range(start, len(messages)))
        self._looked_at = len(messages) if sound else 0
        return sound
