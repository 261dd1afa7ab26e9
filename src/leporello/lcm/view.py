"""Takes the host's list apart (`view`), chooses the tail (`choose_tail`), and assembles the new window (`assemble`).

Each message of the list has the ids of the stored messages behind it, several if a repair joined them. The window is
the system prompt, one note, the node blocks, oldest first, as one message, and the tail.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from sys import maxsize
from typing import TYPE_CHECKING, Any

from leporello.messages import (
    Message,
    align,
    fingerprint,
    groups,
    is_cut,
    is_system,
    leading_systems,
    repair,
    role_of,
    text_of,
    unread_start,
)
from leporello.messages.types import newest_of
from leporello.summary.blocks import blocks_text
from leporello.summary.extract.name_list import names_left_out
from leporello.summary.masking import masked_in_zone
from leporello.summary.payloads import shorten
from leporello.summary.placement import place
from leporello.summary.squeeze import PAYLOAD_LIMITS, Room, squeeze, squeeze_unread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from leporello.store.records import Node, Stored, WindowItem
    from leporello.summary.sizes import Sizes


UNLIMITED = Room(wanted=maxsize, most=maxsize)


@dataclass(frozen=True, kw_only=True)
class KeptMessage:
    """A message that may stay in the window, and the ids of the stored messages behind it.

    `shown` is set if it differs from the stored one; `folded` are the ids that a leaf covers already.
    """

    message: Message
    ids: tuple[str, ...]
    seq: int = 0
    shown: bool = False
    folded: tuple[str, ...] = ()

    @property
    def id(self) -> str | None:
        """The id of the first message behind it; None for one that a repair wrote."""
        return self.ids[0] if self.ids else None


@dataclass(frozen=True, kw_only=True)
class View:
    """The host's list after a repair (`valid`), its system prompt (`systems`) and its other messages (`held`).

    `held` leaves out messages that an engine wrote or a leaf covers; `unread` is the index of its first unread message.
    `origins` are all messages of the valid list with the ids behind them.
    """

    valid: list[Message]
    systems: list[KeptMessage]
    held: list[KeptMessage]
    unread: int
    origins: list[tuple[Message, tuple[str, ...]]]


def view(
    messages: Sequence[Any], sources: Sequence[tuple[str, ...]], stored: dict[str, Stored], covered: Iterable[str]
) -> View:
    """Take a list apart; `sources` are the ids behind each message, `covered` those that a leaf covers."""
    valid = _own_objects(repair(list(messages)).messages)
    places_of = align(messages, valid)
    ids_of = [tuple(i for place in places for i in sources[place]) for places in places_of]
    derived = [bool(places) and not ids for places, ids in zip(places_of, ids_of, strict=True)]
    newest = max((i for i, m in enumerate(valid) if role_of(m) == "user" and not derived[i]), default=-1)
    folded = set(covered)
    first_unread, unread = unread_start(valid), 0
    prompt = leading_systems(valid)
    systems: list[KeptMessage] = []
    held: list[KeptMessage] = []
    for index, (message, ids) in enumerate(zip(valid, ids_of, strict=True)):
        if index < prompt:
            noted = bool(ids) and ids[0] in stored and text_of(message) != text_of(stored[ids[0]].message)
            systems.append(KeptMessage(message=message, ids=ids[:1], shown=noted))
            continue
        known = tuple(i for i in ids if i in stored and not stored[i].system)
        if index != newest and (derived[index] or (known and folded.issuperset(known))):
            continue
        seq = max((stored[i].seq for i in known), default=0)
        original = stored[known[0]].message if known else message
        as_it_came = len(known) == 1 and message is messages[places_of[index][0]]
        same = message == original or (as_it_came and fingerprint(message) == fingerprint(original))
        left, gone = tuple(i for i in known if i not in folded), tuple(i for i in known if i in folded)
        held.append(KeptMessage(message=message, ids=left, seq=seq, shown=not same, folded=gone))
        unread += index < first_unread
    origins = list(zip(valid, ids_of, strict=True))
    return View(valid=valid, systems=systems, held=held, unread=unread, origins=origins)


def _own_objects(messages: Sequence[Message]) -> list[Message]:
    """Copy a message that occurs twice in the list as the same object."""
    seen: set[int] = set()
    own: list[Message] = []
    for message in messages:
        unique = message.copy() if id(message) in seen else message
        seen.add(id(unique))
        own.append(unique)
    return own


@dataclass(frozen=True, kw_only=True)
class Tail:
    """The messages that stay: those from `start` on, and the newest user message if it is older; `kept` are both."""

    start: int
    kept: list[KeptMessage]


def choose_tail(held: Sequence[KeptMessage], sizes: Sizes, *, unread: int, budget: int, room: Room = UNLIMITED) -> Tail:
    """Return the tail: the newest groups within the budget, those from `unread` on, and the newest user message.

    If these take more than the room, fewer groups stay; then large payloads are shortened, oldest first: unread ones
    only if the model's window could not hold them otherwise, the newest user message never.
    """
    if not held:
        return Tail(start=0, kept=[])
    messages = [one.message for one in held]
    user = newest_of(messages, "user")
    anchor = sizes.of(messages[user]) if user >= 0 else 0
    room = room.beside_unread(sizes.total(messages[unread:]) + (anchor if user < unread else 0), budget)
    budget = min(budget, max(0, room.wanted - anchor))
    start = tail_start(messages, lambda index: sizes.of(messages[index]) if index != user else 0, budget, unread)
    kept = ([held[user]] if 0 <= user < start else []) + list(held[start:])
    return Tail(start=start, kept=_shortened(kept, len(held) - unread, sizes, room))


def has_older(seen: View) -> bool:
    """Tell whether anything stands before the turn that is not read yet, beside the newest user message."""
    messages = [one.message for one in seen.held]
    start = tail_start(messages, lambda _: 0, -1, seen.unread)
    return start > (newest_of(messages, "user") < start)


def tail_start(messages: Sequence[Message], size: Callable[[int], int], budget: int, unread: int) -> int:
    """Return the start of the newest groups within the budget: at least one, and everything from `unread` on."""
    start, used = len(messages), 0
    for group in reversed(groups(messages)):
        used += sum(map(size, range(group.start, group.stop)))
        if used > budget and start <= unread and start < len(messages):
            break
        start = group.start
    return start


def masked_from(held: Sequence[KeptMessage], first: int, tail: Tail) -> list[KeptMessage]:
    """Return everything from `first` on, masked where it stands before the tail, and the newest user message."""
    older = len(tail.kept) - (len(held) - tail.start)  # 1 when the newest user message stands before the tail
    zone = [_masked(one) for one in held[first : tail.start]]
    anchor = tail.kept[:older] if newest_of([one.message for one in held], "user") < first else []
    return [*anchor, *zone, *tail.kept[older:]]


def _masked(one: KeptMessage) -> KeptMessage:
    message = masked_in_zone(one.message, f"lcm_expand {one.id}" if one.id else "")
    return one if message is one.message else replace(one, message=message, shown=True)


def start_without(held: Sequence[KeptMessage], folded: set[int]) -> int | None:
    """Return the index from which everything stays when exactly these messages are folded.

    None when that would split a call from its results, or leave a gap.
    """
    messages = [one.message for one in held]
    user = newest_of(messages, "user")
    start = len(held)
    while start > 0 and not (held[start - 1].ids and held[start - 1].seq in folded):
        start -= 1
    between = [one for index, one in enumerate(held[:start]) if one.ids and one.seq not in folded and index != user]
    return start if folded and not between and is_cut(messages, start) else None


def _shortened(kept: list[KeptMessage], unread: int, sizes: Sizes, room: Room) -> list[KeptMessage]:
    """Shorten read messages, oldest first; of the last `unread` ones only what the model's window cannot hold."""
    messages = whole = [held.message for held in kept]
    user = newest_of(whole, "user")
    read = [index for index in range(len(kept) - unread) if index != user]
    newest = [index for index in range(len(kept) - unread, len(kept)) if index != user]

    def short(index: int, limit: int) -> Message:
        return shorten(whole[index], limit, where=_where(kept[index]))

    def short_unread(index: int, limit: int) -> Message:
        shown = short(index, limit)
        if shown is whole[index] or role_of(shown) != "tool":
            return shown
        call = next((one for one in reversed(whole[:index]) if role_of(one) == "assistant"), None)
        names = names_left_out(call, whole[index], shown)
        return shorten(whole[index], limit, where=f"{_where(kept[index])}; names in them:\n{names}") if names else shown

    for limit in PAYLOAD_LIMITS:
        if sizes.total(messages) > room.wanted:
            messages = squeeze(whole, read, limit, room.wanted, sizes, short)
    messages = squeeze_unread(messages, newest, room, sizes, short_unread)
    return [
        held if message is held.message else replace(held, message=message, shown=True)
        for held, message in zip(kept, messages, strict=True)
    ]


