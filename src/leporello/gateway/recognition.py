"""Looks up in the store which conversation a request continues; nothing is kept in memory.

A request has only its history to be recognised by. In this order:

1. the longest prefix of it that was served before, at the tip of a branch if possible,
2. if an answer stands behind that prefix: the newest answers alone, as they were recorded from a provider. The client
   has changed or trimmed the messages before them; these are aligned then (`leporello.session.alignment`),
3. with a name in the headers, the conversation of that name, as a new root if they share nothing. Without a name a
   request continues a conversation only behind a recorded answer, so two users who begin with "hi" stay apart, and so
   do the tasks of an app that begin with the same example; a request that failed is recognised when it is sent again.

A request that continues behind a message which is not the tip of its branch makes a fork. Without a name it does so
only if no other conversation has the same history: both users who got the same answer to "hi" may ask it for a title.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import dropwhile, islice
from typing import TYPE_CHECKING, Final

from leporello.messages import is_system, spoken
from leporello.messages.spoken import spoken_length
from leporello.store.reconcile.same_conversation import DISTINCT, SEVERAL

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from leporello.gateway.history import History
    from leporello.store import KnownPlace, TranscriptStore

_MOST_ANSWERS: Final = 6  # that are looked up by themselves
_MOST_COMPARED: Final = 12  # messages before an answer that stands at several places


@dataclass(frozen=True, kw_only=True)
class Recognised:
    """The places behind which a request may continue, best first; none for a new conversation.

    `count` messages of its history are stored there; `rewritten` if they may differ from the stored ones; `unanswered`
    if it is a failed request that is sent again. With `is_shared` other conversations have the same history too, and
    the request may not fork this one.
    """

    places: Sequence[KnownPlace] = ()
    count: int = 0
    rewritten: bool = False
    unanswered: bool = False
    is_shared: bool = False


def recognise(
    store: TranscriptStore, history: History, *, owner: str, named: bool, looks_only: bool = False
) -> Recognised:
    """Look up where a request continues; with `looks_only` a failed request is not taken for its repetition."""
    hashes = history.hashes
    places = store.known(hashes[::-1], owner=owner)
    count = hashes.index(places[0].hash) + 1 if places else 0
    if any(answer > count for answer in history.answers):
        found = _by_answers(store, history, count, owner, named=named)
        if found is not None:
            return found
    if places and (found := _by_prefix(store, history, places, count, owner, named=named)):
        return found
    again = None if named or looks_only else _unanswered(store, history, owner)
    return Recognised(places=[again], count=len(hashes), unanswered=True) if again else Recognised()


def continued(store: TranscriptStore, history: History, place: KnownPlace, count: int, *, owner: str) -> Recognised:
    """Return where a request goes on that names the answer at `place`, behind which it has new messages.

    Those that are stored there already, because the same request was sent before, are not new.
    """
    places = store.known(history.hashes[count:][::-1], owner=owner)
    again = [one for one in places if _is_behind(store, one, place, len(history.messages), owner)]
    if not again:
        return Recognised(places=[place], count=count)
    return Recognised(places=again, count=history.hashes.index(again[0].hash) + 1)


def _is_behind(store: TranscriptStore, one: KnownPlace, other: KnownPlace, most: int, owner: str) -> bool:
    """Tell whether a message stands behind another one, with fewer than `most` between them."""
    if one.conversation != other.conversation:
        return False
    rows = store.messages(one.conversation, owner=owner, branch=one.branch, newest_first=True)
    before = islice(dropwhile(lambda row: row.id != one.id, rows), most)
    return any(row.id == other.id for row in before)


def _unanswered(store: TranscriptStore, history: History, owner: str) -> KnownPlace | None:
    """Return the place of the same request without an answer; it is found only once."""
    places = store.known([history.unanswered], owner=owner)
    return next((place for place in places if store.forget_known(place, owner=owner)), None)


def _by_prefix(
    store: TranscriptStore, history: History, places: Sequence[KnownPlace], count: int, owner: str, *, named: bool
) -> Recognised | None:
    """Return where a request goes on; `count` messages of its history are known at these places.

    Several users may have the same history: a message is taken for the next user's, before it counts as repeated.
    Without a name a history that stands in several conversations goes on only where nothing else was said: nobody can
    tell whose it is.
    """
    newest = max((answer for answer in history.answers if answer <= count), default=count)
    answered = places if newest == count else store.known([history.hashes[newest - 1]], owner=owner)
    is_shared = not named and len({place.conversation for place in (*places, *answered)}) > 1
    for found, known in ((places, count), (answered, newest)):
        tips = [place for place in found if place.is_tip and not (is_shared and _is_branched(store, place, owner))]
        if tips:
            return Recognised(places=tips, count=known, is_shared=is_shared)
    # what stands before it may have been changed since
    return None if is_shared else Recognised(places=places, count=count, rewritten=True)


def _is_branched(store: TranscriptStore, place: KnownPlace, owner: str) -> bool:
    info = store.info(place.conversation, owner=owner)
    return info is None or info.branches > 1


def _by_answers(store: TranscriptStore, history: History, count: int, owner: str, *, named: bool) -> Recognised | None:
    """Return the places of the newest recorded answer behind the known prefix that is surely this client's."""
    answers: dict[bytes, int] = {}
    for answer in [number for number in reversed(history.answers) if number > count][:_MOST_ANSWERS]:
        answers.setdefault(history.alone(history.at(answer)), answer)
    found = {hash_: store.known([hash_], owner=owner) for hash_ in answers}
    own = set() if named else _own_conversations(history, answers, found)
    for hash_, newest in answers.items():
        places = found[hash_] if named else _sure(store, history, newest, found[hash_], own, owner)
        if places:
            places = _most_alike(store, history, newest, places, owner)
            return Recognised(places=places, count=newest, rewritten=True)
    return None


