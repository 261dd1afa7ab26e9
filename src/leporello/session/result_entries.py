"""The entries of an engine's result: which stored messages stand behind each message of it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from leporello.messages import fingerprint, is_system, leading_systems, role_of, text_of
from leporello.session.calls import key_of_calls
from leporello.session.saved_branch import grouped, message_ids
from leporello.session.window import Entry, entry_of
from leporello.summary.payloads import is_shortened

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leporello.messages import Message
    from leporello.store import WindowItem


def proposed_entries(result: Sequence[Message], items: Sequence[WindowItem], before: Sequence[Entry]) -> list[Entry]:
    """Return the entries of a result that an engine proposed with these items; [] when their numbers differ."""
    groups = grouped(items)
    if len(groups) != len(result):
        return []
    said = {one.id: one for entry in before for one in entry.sources}
    return [
        entry_of(
            message, sources=[said[i] for i in message_ids(group) if i in said], stored_as=_as_sent(group, message)
        )
        for message, group in zip(result, groups, strict=True)
    ]


def _as_sent(group: list[WindowItem], message: Message) -> list[WindowItem]:
    """Add the message itself to the items of a block: its text depends on the rest of the window, which changes."""
    more = "n" in group[0] or ("t" in group[0] and message.keys() - {"role", "content"})
    return [{**group[0], "as": message}, *group[1:]] if more else group


def folded_entries(result: Sequence[Message], given: Sequence[Message], before: Sequence[Entry]) -> list[Entry]:
    """Return the entries of an engine's result; `given` are the messages that it was given, `before` their entries.

    An unchanged message keeps its entry. A shortened one, or one with a summary in front, keeps the sources of the
    message that it was made of. Any other was written by the engine.
    """
    matches = _Matches(given, before)
    places = [matches.same(message) for message in result]
    prompt = leading_systems(result)
    for index in (*range(len(result)), *reversed(range(len(result)))):  # the neighbour of a match may be one too
        message = result[index]
        if places[index] is None and (index < prompt or not is_system(message)):
            places[index] = matches.made_of(message, _neighbours(places, index, len(before)))
    entries = [_folded(message, before, place) for message, place in zip(result, places, strict=True)]
    return _with_newest(entries, before)


class _Matches:
    """Finds the entry behind each message of a result; every entry is used once, equal ones in order."""

    def __init__(self, given: Sequence[Message], before: Sequence[Entry]) -> None:
        self._before = before
        self._objects = {id(message): place for place, message in enumerate(given)}
        self._texts: dict[str, list[int]] | None = None
        self._places: dict[tuple[str, ...], list[int]] | None = None
        self._used: set[int] = set()

    def same(self, message: Message) -> int | None:
        """Return the entry with the same message."""
        place = self._objects.get(id(message))
        if place is None or place in self._used or message != self._before[place].message:
            place = self._equal(message)
        if place is not None:
            self._used.add(place)
        return place

    def made_of(self, message: Message, neighbours: tuple[int, int]) -> int | None:
        """Return the entry that a changed message was made of; `neighbours` are those before and behind it."""
        place = next((at for at in self._candidates(message, neighbours) if at not in self._used), None)
        if place is not None:
            self._used.add(place)
        return place

    def _equal(self, message: Message) -> int | None:
        if self._texts is None:
            self._texts = {}
            for place in range(len(self._before) - 1, -1, -1):
                self._texts.setdefault(fingerprint(self._before[place].message), []).append(place)
        places = self._texts.get(fingerprint(message), [])
        while places and places[-1] in self._used:
            places.pop()
        return places[-1] if places else None

    def _candidates(self, message: Message, neighbours: tuple[int, int]) -> Iterator[int]:
        """Yield the entries that a changed message may come from: with its calls, with its text, or shortened to it."""
        yield from self._keys().get(_key(message), ())
        before, behind = neighbours
        for place in (behind - 1, before + 1):
            if not 0 <= place < len(self._before) or self._before[place].role != role_of(message):
                continue
            text = text_of(self._before[place].message)
            has_all = role_of(message) == "assistant" and place == behind - 1 and text and text in text_of(message)
            if has_all or is_shortened(message, self._before[place].message):
                yield place

    def _keys(self) -> dict[tuple[str, ...], list[int]]:
        if self._places is None:
            self._places = {}
            prompt = leading_systems([entry.message for entry in self._before])
            for place, entry in enumerate(self._before):
                if entry.sources and (key := _key(entry.message)) and (place < prompt or not is_system(entry.message)):
                    self._places.setdefault(key, []).append(place)
        return self._places


def _key(message: Message) -> tuple[str, ...]:
    """Return what identifies a message whose text was changed: the system prompt, else its calls."""
    return ("system",) if is_system(message) else key_of_calls(message)


def _neighbours(places: Sequence[int | None], index: int, end: int) -> tuple[int, int]:
    """Return the nearest places before and behind that are known."""
    before = next((place for place in reversed(places[:index]) if place is not None), -1)
    return before, next((place for place in places[index + 1 :] if place is not None), end)


def _folded(message: Message, before: Sequence[Entry], place: int | None) -> Entry:
    if place is None:
        return entry_of(message)
    entry = before[place]
    return entry if message == entry.message else entry_of(message, sources=entry.sources)


def _with_newest(entries: list[Entry], before: Sequence[Entry]) -> list[Entry]:
    """Add the newest stored message to the last entry as hidden, so that a resumed window knows where it ends."""
    newest = next((entry.sources[-1] for entry in reversed(before) if entry.sources), None)
    if newest is None or newest.id is None or any(newest in entry.sources for entry in entries):
        return entries
    hidden: WindowItem = {"m": newest.id, "as": None, "folded": True}
    return [*entries[:-1], replace(entries[-1], stored_as=(*entries[-1].items(), hidden))]