def _where(one: KeptMessage) -> str:
    return f"in the store: lcm_expand {one.id}" if one.id else "left out"


@dataclass(frozen=True, kw_only=True)
class Assembled:
    """A finished window: its messages, its items in the store, and the ids behind each message."""

    messages: list[Message]
    items: tuple[WindowItem, ...]
    origins: list[tuple[Message, tuple[str, ...]]]


def assemble(
    systems: Sequence[KeptMessage], tops: Sequence[Node], tail: Sequence[KeptMessage], names: str = ""
) -> Assembled:
    """Join system prompt, blocks with a list of names, and tail; without a block nothing is added."""
    head = [held.message for held in systems]
    kept = [held.message for held in tail]
    user = newest_of(kept, "user")
    blocks = blocks_text(tops, tail[user].seq if user >= 0 else 0, names)
    joined = place(head, blocks, kept) if tops else [*head, *kept]
    shown = _with_sources(list(repair(joined).messages), systems, tail)
    return Assembled(
        messages=[message for message, _ in shown],
        items=tuple(_items(shown, tops, tail)),
        origins=[(message, held.folded + held.ids if held else ()) for message, held in shown],
    )


def _with_sources(
    messages: Sequence[Message], systems: Sequence[KeptMessage], tail: Sequence[KeptMessage]
) -> list[tuple[Message, KeptMessage | None]]:
    """Return each message of a window with the kept message behind it, None if it was written here.

    A system prompt to which a note was added is another object than before.
    """
    by_object = {id(held.message): held for held in (*systems, *tail)}
    unchanged = {id(message) for message in messages}
    noted = iter([held for held in systems if id(held.message) not in unchanged])
    return [
        (message, by_object.get(id(message)) or (next(noted, None) if is_system(message) else None))
        for message in messages
    ]


def _items(
    shown: Sequence[tuple[Message, KeptMessage | None]], tops: Sequence[Node], tail: Sequence[KeptMessage]
) -> list[WindowItem]:
    """Return the items of a window in the store: ids, and the text of what is not stored.

    `as` has a message that differs from the stored one, None for one that is part of another message. Neighbouring
    nodes are one message; its list of names is in no node.
    """
    items: list[WindowItem] = []
    blocks_placed = not tops
    for message, held in shown:
        if held is not None and held.ids:
            differs = held.shown or message is not held.message
            items.append({"m": held.ids[0], "as": message} if differs else {"m": held.ids[0]})
            items += [{"m": extra, "as": None} for extra in held.ids[1:]]
        elif held is None and not blocks_placed:
            blocks_placed = True
            items.append({"n": tops[0].id, "role": role_of(message), "as": message})
            items += [{"n": node.id, "role": role_of(message)} for node in tops[1:]]
        else:
            items.append({"t": message.get("content"), "role": role_of(message)})
    named = {item.get("m") for item in items}
    hidden: list[WindowItem] = [{"m": i, "as": None} for held in tail for i in held.ids if i not in named]
    return [*items, *hidden]
