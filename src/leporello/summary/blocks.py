"""The blocks of folded history: how nodes are written in a window, as one derived message.

A block's text depends on its node alone, so between two condensations blocks are only appended and the prefix stays.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from leporello.summary.placement import ACKNOWLEDGEMENT, summary_block
from leporello.tokens import count_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.messages import Message
    from leporello.store import Branch, Node

GUIDE = (
    "Below are blocks of folded history, oldest first. Nothing is lost: lcm_expand returns the originals under a node "
    "id, lcm_grep searches all of them, lcm_describe tells more about a node, a message or a file."
)
AFTER_NEWEST = (
    "The newest user message follows; the blocks from {id} on tell what was already done for it after it was written."
)
_MOST_COUNTS = 6


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


def blocks_text(tops: Sequence[Node], newest_user: int, names: str = "") -> str:
    """Return the text of the derived message, without its marks: the blocks, and a list of names.

    `newest_user` is the seq of the newest user message, or 0.
    """
    texts = [GUIDE, *map(block, tops), *([names] if names else [])]
    later = [node for node in tops if 0 < newest_user < node.first_seq]
    if later:
        texts.append(AFTER_NEWEST.format(id=later[0].id))
    return "\n\n".join(texts)


def frame_tokens() -> int:
    """Return what everything around the blocks costs at the most."""
    return count_text("\n\n".join([summary_block(GUIDE, note=True), ACKNOWLEDGEMENT, AFTER_NEWEST])) + 16


def shown(branch: Branch) -> list[Message]:
    """Return the window of a branch as it went to the model, with what was recorded since: a resumed list."""
    items = branch.window().items
    rows = branch.get(item.get("m") for item in items)
    nodes = {node.id: node for node in branch.store.nodes(branch.conversation, **branch.here)}
    tops = [nodes[item["n"]] for item in items if item.get("n") in nodes]
    said = [rows[item["m"]] for item in items if item.get("m") in rows]
    note = not any(row.system for row in said)
    newest_user = next((row.seq for row in reversed(said) if row.role == "user" and not row.system), 0)
    messages: list[Message] = []
    for item in items:
        if "t" in item:
            messages.append({"role": item["role"], "content": item["t"]})
        elif "n" in item and tops and item["n"] == tops[0].id:
            text = summary_block(blocks_text(tops, newest_user), note=note)
            messages.append(item.get("as") or {"role": item["role"], "content": text})
        elif item.get("m") in rows and item.get("as", True) is not None:
            messages.append(item.get("as") or rows[item["m"]].message)
    return messages
