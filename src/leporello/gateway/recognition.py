"""Which conversation a request goes on with: a look-up in the store, with no memory of its own.

A client says nothing but its whole history. In this order:

1. the longest history that was served before and that the request begins with; one that nothing was said behind first,
2. where an answer stands behind that, the newest answers by themselves, as they were recorded from a provider: the
   client has changed or trimmed what stands before them, which is compared message by message then
   (`leporello.session.rewriting`),
3. a name in the header makes it the conversation of that name, with a new root where it shares nothing with it; without
   a name a request joins only behind an answer that was recorded: two who begin with "hi" stay apart, and so do the
   tasks of an app that all begin with the same example. Only a request that failed is the same one when it comes again.

What is said behind a message that is not the newest of its branch goes on on a fork.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import dropwhile, islice
from typing import TYPE_CHECKING, Final

from leporello.messages import is_system, spoken

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leporello.gateway.history import History
    from leporello.store import KnownPlace, Store

_MOST_ANSWERS: Final = 6  # that are looked up by themselves
_DISTINCT: Final = 80  # characters: an answer of this length is not given twice by chance
_SEVERAL: Final = 4  # shorter answers, or messages in a row, that together are as good as a distinct one


@dataclass(frozen=True, kw_only=True)
class Recognised:
    """Where a request goes on: behind one of these places, the best first; nowhere when there are none.

    `count` messages of its history stand there already; with `rewritten` told differently, perhaps. `unanswered` is a
    request that comes again because it got no answer.
    """

    places: Sequence[KnownPlace] = ()
    count: int = 0
    rewritten: bool = False
    unanswered: bool = False


def recognise(store: Store, history: History, *, owner: str, named: bool) -> Recognised:
    """Look up where a request goes on."""
    hashes = history.hashes
    places = store.known(hashes[::-1], owner=owner)
    count = hashes.index(places[0].hash) + 1 if places else 0
    if any(answer > count for answer in history.answers):
        found = _by_answers(store, history, count, owner, named=named)
        if found is not None:
            return found
    if places and not places[0].is_tip:  # what stands before it may have been changed since
        return _waiting(store, history, count, owner) or Recognised(places=places, count=count, rewritten=True)
    if places:
        return Recognised(places=places, count=count)
    again = None if named else _unanswered(store, history, owner)
    return Recognised(places=[again], count=len(hashes), unanswered=True) if again else Recognised()


def _unanswered(store: Store, history: History, owner: str) -> KnownPlace | None:
    """Return where the same request stands that got no answer; only one may come again for it."""
    places = store.known([history.unanswered], owner=owner)
    return next((place for place in places if store.forget_known(place, owner=owner)), None)


def _waiting(store: Store, history: History, count: int, owner: str) -> Recognised | None:
    """Return where nothing was said yet behind the newest answer of a known history; None when there is no such place.

    Several people may say the same: who says it again is taken for the next of them, before it counts as asking again.
    """
    newest = max((answer for answer in history.answers if answer <= count), default=0)
    if not newest or newest == count:
        return None
    tips = [place for place in store.known([history.hashes[newest - 1]], owner=owner) if place.is_tip]
    return Recognised(places=tips, count=newest) if tips else None


def _by_answers(store: Store, history: History, count: int, owner: str, *, named: bool) -> Recognised | None:
    """Return where the newest recorded answer stands that a request holds behind its known beginning."""
    answers: dict[bytes, int] = {}
    for answer in [number for number in reversed(history.answers) if number > count][:_MOST_ANSWERS]:
        answers.setdefault(history.alone(history.at(answer)), answer)
    places = store.known(list(answers), owner=owner)
    if not places:
        return None
    newest = answers[places[0].hash]
    if not named:
        places = _sure(store, history, newest, answers, places, owner)
    return Recognised(places=places, count=newest, rewritten=True) if places else None


def _sure(
    store: Store,
    history: History,
    newest: int,
    answers: Mapping[bytes, int],
    places: Sequence[KnownPlace],
    owner: str,
) -> list[KnownPlace]:
    """Return the places of an answer that are not found by chance: it is long, others are there, or all before it.

    Many may get the same answer. If it stands in several conversations, everything before it must be the same in one of
    them alone; else it is none of them.
    """
    lengths: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for hash_, answer in answers.items():
        for conversation in {place.conversation for place in store.known([hash_], owner=owner)}:
            lengths[conversation] += len(spoken(history.at(answer)))
            counts[conversation] += 1
    alone = len({place.conversation for place in places}) == 1
    found = {one for one in counts if lengths[one] >= _DISTINCT or counts[one] >= _SEVERAL} if alone else set()
    sure = [place for place in places if place.conversation in found]
    sure = sure or [place for place in places if _ends_alike(store, history, newest, place, owner)]
    return sure if len({place.conversation for place in sure}) == 1 else []


def _ends_alike(store: Store, history: History, count: int, place: KnownPlace, owner: str) -> bool:
    """Tell whether everything up to a message was said the same before a place, as by a client that trims its head."""
    if count < _SEVERAL:
        return False
    rows = store.messages(place.conversation, owner=owner, branch=place.branch, newest_first=True)
    told = dropwhile(lambda row: row.id != place.id, rows)
    said = islice((spoken(row.message) for row in told if not is_system(row.message)), count)
    return list(said) == [spoken(history.at(number)) for number in range(count, 0, -1)]
