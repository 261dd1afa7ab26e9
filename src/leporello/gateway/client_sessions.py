"""The sessions of the drop-in endpoints: a request claims the one that it continues, and releases it.

Which one that is is looked up in the store (`leporello.gateway.recognition`), so any process serves any conversation.
The pool of open sessions only saves opening them again; its size does not depend on the number of conversations.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, dropwhile, takewhile
from typing import TYPE_CHECKING, Any, Final, TypeVar

from leporello.gateway.client_session import ClientSession
from leporello.gateway.errors import Refused
from leporello.gateway.limits import ThreadLimits, shielded
from leporello.gateway.own_compaction import replaced_branch
from leporello.gateway.pool import MOST_BYTES, Pool
from leporello.gateway.recognition import Recognised, recognise
from leporello.messages import is_system, spoken
from leporello.session.factory import new_id
from leporello.session.worker import Worker
from leporello.store import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leporello.gateway.history import History
    from leporello.gateway.limits import ThreadLimit
    from leporello.messages import Dialect
    from leporello.store import ConversationInfo, KnownPlace, Store

    Opener = Callable[["BranchAddress", str, ThreadLimit], ClientSession]
    Key = tuple[str, str, int]

T = TypeVar("T")
MOST_OPEN: Final = 512
"""How many sessions are kept open; the least recently used one is closed first."""

_META: Final = "gateway"


@dataclass(frozen=True, kw_only=True)
class BranchAddress:
    """A branch of a conversation, with its owner and dialect; `named` if the client named the conversation."""

    owner: str
    dialect: Dialect
    conversation: str
    branch: int
    named: bool
    parent: int | None = None
    """The branch that it was just forked from."""


class HeldSession:
    """An open session in the pool, with the thread that makes every call on it."""

    def __init__(self, address: BranchAddress, threads: ThreadLimit) -> None:
        self.address = address
        self._session: ClientSession | None = None
        self.used: float = 0.0
        self.weight = 0
        """The bytes of its newest request, about as much as it keeps in memory."""
        self.busy = True
        self.held_as: Key = self.key
        """Its key in the pool."""
        self.closed: bool = False
        self.spoilt = False
        """Whether it has messages that the store does not have; the next request must open it again."""
        self._threads = threads
        self._worker = Worker()

    @property
    def owner(self) -> str:
        """Whose it is."""
        return self.address.owner

    @property
    def key(self) -> Key:
        """Owner, conversation and branch, which may have been forked since it was opened."""
        branch = self._session.branch if self._session else self.address.branch
        return self.address.owner, self.address.conversation, branch

    @property
    def tip(self) -> str | None:
        """The id of the message behind which the next one is stored."""
        return self._session.tip if self._session else None

    @property
    def with_tools(self) -> bool:
        """Whether the model may call tools of the engine."""
        return self._session is not None and self._session.with_tools

    @property
    def context_length(self) -> int:
        """The model's window in tokens; 0 before it is opened."""
        return self._session.context_length if self._session else 0

    async def open(self, make: Callable[[], ClientSession], tip: str) -> bool:
        """Open the conversation in its thread, ready to go on behind a message; False when it does not end there."""

        def opened() -> bool:
            self._session = make()
            return self._session.stand_behind(tip)

        try:
            return await self.compute(opened)
        except BaseException:
            if self._session is None:
                self._worker.stop()
            raise

    async def call(self, method: Callable[..., T], *args: Any) -> T:
        """Call a method of the session, as `held.call(ClientSession.add, added)`."""
        return await self.compute(method, self._session, *args)

    async def compute(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function in the thread of the session."""
        return await self._threads.run(partial(function, *args), self._worker)

    def abandon(self) -> None:
        """Close it without storing anything, after the call that is running in its thread."""
        if self._session is not None:
            self._worker.submit(self._session.abandon)
        self._worker.stop()

    async def close(self) -> None:
        """End the session and its thread."""
        self.closed = True
        try:
            if self._session is not None:
                await self.call(ClientSession.close)
        finally:
            self._worker.stop()


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A session that one request uses alone, and how many messages of the request's history it has."""

    session: HeldSession
    count: int = 0
    rewritten: bool = False
    joined: bool = False
    """Whether its history was recognised; else it begins a conversation or a root, or repeats a failed request."""

    takes_head: bool = False
    """Whether its branch becomes the head of the conversation once it is answered."""

    def known_by(self, hash_: bytes) -> list[bytes]:
        """Return the hashes to store before the request is answered: none for a new conversation without a name."""
        return [hash_] if self.joined or self.session.address.named else []


class ClientSessions:
    """The sessions of all clients."""

    def __init__(
        self,
        store: Store,
        opener: Opener,
        *,
        thread_limits: ThreadLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
        most_open: int = MOST_OPEN,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._store = store
        self._opener = opener
        self._thread_limits = thread_limits or ThreadLimits()
        self.pool: Pool[Key, HeldSession] = Pool(most_open=most_open, most_bytes=most_bytes, clock=clock)
        self._numbers = count(1)

    async def claim(
        self,
        history: History,
        *,
        owner: str,
        dialect: Dialect,
        name: str,
        model: str,
        found: Recognised | None = None,
        head: bool = True,
    ) -> Claim:
        """Return the session that a request continues, for this request alone until `release`.

        `found` is the place where it continues, if the client named it; `head` tells whether a new root in the
        conversation of that name becomes its head.
        """
        found, replaced = await self._look_up(history, owner, name, found)
        to = partial(BranchAddress, owner=owner, dialect=dialect, named=bool(name))
        for place in found.places:
            held = await self._on_tip(to(conversation=place.conversation, branch=place.branch), place, model)
            if held is not None:
                return self._claimed(held, found)
        if found.places and not found.is_shared:
            return await self._on_fork(to, owner, found, history, model)
        key = name or new_id()
        head = head or replaced is not None
        begin = partial(self._begin, key, owner, dialect, named=bool(name), head=head, replaced=replaced)
        while True:
            branch = await self._thread_limits.of(owner).run(begin)
            held = await self._opened(to(conversation=key, branch=branch), "", model)
            if held is not None:
                return Claim(session=held)

    def release(self, held: HeldSession) -> None:
        """Return a session to the pool, for the next request."""
        held.busy = False
        self.pool.remove(held.held_as, held)
        if held.spoilt or held.closed or self.pool.get(held.key) is not None:
            held.abandon()
        else:
            self._hold(held, held.key)

    async def forget(self, owner: str, conversation: str) -> None:
        """Close the sessions of a conversation that is to be deleted; Refused while a request runs in it."""
        keys = [key for key in self.pool if key[:2] == (owner, conversation)]
        if any((held := self.pool.get(key)) is not None and held.busy for key in keys):
            raise Refused(409, "a request is running in this conversation; try again when it is over.")
        for key in keys:
            held = self.pool.get(key)
            if held is not None and not held.busy:
                await self.pool.close(key)

    async def _look_up(
        self, history: History, owner: str, name: str, found: Recognised | None
    ) -> tuple[Recognised, int | None]:
        """Return where a request continues, and the branch that it replaces if the client summarised it."""
        threads = self._thread_limits.of(owner)
        if found is None:
            found = await threads.run(partial(recognise, self._store, history, owner=owner, named=bool(name)))
        if not name or (not found.rewritten and any(place.is_tip for place in found.places)):
            return found, None
        replaced = await threads.run(partial(replaced_branch, self._store, name, history, found.count, owner=owner))
        return found if replaced is None else Recognised(), replaced

    async def _on_fork(
        self, to: Callable[..., BranchAddress], owner: str, found: Recognised, history: History, model: str
    ) -> Claim:
        """Return a session on a new branch behind the first of the places that were found."""
        place = found.places[0]
        held = self.pool.get((owner, place.conversation, place.branch))
        notes = [spoken(note) for note in takewhile(is_system, history.after(found.count))]
        fork = partial(self._fork, owner, place, notes, aside=held is not None and held.busy)
        branch, tip, head = await self._thread_limits.of(owner).run(fork)
        address = to(conversation=place.conversation, branch=branch, parent=place.branch)
        held = await self._opened(address, tip, model)
        assert held is not None  # noqa: S101 - the new branch is unknown to others
        return replace(self._claimed(held, found), takes_head=head)

    @staticmethod
    def _claimed(held: HeldSession, found: Recognised) -> Claim:
        return Claim(session=held, count=found.count, rewritten=found.rewritten, joined=not found.unanswered)

    async def _on_tip(self, address: BranchAddress, place: KnownPlace, model: str) -> HeldSession | None:
        """Return a session on a branch whose tip is this message; None when it is in use or has another tip."""
        key = (address.owner, address.conversation, address.branch)
        held = self.pool.get(key)
        if not place.is_tip or (held is not None and held.busy):
            return None
        if held is not None and held.tip != place.id:  # another process went on with it, and may have folded it
            self._discard(held)
            held = None
        if held is None:
            return await self._opened(address, place.id, model)
        held.busy = True
        return held

    async def _opened(self, address: BranchAddress, tip: str, model: str) -> HeldSession | None:
        """Open a session on a branch with this tip, "" for an empty one; None when it has another tip by now."""
        held = HeldSession(address, self._thread_limits.of(address.owner))
        await self.pool.closed(held.key)
        await self.pool.make_room()
        another = self.pool.get(held.key)  # two begin a conversation of one name: the later one makes a root of it
        self._hold(held, held.key if another is None else (*held.key[:2], -next(self._numbers)))
        try:
            make = partial(self._opener, address, model, self._thread_limits.of(address.owner))
            if await shielded(held.open(make, tip)):
                return held
        except BaseException:
            self._discard(held)
            raise
        self._discard(held)
        return None

    def _hold(self, held: HeldSession, key: Key) -> None:
        held.held_as = key
        self.pool.put(key, held)

    def _discard(self, held: HeldSession) -> None:
        self.pool.remove(held.held_as, held)
        held.abandon()

    def _begin(
        self, conversation: str, owner: str, dialect: Dialect, *, named: bool, head: bool, replaced: int | None = None
    ) -> int:
        """Make a new conversation, or a new root in the one of this name; it may replace another branch of it."""
        known = self._store.info(conversation, owner=owner) if named else None
        if known is not None and known.messages and not is_clients(known):
            raise Refused(409, "the conversation of this name belongs to an agent.")
        if known is not None:
            root = self._store.begin_root(conversation, owner=owner, head=head)
            if replaced is not None:
                replaces = {**known.replaces, root: replaced}
                self._store.ensure(
                    conversation, owner=owner, meta={"replaces": {str(k): v for k, v in replaces.items()}}
                )
            return root
        self._store.ensure(conversation, owner=owner, meta={_META: {"dialect": dialect, "named": named}})
        return ROOT

    def _fork(self, owner: str, place: KnownPlace, notes: Sequence[str], *, aside: bool) -> tuple[int, str, bool]:
        """Fork a branch behind a message; returns its number, its tip, and whether it becomes the head once answered.

        It does, unless the client has continued behind a later answer, or a request is running there. System messages
        behind the message belong to the fork only if the client has them there too.
        """
        here: dict[str, Any] = {"owner": owner, "branch": place.branch}
        tip = self._before_notes(place, notes, **here)
        behind = takewhile(
            lambda row: row.id != place.id, self._store.messages(place.conversation, newest_first=True, **here)
        )
        asked = dropwhile(lambda row: row.role != "user", behind)
        went_on = any(row.role == "assistant" for row in asked)
        branch = self._store.fork(place.conversation, behind=tip, head=False, **here)
        return branch, tip, not (aside or went_on)

    def _before_notes(self, place: KnownPlace, notes: Sequence[str], **here: Any) -> str:
        """Return the message behind which a fork begins: before notes that the client does not have there."""
        rows = self._store.messages(place.conversation, newest_first=True, system=True, **here)
        path = dropwhile(lambda row: row.id != place.id, rows)
        for row in path:
            if not is_system(row.message):
                return row.id
            if spoken(row.message) in notes:
                break
        return place.id


def is_clients(info: ConversationInfo) -> bool:
    """Tell whether a conversation belongs to a client of the drop-in endpoints."""
    return isinstance(info.meta.get(_META), dict)
