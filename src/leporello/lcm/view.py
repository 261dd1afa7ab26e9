"""What the host handed over, seen through the store: which stored message each message of its list stands for.

A list that must be repaired is stored as it came; each repaired message stands for the originals it was made of.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from leporello.lcm.window import Held
from leporello.messages import (
    Message,
    align,
    fingerprint,
    groups,
    is_cut,
    leading_systems,
    repair,
    role_of,
    text_of,
    unread_start,
)
from leporello.summary.masking import masked_in_zone
from leporello.summary.payloads import shorten
from leporello.summary.squeeze import PAYLOAD_LIMITS, squeeze, squeeze_unread

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leporello.store.records import Stored
    from leporello.summary.sizes import Sizes
    from leporello.summary.squeeze import Room


@dataclass(frozen=True, kw_only=True)
class View:
    """The host's list: valid as a whole, and taken apart into the system prompt and the rest without derived ones.

    `origins` are all messages of the valid list, each with the stored ones it stands for; `unread` is the index in
    `held` from which on the model has read nothing.
    """

    valid: list[Message]
    systems: list[Held]
    held: list[Held]
    unread: int
    origins: list[tuple[Message, tuple[str, ...]]]


def view(
    messages: Sequence[Any], sources: Sequence[tuple[str, ...]], stored: dict[str, Stored], covered: Iterable[str]
) -> View:
    """Take a list apart; what a leaf covers already, and what an engine derived, is left out of `held`."""
    valid = _own_objects(repair(list(messages)).messages)
    origins = align(messages, valid)
    ids_of = [tuple(i for place in places for i in sources[place]) for places in origins]
    derived = [bool(places) and not ids for places, ids in zip(origins, ids_of, strict=True)]
    newest = max((i for i, m in enumerate(valid) if role_of(m) == "user" and not derived[i]), default=-1)
    folded = set(covered)
    first_unread, unread = unread_start(valid), 0
    prompt = leading_systems(valid)
    systems: list[Held] = []
    held: list[Held] = []
    for index, (message, places, ids) in enumerate(zip(valid, origins, ids_of, strict=True)):
        if index < prompt:
            noted = bool(ids) and ids[0] in stored and text_of(message) != text_of(stored[ids[0]].message)
            systems.append(Held(message=message, ids=ids[:1], shown=noted))
            continue
        known = tuple(i for i in ids if i in stored and not stored[i].system)
        if index != newest and (derived[index] or (known and folded.issuperset(known))):
            continue
        seq = max((stored[i].seq for i in known), default=0)
        as_it_came = len(known) == 1 and message is messages[places[0]]
        shown = bool(known) and _differs(message, stored[known[0]].message, in_words=as_it_came)
        left, gone = tuple(i for i in known if i not in folded), tuple(i for i in known if i in folded)
        held.append(Held(message=message, ids=left, seq=seq, shown=shown, folded=gone))
        unread += index < first_unread
    origins_of = list(zip(valid, ids_of, strict=True))
    return View(valid=valid, systems=systems, held=held, unread=unread, origins=origins_of)


def _differs(message: Message, original: Message, *, in_words: bool) -> bool:
    """Tell whether a message is shown differently than it is stored; `in_words`: another shape makes no difference."""
    return message != original and not (in_words and fingerprint(message) == fingerprint(original))


def _own_objects(messages: Sequence[Message]) -> list[Message]:
    """Give every place in the list an object of its own, also when a host put one object into two places."""
    seen: set[int] = set()
    own: list[Message] = []
    for message in messages:
        unique = dict(message) if id(message) in seen else message
        seen.add(id(unique))
        own.append(unique)
    return own


@dataclass(frozen=True, kw_only=True)
class Tail:
    """What stays as it is: the newest messages from `start` on, and before them the newest user message if it is older.

    `kept` are both, as they are shown.
    """

    start: int
    kept: list[Held]


def choose_tail(held: Sequence[Held], sizes: Sizes, *, unread: int, budget: int, room: Room | None) -> Tail:
    """Return what stays: the newest groups within the budget, those from `unread` on, and the newest user message.

    When that alone takes more than the room, fewer groups stay, and then the large payloads are shown shortened, oldest
    first; what is unread only when the window would not hold it otherwise, the newest user message never.
    """
    if not held:
        return Tail(start=0, kept=[])
    messages = [one.message for one in held]
    user = _newest_user(held)
    if room is not None:
        anchor = sizes.of(messages[user]) if user >= 0 else 0
        room = room.beside_unread(sizes.total(messages[unread:]) + (anchor if user < unread else 0), budget)
        budget = min(budget, max(0, room.wanted - anchor))
    start, used = len(held), 0
    for group in reversed(groups(messages)):
        used += sum(sizes.of(messages[index]) for index in range(group.start, group.stop) if index != user)
        if used > budget and start <= unread and start < len(held):
            break
        start = group.start
    kept = ([held[user]] if 0 <= user < start else []) + list(held[start:])
    return Tail(start=start, kept=kept if room is None else _shortened(kept, len(held) - unread, sizes, room))


def masked_from(held: Sequence[Held], first: int, tail: Tail) -> list[Held]:
    """Return everything from `first` on, masked where it stands before the tail, and the newest user message."""
    older = len(tail.kept) - (len(held) - tail.start)  # 1 when the newest user message stands before the tail
    zone = [_masked(one) for one in held[first : tail.start]]
    anchor = tail.kept[:older] if _newest_user(held) < first else []
    return [*anchor, *zone, *tail.kept[older:]]


def _masked(one: Held) -> Held:
    message = masked_in_zone(one.message, f"lcm_expand {one.id}" if one.id else "")
    return one if message is one.message else replace(one, message=message, shown=True)


def start_without(held: Sequence[Held], folded: set[int]) -> int | None:
    """Return from where on everything stays when exactly these messages are folded.

    None when that would part what belongs together.
    """
    start = len(held)
    while start > 0 and not (held[start - 1].ids and held[start - 1].seq in folded):
        start -= 1
    user = _newest_user(held)
    between = [one for index, one in enumerate(held[:start]) if one.ids and one.seq not in folded and index != user]
    if not folded or between or not is_cut([one.message for one in held], start):
        return None
    return start


def _newest_user(held: Sequence[Held]) -> int:
    return next((i for i in range(len(held) - 1, -1, -1) if role_of(held[i].message) == "user"), -1)


def _shortened(kept: list[Held], unread: int, sizes: Sizes, room: Room) -> list[Held]:
    """Shorten what was read, oldest first, and of the `unread` last messages only what the window cannot hold."""
    messages, user = [held.message for held in kept], _newest_user(kept)
    read = [index for index in range(len(kept) - unread) if index != user]
    newest = [index for index in range(len(kept) - unread, len(kept)) if index != user]

    def short(index: int, limit: int) -> Message:
        where = f"in the store: lcm_expand {kept[index].id}" if kept[index].id else "left out"
        return shorten(kept[index].message, limit, where=where)

    for limit in PAYLOAD_LIMITS:
        if sizes.total(messages) > room.wanted:
            messages = squeeze([held.message for held in kept], read, limit, room.wanted, sizes, short)
    messages = squeeze_unread(messages, newest, room.most, sizes, short)
    return [
        held if message is held.message else replace(held, message=message, shown=True)
        for held, message in zip(kept, messages, strict=True)
    ]
