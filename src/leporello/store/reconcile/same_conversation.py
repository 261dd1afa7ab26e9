"""Tells whether a list belongs to the stored conversation, or its host has forgotten that and begins again.

Messages that a list lacks were undone only if its host still knows the conversation. A bot that restarts with an empty
list under its old name shares the system prompt, perhaps a greeting: its messages are a new root.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from leporello.messages.listed_message import ListedMessage
    from leporello.store.reconcile.incremental_plan import ListState

DISTINCT: Final = 80  # characters: an answer of this length is not given twice by chance
SEVERAL: Final = 4  # shorter answers, or messages in a row, count as much as one distinct answer


def is_same_conversation(
    seen: Sequence[ListedMessage], known: Collection[int], emitted: Collection[str], reading: ListState | None
) -> bool:
    """Tell whether a list shows that its host knows the stored conversation; `known` are the stored messages in it.

    It does if it has a message that an engine made, a message at the same index as in the list before, or stored
    answers that are not given twice by chance: one with calls, a long one, or several.
    """
    made = any(not item.system and item.fingerprint in emitted for item in seen)
    return made or _has_unmoved_message(seen, reading) or has_answers(seen, known)


def _has_unmoved_message(seen: Sequence[ListedMessage], reading: ListState | None) -> bool:
    """Tell whether a message of the list before has the same index."""
    remembered = reading.end if reading else {}
    return any(
        index < len(seen) and not seen[index].system and seen[index].fingerprint == read.seen.fingerprint
        for index, read in remembered.items()
    )


def has_answers(seen: Sequence[ListedMessage], known: Collection[int]) -> bool:
    """Tell whether the known messages have distinct answers behind the first question; one before it is a greeting."""
    asked = next((index for index in sorted(known) if seen[index].role == "user"), len(seen))
    answers = [seen[index] for index in known if index > asked and seen[index].role != "user"]
    return len(answers) >= SEVERAL or any(item.call_key is not None or item.size >= DISTINCT for item in answers)
