"""All conversations of the drop-in endpoints: which one a request goes on with, which are in use, which expire.

A client says nothing but its whole history. The rules:

1. the header `X-Leporello-Session` names the conversation; else it is one that no client has named,
2. of the same key and dialect, with the longest stored history that the request begins with, answers included,
3. a request without an answer in it opens a new conversation; only the same request again, when the first got no
   answer, is the same one,
4. one that begins in the middle, and says nothing but the newest messages of one conversation alone, goes on with that:
   its client shortens its history,
5. one that goes on differently, or with a conversation that is busy, is a branch: a conversation of its own.

The marks of histories (`leporello.gateway.history`) are kept with the conversations in the store; the index over them
is read once, at the start. What is held in memory is bounded: the conversations in use, and the index. Everything here
runs in the event loop, so that what is found is taken at the same moment.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from leporello.errors import LeporelloError, StoreError
from leporello.gateway.errors import Refused
from leporello.gateway.history import BEGINNING, alone, marks
from leporello.gateway.limits import Lanes, to_the_end
from leporello.gateway.live import Known, Live
from leporello.messages import is_system
from leporello.messages.visible import one_line
from leporello.redact import logger
from leporello.session.answers import INCOMPLETE
from leporello.session.factory import new_id

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leporello.gateway.dialogue import Dialogue
    from leporello.gateway.history import Heard
    from leporello.gateway.limits import Lane
    from leporello.store import ConversationInfo, Store

    Opener = Callable[[Known, str, Lane], Dialogue]
    Place = tuple[str, str]

MOST_OPEN: Final = 512
"""How many conversations are held ready; the one that was used least recently makes room."""

MOST_BYTES: Final = 64 * 1024 * 1024
"""How much text they hold together, a few conversations as long as the longest windows or many short ones."""

MOST_KNOWN: Final = 50_000
"""How many conversations can be recognised by their history; older ones only by their name."""

FEWEST_KEPT: Final = 4
"""How many of its newest messages tell one conversation from all others; with a name, its newest answer does."""

_MOST_COMPARED: Final = 8
_log = logger("leporello.gateway")


class Shelf:
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
        most_known: int = MOST_KNOWN,
    ) -> None:
        self._store = store
        self._opener = opener
        self._lanes = lanes or Lanes()
        self._clock = clock
        self._most_open = most_open
        self._most_bytes = most_bytes
        self._most_known = most_known
        self._free: dict[tuple[str, str, str, bytes], dict[str, Known]] = {}
        self._known: dict[Place, Known | None] = {}
        self._shares: Counter[str] = Counter()
        """How many of the known conversations each key has."""
        self._open: dict[Place, Live] = {}
        self._busy: set[Place] = set()
        self._closing: dict[Place, asyncio.Future[None]] = {}

    async def load(self) -> None:
        """Read which conversations there are."""
        newest = await asyncio.to_thread(lambda: list(islice(self._store.conversations(), self._most_known)))
        for info in reversed(newest):
            known = known_of(info)
            self._enter((info.owner, info.key), known)
            if known is not None:
                self._put(known)

    @property
    def open(self) -> int:
        """How many conversations are held ready."""
        return len(self._open)

    async def claim(self, heard: Heard, *, owner: str, dialect: str, family: str, model: str) -> Live:
        """Return the conversation that a request goes on with, for this request alone; `release` gives it back."""
        for known in self._candidates(heard, owner, dialect, family):
            live = await self._taken(known, model)
            if goes_on(live.known, heard) or asks_again(live.known, heard):
                return live
            self.release(live)
        shortened = await self._shortened(heard, owner, dialect, family)
        if shortened is not None:
            return await self._taken(shortened, model)
        while True:
            live = await self._taken(self._new(owner, dialect, family), model)
            if goes_on(live.known, heard):
                return live
            self.release(live)  # one of this name is stored that was not known any more

    def release(self, live: Live) -> None:
        """Give a conversation back; the next request may go on with it."""
        known = live.known
        live.used = self._clock()
        if live.spoilt:
            self._open.pop((known.owner, known.key)).abandon()
        self._busy.discard((known.owner, known.key))
        self._put(known)
        self._forget_oldest()

    def reserve(self, owner: str, key: str) -> bool:
        """Keep a conversation for somebody else, until `give_up`; False when it is one of the clients here."""
        place = (owner, key)
        if self._known.get(place) is not None:
            return False
        self._enter(place, None)
        self._busy.add(place)
        return True

    def give_up(self, owner: str, key: str) -> None:
        """Let a reserved conversation go."""
        self._busy.discard((owner, key))
        self._forget_oldest()

    async def forget(self, owner: str, key: str) -> None:
        """Let a conversation go that is about to be deleted; Refused while a request is running in it."""
        place = (owner, key)
        if place in self._busy:
            raise Refused(409, "a request is running in this conversation; try again when it is over.")
        if place in self._open:
            await self._close(place)
        if place in self._known:
            self._drop(place)

    async def note(self, live: Live) -> None:
        """Keep in the store how far a conversation has come, for whoever serves after us."""
        known = live.known
        try:
            note = partial(self._store.ensure, known.key, owner=known.owner, meta=known.meta())
            await self._lanes.of(known.owner).run(None, note)
        except StoreError as error:  # the client sends its whole history again, and then it is found by that
            _log.warning("how far a conversation has come could not be kept: %s", one_line(str(error)))

    async def expire(self, idle: float) -> int:
        """End the conversations that were not used for so many seconds; returns how many."""
        now = self._clock()
        old = [place for place, live in self._open.items() if place not in self._busy and now - live.used >= idle]
        for place in old:
            await self._close(place)
        await self._make_room(0)
        return len(old)

    async def close(self) -> None:
        """End all conversations."""
        for place in list(self._open):
            await self._close(place)

    def _candidates(self, heard: Heard, owner: str, dialect: str, family: str) -> Iterator[Known]:
        """Yield the conversations that a request may go on with, the longest first; each is taken when it is yielded.

        Without a name the shortest that counts ends with the first answer.
        """
        shortest = 1 if family else heard.first_reply or len(heard.marks)
        for count in range(len(heard.marks), shortest - 1, -1):
            place = (owner, dialect, family, heard.marks[count - 1])
            tried: set[str] = set()
            while keys := [key for key in self._free.get(place, ()) if key not in tried]:
                tried.add(keys[-1])
                yield self._take(place, keys[-1])
        unmarked = self._known.get((owner, family)) is None and (owner, family) not in self._busy
        if family and unmarked:
            yield Known(key=family, owner=owner, dialect=dialect, family=family)

    async def _shortened(self, heard: Heard, owner: str, dialect: str, family: str) -> Known | None:
        """Return the conversation whose newest messages a request begins with; it is taken.

        Without a name it must be the only one; of several branches with the same name it is the one used last.
        """
        count = heard.last_reply
        if count < (1 if family else FEWEST_KEPT):
            return None
        place = (owner, dialect, family, alone(heard.at(count)))
        free = list(self._free.get(place, {}).values())[-_MOST_COMPARED:]
        before = {known.key: known.mark for known in free}
        lane = self._lanes.of(owner)
        found = [known for known in free if await lane.run(None, partial(self._ends_with, known, heard, count))]
        still = [known for known in found if known.mark == before[known.key] and known.key in self._free.get(place, {})]
        if not still or (len(found) > 1 and not family):
            return None
        newest = still[-1]
        self._remove(newest)
        newest.shorten(count, heard.marks[count - 1])
        return newest

    def _ends_with(self, known: Known, heard: Heard, count: int) -> bool:
        """Tell whether the newest messages of a conversation are the first ones of a request, so many of them."""
        rows = self._store.messages(known.key, owner=known.owner, newest_first=True)
        spoken = (row.message for row in rows if not is_system(row.message) and not row.message.get(INCOMPLETE))
        newest = list(islice(spoken, count))
        return len(newest) == count and marks(reversed(newest))[-1] == heard.marks[count - 1]

    async def _taken(self, known: Known, model: str) -> Live:
        """Return a conversation in use; it is free again when whoever asked for it is gone by then."""
        try:
            return await to_the_end(self._opened(known, model))
        except asyncio.CancelledError:
            if (known.owner, known.key) in self._open:
                self.release(self._open[known.owner, known.key])
            raise

    async def _opened(self, known: Known, model: str) -> Live:
        """Return a conversation in use, opening it if it is not."""
        place = (known.owner, known.key)
        self._busy.add(place)
        self._enter(place, known)
        try:
            if place in self._closing:
                await asyncio.shield(self._closing[place])
            if place in self._open:
                return self._open[place]
            await self._make_room(1)
            lane = self._lanes.of(known.owner)
            live = Live(known, lane)
            await lane.run(None, partial(self._catch_up, known))
            await live.open(lambda: self._opener(known, model, lane))
        except BaseException:
            self._busy.discard(place)
            self._put(known)
            raise
        self._open[place] = live
        return live

    def _catch_up(self, known: Known) -> None:
        """Count what was stored after the last note: the process may have been killed in between.

        If the store has less than was noted, because it could not take an answer, it is counted from the beginning.
        """
        info = self._store.info(known.key, owner=known.owner)
        noted = known_of(info) if info and not known.count else None
        if noted is not None:
            known.count, known.mark, known.before, known.hidden = noted.count, noted.mark, noted.before, noted.hidden
            known.newest = noted.newest
        stored = info.messages if info else 0
        missing = stored - known.count - known.hidden
        if missing < 0:
            known.count, known.mark, known.before, known.hidden, missing = 0, BEGINNING, b"", 0, stored
        if not missing:
            return
        newest = self._store.messages(known.key, owner=known.owner, newest_first=True)
        rows = [row for row, _ in zip(newest, range(missing), strict=False) if not row.message.get(INCOMPLETE)]
        for row in reversed(rows):
            known.answered(row.message)
        if not rows or rows[0].role != "assistant":  # what was answered last was never noted, so nobody got it
            known.before = b""

    async def _make_room(self, more: int) -> None:
        """Let conversations go until so many more may be held: the oldest ones of the key that holds most."""
        while shares := self._shares_beyond(more):
            idle = [(live.used, place) for place, live in self._open.items() if place not in self._busy]
            if not idle:
                return
            largest = max({place[0] for _, place in idle}, key=shares.__getitem__)
            await self._close(min(one for one in idle if one[1][0] == largest)[1])

    def _shares_beyond(self, more: int) -> Counter[str]:
        """Return how much each key has of what there is too much of: conversations or bytes; nothing if of neither."""
        if len(self._open) + more > self._most_open:
            return Counter(owner for owner, _ in self._open)
        held: Counter[str] = Counter()
        for (owner, _), live in self._open.items():
            held[owner] += live.weight
        return held if held.total() > self._most_bytes else Counter()

    def _forget_oldest(self) -> None:
        """Keep the index short; a conversation with a name is found in the store by that."""
        while len(self._known) > self._most_known:
            in_use = self._busy | self._open.keys()
            largest = max(self._shares, key=self._shares.__getitem__)
            free = (place for place in self._known if place not in in_use)
            oldest = next((place for place in free if place[0] == largest), None) or next(free, None)
            if oldest is None:
                return
            self._drop(oldest)

    async def _close(self, place: Place) -> None:
        """End a conversation; a request that comes for it meanwhile waits."""
        self._closing[place] = asyncio.ensure_future(self._open.pop(place).close())
        try:
            await asyncio.shield(self._closing[place])
        except LeporelloError as error:
            _log.warning("a conversation could not be ended properly: %s", one_line(str(error)))
        finally:
            del self._closing[place]

    def _enter(self, place: Place, known: Known | None) -> None:
        """Put a conversation into the index, as the newest."""
        if place not in self._known:
            self._shares[place[0]] += 1
        self._known.pop(place, None)
        self._known[place] = known

    def _drop(self, place: Place) -> None:
        """Take a conversation out of the index."""
        self._shares[place[0]] -= 1
        if not self._shares[place[0]]:
            del self._shares[place[0]]
        known = self._known.pop(place)
        if known is not None:
            self._remove(known)

    def _new(self, owner: str, dialect: str, family: str) -> Known:
        key, number = family or new_id(), 1
        while (owner, key) in self._known:
            number += 1
            key = f"{family}~{number}" if family else new_id()
        return Known(key=key, owner=owner, dialect=dialect, family=family)

    def _put(self, known: Known) -> None:
        for place in _places(known):
            self._free.setdefault(place, {})[known.key] = known

    def _take(self, place: tuple[str, str, str, bytes], key: str) -> Known:
        known = self._free[place][key]
        self._remove(known)
        return known

    def _remove(self, known: Known) -> None:
        for place in _places(known):
            kept = self._free.get(place, {})
            kept.pop(known.key, None)
            if not kept:
                self._free.pop(place, None)


def _places(known: Known) -> list[tuple[str, str, str, bytes]]:
    """Return where in the index a conversation stands; nowhere, as long as nothing was said in it."""
    found = known.marks() | {known.newest or known.mark} if known.count else ()
    return [(known.owner, known.dialect, known.family, mark) for mark in found]


def goes_on(known: Known, heard: Heard) -> bool:
    """Tell whether a request begins with everything that a conversation holds."""
    if known.count > len(heard.marks):
        return False
    return known.mark == (heard.marks[known.count - 1] if known.count else BEGINNING)


def asks_again(known: Known, heard: Heard) -> bool:
    """Tell whether a request is the one whose answer may not have reached the client."""
    return bool(known.before) and len(heard.marks) == known.count - 1 and heard.marks[-1] == known.before


def known_of(info: ConversationInfo) -> Known | None:
    """Read from the store what a conversation of the gateway is known by; None for any other."""
    noted: Any = info.meta.get("gateway")
    if not isinstance(noted, dict):
        return None
    try:
        return Known(
            key=info.key,
            owner=info.owner,
            dialect=str(noted["dialect"]),
            family=str(noted["family"]),
            count=int(noted["count"]),
            mark=bytes.fromhex(noted["mark"]),
            hidden=int(noted["hidden"]),
            before=bytes.fromhex(noted["before"]),
            newest=bytes.fromhex(noted.get("newest", "")),
        )
    except (KeyError, TypeError, ValueError):
        return None