def _own_conversations(
    history: History, answers: Mapping[bytes, int], found: Mapping[bytes, Sequence[KnownPlace]]
) -> set[str]:
    """Return the conversations whose answers do not match by chance.

    Only answers that occur in a single conversation count: one must be long, or there must be several.
    """
    lengths: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for hash_, answer in answers.items():
        conversations = {place.conversation for place in found[hash_]}
        if len(conversations) == 1:
            lengths.update(dict.fromkeys(conversations, spoken_length(history.at(answer))))
            counts.update(conversations)
    return {one for one in counts if lengths[one] >= DISTINCT or counts[one] >= SEVERAL}


def _sure(
    store: TranscriptStore,
    history: History,
    count: int,
    places: Sequence[KnownPlace],
    own: Collection[str],
    owner: str,
) -> list[KnownPlace]:
    """Return the places of an answer in one of the client's own conversations.

    Where there are none, all messages before the answer must be equal. Places in several conversations are not sure.
    """
    sure = [place for place in places if place.conversation in own]
    sure = sure or [place for place in places if _ends_alike(store, history, count, place, owner)]
    return sure if len({place.conversation for place in sure}) == 1 else []


def _ends_alike(store: TranscriptStore, history: History, count: int, place: KnownPlace, owner: str) -> bool:
    """Tell whether all messages up to one equal those before a place, for a client that trims its oldest ones."""
    if count < SEVERAL:
        return False
    said = islice(_said_upto(store, place, owner), count)
    return list(said) == [spoken(history.at(number)) for number in range(count, 0, -1)]


def _most_alike(
    store: TranscriptStore, history: History, count: int, places: list[KnownPlace], owner: str
) -> list[KnownPlace]:
    """Return the places of an answer with most of the messages that stand before it in the history.

    On another branch the same few words may answer something else.
    """
    if len(places) == 1:
        return places
    said = Counter(spoken(history.at(number)) for number in range(count, max(0, count - _MOST_COMPARED), -1))
    before = [Counter(islice(_said_upto(store, place, owner), _MOST_COMPARED)) for place in places]
    shared = [(said & one).total() for one in before]
    return [place for place, alike in zip(places, shared, strict=True) if alike == max(shared)]


def _said_upto(store: TranscriptStore, place: KnownPlace, owner: str) -> Iterator[str]:
    """Yield what was said up to a place, the newest first."""
    rows = store.messages(place.conversation, owner=owner, branch=place.branch, newest_first=True)
    upto = dropwhile(lambda row: row.id != place.id, rows)
    return (spoken(row.message) for row in upto if not is_system(row.message))
