"""Whether a list is of the stored conversation, or the new beginning of a host that forgot it.

Stored messages that a list lacks were taken back only if its host still knew them. A bot that restarts with an empty
list under its old name has the system prompt in common with the history, perhaps a greeting, and takes nothing back:
what it says is a new root of the conversation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from leporello.store.reconcile.quick import Reading
    from leporello.store.reconcile.seen import Seen

DISTINCT: Final = 80  # characters: an answer of this length is not given twice by chance
SEVERAL: Final = 4  # shorter answers that together are as good as a distinct one


def is_known_list(
    seen: Sequence[Seen], known: Collection[int], emitted: Collection[str], reading: Reading | None
) -> bool:
    """Tell whether a list shows that its host knows the stored conversation; `known` are the stored messages in it.

    It does when it holds something that an engine made, when a message stands where it stood in the list before, or
    when it holds answers to stored questions that are not said twice by chance: one with calls, a long one, or several.
    """
    made = any(not item.system and item.fingerprint in emitted for item in seen)
    return made or _stands_still(seen, reading) or has_answers(seen, known)


def _stands_still(seen: Sequence[Seen], reading: Reading | None) -> bool:
    """Tell whether one of the remembered messages is still at its place."""
    remembered = reading.end if reading else {}
    return any(
        index < len(seen) and not seen[index].system and seen[index].fingerprint == read.seen.fingerprint
        for index, read in remembered.items()
    )


def has_answers(seen: Sequence[Seen], known: Collection[int]) -> bool:
    """Tell whether the known messages hold telling answers; what stands before the first question is a greeting."""
    asked = next((index for index in sorted(known) if seen[index].role == "user"), len(seen))
    answers = [seen[index] for index in known if index > asked and seen[index].role != "user"]
    return len(answers) >= SEVERAL or any(item.call_key is not None or item.size >= DISTINCT for item in answers)
