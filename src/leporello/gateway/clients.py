"""The conversations of the drop-in endpoints: a request is given the one that it goes on with, and gives it back.

Which one that is stands in the store (`leporello.gateway.recognition`), so any process serves any conversation. What is
held ready here only saves reading it again: how much that is does not depend on how many conversations there are.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from functools import partial
from itertools import count, dropwhile, takewhile
from typing import TYPE_CHECKING, Any, Final, TypeVar

from leporello.gateway.client_session import ClientSession
from leporello.gateway.errors import Refused
from leporello.gateway.limits import Lanes, to_the_end
from leporello.gateway.pool import MOST_BYTES, Pool
from leporello.gateway.recognition import recognise
from leporello.gateway.worker import Worker
from leporello.session.factory import new_id
from leporello.store import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello.gateway.history import History
    from leporello.gateway.limits import Lane
    from leporello.gateway.recognition import Recognised
    from leporello.store import ConversationInfo, KnownPlace, Store

    Opener = Callable[["Address", str, Lane], ClientSession]
    Key = tuple[str, str, int]

T = TypeVar("T")
MOST_OPEN: Final = 512
"""How many conversations are held ready; the one that was used least recently makes room."""

_META: Final = "gateway"


@dataclass(frozen=True, kw_only=True)
class Address:
    """A branch of a conversation: whose it is, in which API its client speaks, and whether that gave it its name."""

    owner: str
    dialect: str
    conversation: str
    branch: int
    named: bool
    parent: int | None = None
    """The branch that it was just forked from."""


class Client:
    """A branch of a client's conversation that is held ready, with the thread that makes every call on it."""

    def __init__(self, address: Address, lane: Lane) -> None:
        self.address = address
        self._session: ClientSession | None = None
        self.used = 0.0
        self.weight = 0
        """How many bytes its newest request had, which is what it holds."""
        self.busy = True
        self.held_as = self.key
        """Where it stands in the pool."""
        self.closed = False
        self.spoilt = False
        """Whether it holds what the store does not; the next request must read it anew."""
        self._worker = Worker(lane)

    @property
    def owner(self) -> str:
        """Whose it is."""
        return self.address.owner

    @property
    def key(self) -> Key:
        """Its place in the store: the branch may have been forked since it was opened."""
        branch = self._session.branch if self._session else self.address.branch
        return self.address.owner, self.address.conversation, branch

    @property
    def with_tools(self) -> bool:
        """Whether the model may use the tools of the engine."""
        return self._session is not None and self._session.with_tools

    @property
    def context_length(self) -> int:
        """The model's window in tokens; 0 before it is opened."""
        return self._session.context_length if self._session else 0

    async def open(self, make: Callable[[], ClientSession]) -> None:
        """Open the conversation in its thread."""
        try:
            self._session = await self._worker.run(make)
        except BaseException:
            self._worker.stop()
            raise

    async def call(self, method: Callable[..., T], *args: Any) -> T:
        """Call a method of the session, as `client.call(ClientSession.add, added)`."""
        return await self._worker.run(method, self._session, *args)

    async def compute(self, function: Callable[..., T], *args: Any) -> T:
        """Do something that takes a while in the conversation's thread."""
        return await self._worker.run(function, *args)

    def abandon(self) -> None:
        """Let go of it as it is, without storing anything; what is under way in its thread is finished."""
        if self._session is not None:
            self._worker.submit(self._session.abandon)
        self._worker.stop()

    async def close(self) -> None:
        """End the conversation properly, and its thread."""
        self.closed = True
        try:
            if self._session is not None:
                await self.call(ClientSession.close)
        finally:
            self._worker.stop()


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A conversation that a request has to itself, and how much of the request's history stands there already."""

    client: Client
    count: int = 0
    rewritten: bool = False
    joined: bool = False
    """Whether it goes on behind an answer; else it begins a conversation, or a root of one."""

    takes_head: bool = False
    """Whether its branch is the head of the conversation once it is answered."""

    def known_by(self, hash_: bytes) -> list[bytes]:
        """Return what the client's history is recognised by before it is answered: without a name, nothing at first."""
        return [hash_] if self.joined or self.client.address.named else []


