"""Make a list of items one that the Responses API takes.

Messages are valid before they become items (`leporello.messages.repair`). What only items know is looked after here: a
fold may part a program from what belongs to it, and an answer that broke off may end with its reasoning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leporello.messages.responses.items import (
    COMPACTION_TRIGGER,
    ITEM_REFERENCE,
    PROGRAM,
    PROGRAM_OUTPUT,
    REASONING,
    Item,
    kind_of,
    program_of,
)
from leporello.messages.responses.rules import follows_reasoning

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_NAMED_BY_ANOTHER: Final = frozenset({ITEM_REFERENCE, "local_shell_call_output"})


def settled(items: Sequence[Item]) -> list[Item]:
    """Return the items without those that the provider refuses; one that is taken as it is stays the same object."""
    kept: list[Item] = []
    for item in reversed(list(_complete(items))):
        if kind_of(item) != REASONING or (kept and follows_reasoning(kept[-1])):
            kept.append(item)
    return kept[::-1]


def _complete(items: Sequence[Item]) -> Iterator[Item]:
    """Yield what stands at its place: no output of a missing program, and a trigger only at the end.

    A call that a missing program made becomes a call of the model's own, and what has an id that an earlier item has
    becomes one without.
    """
    programs: set[str] = set()
    ids: set[str] = set()
    for index, item in enumerate(items):
        kind, program, left_out = kind_of(item), program_of(item), set()
        id_ = item.get("id") if kind not in _NAMED_BY_ANOTHER else None
        if kind == PROGRAM:
            programs.add(str(item.get("call_id")))
        if program and program not in programs:
            left_out.add("caller")
        if isinstance(id_, str) and id_ in ids:
            left_out.add("id")
        ids |= {id_} if isinstance(id_, str) else set()
        is_trigger = kind == COMPACTION_TRIGGER and index + 1 < len(items)
        if is_trigger or (kind == PROGRAM_OUTPUT and "caller" in left_out) or (kind == REASONING and "id" in left_out):
            continue
        yield {key: value for key, value in item.items() if key not in left_out} if left_out else item
