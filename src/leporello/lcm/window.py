"""The window: system prompt, one note, the node blocks oldest first as one derived message, the tail.

A block's text depends on its node alone, so between two condensations blocks are only appended and the prefix stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from leporello.messages import Message, repair, role_of
from leporello.summary.place import ACKNOWLEDGEMENT, place, summary_block
from leporello.tokens import count_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.store.protocol import Store
    from leporello.store.records import Node, WindowItem

GUIDE = (
    "Below are blocks of folded history, oldest first. Nothing is lost: lcm_expand returns the originals under a node "
    "id, lcm_grep searches all of them, lcm_describe tells more about a node, a message or a file."
)
AFTER_NEWEST = (
    "The newest user message follows; the blocks from {id} on tell what was already done for it after it was written."
)
_MOST_COUNTS = 6


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


def block(node: Node) -> str:
    """Return the text of a node in the window."""
    return f"[{heading(node)}]\n{node.text}".rstrip()


def heading(node: Node) -> str:
    """Name a node: its id, time span, number of messages, and what can be found inside."""
    inside = sorted(node.meta.get("counts", {}).items(), key=lambda item: (-item[1], item[0]))
    named = ", ".join(f"{count} {what}" for what, count in inside[:_MOST_COUNTS])
    return f"node {node.id} · {span(node.time_from, node.time_to)} · {node.messages} messages" + (
        f" · {named}" if named else ""
    )


def span(start: float, stop: float) -> str:
    """Write a time span, to the minute, in UTC."""
    first, last = moment(start), moment(stop)
    return first if first == last else f"{first} to {last if first[:10] != last[:10] else last[11:]}"


def moment(time: float) -> str:
    """Write a time, to the minute, in UTC."""
    try:
        return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, ValueError, OSError):
        return "unknown time"


def block_tokens(node: Node) -> int:
    """Return what a block takes in the window."""
    return count_text(block(node)) + 2


def assemble(systems: Sequence[Held], tops: Sequence[Node], tail: Sequence[Held]) -> Assembled:
    """Join system prompt, blocks and tail; without a block nothing is added."""
    head = [held.message for held in systems]
    kept = [held.message for held in tail]
    joined = place(head, blocks_text(tops, tail), kept) if tops else [*head, *kept]
    valid = list(repair(joined).messages)
    return Assembled(
        messages=valid,
        items=tuple(_items(valid, systems, tops, tail)),
        origins=_origins(valid, systems, tail),
    )


def blocks_text(tops: Sequence[Node], tail: Sequence[Held]) -> str:
    """Return the text of the derived message, without its marks."""
    texts = [GUIDE, *map(block, tops)]
    newest = next((held for held in reversed(tail) if role_of(held.message) == "user"), None)
    later = [node for node in tops if newest is not None and 0 < newest.seq < node.first_seq]
    if later:
        texts.append(AFTER_NEWEST.format(id=later[0].id))
    return "\n\n".join(texts)


def frame_tokens() -> int:
    """Return what everything around the blocks costs at the most."""
    return count_text("\n\n".join([summary_block(GUIDE, note=True), ACKNOWLEDGEMENT, AFTER_NEWEST])) + 16


def shown(store: Store, conversation: str, *, owner: str = "", branch: int | None = None) -> list[Message]:
    """Return the window as it went to the model when it was saved, with what was recorded since: a resumed list."""
    items = store.window(conversation, owner=owner, branch=branch).items
    rows = store.get([item["m"] for item in items if "m" in item], owner=owner, branch=branch)
    nodes = {node.id: node for node in store.nodes(conversation, owner=owner, branch=branch)}
    tops = [nodes[item["n"]] for item in items if item.get("n") in nodes]
    said = [rows[item["m"]] for item in items if item.get("m") in rows]
    note = not any(row.system for row in said)
    tail = [Held(message=row.message, ids=(row.id,), seq=row.seq) for row in said if not row.system]
    messages: list[Message] = []
    for item in items:
        if "t" in item:
            messages.append({"role": item["role"], "content": item["t"]})
        elif "n" in item and tops and item["n"] == tops[0].id:
            messages.append({"role": item["role"], "content": summary_block(blocks_text(tops, tail), note=note)})
        elif item.get("m") in rows and item.get("as", True) is not None:
            messages.append(item.get("as") or rows[item["m"]].message)
    return messages


def _items(
    valid: Sequence[Message], systems: Sequence[Held], tops: Sequence[Node], tail: Sequence[Held]
) -> list[WindowItem]:
    """Return the window as the store keeps it: references, and what was written where it is not an original.

    `as` holds a message that is shown differently than it is stored, None for one that another message stands for.
    Neighbouring nodes are one message.
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
            items += [{"n": node.id, "role": role_of(message)} for node in tops]
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
