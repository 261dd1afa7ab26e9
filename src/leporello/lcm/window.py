"""The window: system prompt, one note, the node blocks oldest first as one derived message, the tail."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from leporello.messages import Message, repair, role_of
from leporello.summary.blocks import blocks_text
from leporello.summary.place import place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.store.records import Node, WindowItem


@dataclass(frozen=True, kw_only=True)
class Held:
    """A message of the host's list that stays: as it is shown, and the stored messages it stands for.

    `folded` are those of them that a leaf covers already.
    """

    message: Message
    ids: tuple[str, ...]
    seq: int = 0
    shown: bool = False
    folded: tuple[str, ...] = ()

    @property
    def id(self) -> str | None:
        """The stored message that it shows, or None for one that only a repair made."""
        return self.ids[0] if self.ids else None


@dataclass(frozen=True, kw_only=True)
class Assembled:
    """A finished window: what goes to the model, how the store keeps it, and what each message of it stands for."""

    messages: list[Message]
    items: tuple[WindowItem, ...]
    origins: list[tuple[Message, tuple[str, ...]]]


def assemble(systems: Sequence[Held], tops: Sequence[Node], tail: Sequence[Held], names: str = "") -> Assembled:
    """Join system prompt, blocks with a list of names, and tail; without a block nothing is added."""
    head = [held.message for held in systems]
    kept = [held.message for held in tail]
    newest_user = next((held.seq for held in reversed(tail) if role_of(held.message) == "user"), 0)
    joined = place(head, blocks_text(tops, newest_user, names), kept) if tops else [*head, *kept]
    valid = list(repair(joined).messages)
    return Assembled(
        messages=valid,
        items=tuple(_items(valid, systems, tops, tail)),
        origins=_origins(valid, systems, tail),
    )


def _items(
    valid: Sequence[Message], systems: Sequence[Held], tops: Sequence[Node], tail: Sequence[Held]
) -> list[WindowItem]:
    """Return the window as the store keeps it: references, and what was written where it is not an original.

    `as` holds a message that is shown differently than it is stored, None for one that another message stands for.
    Neighbouring nodes are one message, whose list of names no node holds.
    """
    by_object = {id(held.message): held for held in (*systems, *tail)}
    noted = [held for held in systems if id(held.message) not in {id(message) for message in valid}]
    items: list[WindowItem] = []
    blocks_placed = False
    for message in valid:
        held = by_object.get(id(message))
        if held is None and role_of(message) in ("system", "developer") and noted:
            held = noted.pop(0)
            items.append({"m": held.id, "as": message} if held.id else {"t": message.get("content"), "role": "system"})
        elif held is not None and held.ids:
            items.append({"m": held.ids[0], "as": message} if held.shown else {"m": held.ids[0]})
            items += [{"m": extra, "as": None} for extra in held.ids[1:]]
        elif held is None and tops and not blocks_placed:
            blocks_placed = True
            items.append({"n": tops[0].id, "role": role_of(message), "as": message})
            items += [{"n": node.id, "role": role_of(message)} for node in tops[1:]]
        else:
            items.append({"t": message.get("content"), "role": role_of(message)})
    named = {item.get("m") for item in items}
    return [*items, *({"m": i, "as": None} for held in tail for i in held.ids if i not in named)]


def _origins(
    valid: Sequence[Message], systems: Sequence[Held], tail: Sequence[Held]
) -> list[tuple[Message, tuple[str, ...]]]:
    """Return each message with the stored ones it stands for; one that was written here stands for none."""
    by_object = {id(held.message): held.folded + held.ids for held in (*systems, *tail)}
    noted = [held.ids for held in systems if id(held.message) not in {id(message) for message in valid}]
    found: list[tuple[Message, tuple[str, ...]]] = []
    for message in valid:
        if id(message) not in by_object and role_of(message) in ("system", "developer") and noted:
            found.append((message, noted.pop(0)))
        else:
            found.append((message, by_object.get(id(message), ())))
    return found