class Clients:
    """The conversations of all clients."""

    def __init__(
        self,
        store: Store,
        opener: Opener,
        *,
        lanes: Lanes | None = None,
        clock: Callable[[], float] = time.monotonic,
        most_open: int = MOST_OPEN,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._store = store
        self._opener = opener
        self._lanes = lanes or Lanes()
        self._pool: Pool[Key, Client] = Pool(most_open=most_open, most_bytes=most_bytes, clock=clock)
        self._numbers = count(1)

    @property
    def open(self) -> int:
        """How many conversations are held ready."""
        return len(self._pool)

    async def claim(self, history: History, *, owner: str, dialect: str, name: str, model: str) -> Claim:
        """Return the conversation that a request goes on with, for this request alone; `release` gives it back."""
        look_up = partial(recognise, self._store, history, owner=owner, named=bool(name))
        found = await self._lanes.of(owner).run(None, look_up)
        to = partial(Address, owner=owner, dialect=dialect, named=bool(name))
        for place in found.places:
            client = await self._on_tip(to(conversation=place.conversation, branch=place.branch), place, model)
            if client is not None:
                return self._claimed(client, found)
        if found.places:
            place = found.places[0]
            held = self._pool.get((owner, place.conversation, place.branch))
            fork = partial(self._fork, owner, place, aside=held is not None and held.busy)
            branch, head = await self._lanes.of(owner).run(None, fork)
            address = to(conversation=place.conversation, branch=branch, parent=place.branch)
            client = await self._opened(address, place.id, model)
            assert client is not None  # noqa: S101 - nobody else knows the new branch
            return replace(self._claimed(client, found), takes_head=head)
        key = name or new_id()
        begin = partial(self._begin, key, owner, dialect, named=bool(name))
        while True:
            branch = await self._lanes.of(owner).run(None, begin)
            client = await self._opened(to(conversation=key, branch=branch), "", model)
            if client is not None:
                return Claim(client=client)

    def release(self, client: Client) -> None:
        """Give a conversation back; the next request may go on with it."""
        client.busy = False
        self._pool.remove(client.held_as, client)
        if client.spoilt or client.closed or self._pool.get(client.key) is not None:
            client.abandon()
        else:
            self._hold(client, client.key)

    async def forget(self, owner: str, conversation: str) -> None:
        """Let a conversation go that is about to be deleted; Refused while a request is running in it."""
        keys = [key for key in self._pool if key[:2] == (owner, conversation)]
        if any((held := self._pool.get(key)) is not None and held.busy for key in keys):
            raise Refused(409, "a request is running in this conversation; try again when it is over.")
        for key in keys:
            held = self._pool.get(key)
            if held is not None and not held.busy:
                await self._pool.close(key)

    async def expire(self, idle: float) -> int:
        """End the conversations that were not used for so many seconds; returns how many."""
        return await self._pool.expire(idle)

    async def close(self) -> None:
        """End all conversations."""
        await self._pool.close_all()

    @staticmethod
    def _claimed(client: Client, found: Recognised) -> Claim:
        return Claim(client=client, count=found.count, rewritten=found.rewritten, joined=not found.unanswered)

    async def _on_tip(self, address: Address, place: KnownPlace, model: str) -> Client | None:
        """Return the conversation that ends with a message, for this request; None when another has gone on there."""
        key = (address.owner, address.conversation, address.branch)
        held = self._pool.get(key)
        if not place.is_tip or (held is not None and held.busy):
            return None
        if held is None:
            return await self._opened(address, place.id, model)
        held.busy = True
        try:
            if await held.call(ClientSession.stand_behind, place.id):
                return held
        except BaseException:
            self.release(held)
            raise
        self.release(held)
        return None

    async def _opened(self, address: Address, tip: str, model: str) -> Client | None:
        """Open a conversation that ends with a message ("": in which nothing was said); None when it does no longer."""
        client = Client(address, self._lanes.of(address.owner))
        await self._pool.closed(client.key)
        await self._pool.make_room()
        another = self._pool.get(client.key)  # two begin a conversation of one name: the later one makes a root of it
        self._hold(client, client.key if another is None else (*client.key[:2], -next(self._numbers)))
        try:
            await to_the_end(client.open(partial(self._opener, address, model, self._lanes.of(address.owner))))
            if await client.call(ClientSession.stand_behind, tip):
                return client
        except BaseException:
            self._discard(client)
            raise
        self._discard(client)
        return None

    def _hold(self, client: Client, key: Key) -> None:
        client.held_as = key
        self._pool.put(key, client)

    def _discard(self, client: Client) -> None:
        self._pool.remove(client.held_as, client)
        client.abandon()

    def _begin(self, conversation: str, owner: str, dialect: str, *, named: bool) -> int:
        """Make a new conversation, or a new root in the one of this name."""
        known = self._store.info(conversation, owner=owner) if named else None
        if known is not None and known.messages and not is_clients(known):
            raise Refused(409, "the conversation of this name belongs to an agent.")
        if known is not None:
            return self._store.begin_root(conversation, owner=owner)
        self._store.ensure(conversation, owner=owner, meta={_META: {"dialect": dialect, "named": named}})
        return ROOT

    def _fork(self, owner: str, place: KnownPlace, *, aside: bool) -> tuple[int, bool]:
        """Fork a branch behind a message; tells whether the fork is the head once it is answered.

        It is, unless somebody went on from an answer that was given behind the message, or waits for one.
        """
        here: dict[str, Any] = {"owner": owner, "branch": place.branch}
        behind = takewhile(
            lambda row: row.id != place.id, self._store.messages(place.conversation, newest_first=True, **here)
        )
        asked = dropwhile(lambda row: row.role != "user", behind)
        went_on = any(row.role == "assistant" for row in asked)
        branch = self._store.fork(place.conversation, behind=place.id, head=False, **here)
        return branch, not (aside or went_on)


def is_clients(info: ConversationInfo) -> bool:
    """Tell whether a conversation belongs to a client of the drop-in endpoints."""
    return isinstance(info.meta.get(_META), dict)
