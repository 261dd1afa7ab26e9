"""Masking: what was said and called stays as it is, old tool outputs become one line. Pure functions for every policy.

The masked zone stands between the summary and the newest messages: the account of what was done, without the bulk of
what was read. Arguments are never shortened, because a model copies what it sees; the zone ends before a turn that is
too large for it, which is left to the summary as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leporello.messages import Message, groups, parts_of, role_of, text_of
from leporello.messages.fixed import CLEARED_OUTPUT, LONGEST_CLEARED, is_cleared
from leporello.redact import redact
from leporello.summary.artifacts.errors import error_lines
from leporello.summary.artifacts.outcome import outcome_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

LONGEST_KEPT: Final = 200
"""Characters of a tool output that stays as it is."""
LONGEST_END: Final = 3_000
"""Characters at either end of an output that are searched for how the call went."""
_TYPICAL_NOTE: Final = "lcm_expand m0000"  # most calls do not fail, and to look for how takes long
_LONGEST_OUTCOME: Final = 80
_LONGEST_ERROR: Final = 140
MOST_MASKED: Final = 0.25
"""The share of what stands before the tail that a zone may stand for."""


def is_long_output(message: Message) -> bool:
    """Tell whether this is a tool output that masking replaces; one that is masked already is not."""
    text = text_of(message)
    if role_of(message) != "tool" or is_cleared(text):
        return False
    return len(text) > LONGEST_KEPT or any(part.get("type") != "text" for part in parts_of(message))


def masked(message: Message, note: str = "") -> Message:
    """Return the tool output as one line, the placeholder and a note; any other message is returned as it is."""
    line = f"{CLEARED_OUTPUT} {note}".rstrip()[:LONGEST_CLEARED]
    return {**message, "content": line} if is_long_output(message) else message


def masked_in_zone(message: Message, reference: str = "") -> Message:
    """Return the tool output as one line: what leads back to it, and how the call failed if it did."""
    if not is_long_output(message):
        return message
    return masked(message, f"{reference} {_failure(text_of(message))}".strip())


def _failure(text: str) -> str:
    """Say how a call failed, with the last error in its output; "" when it did not."""
    ends = text if len(text) <= 2 * LONGEST_END else f"{text[:LONGEST_END]}\n{text[-LONGEST_END:]}"
    errors = error_lines(ends)
    outcome, says = outcome_of(ends, errors)
    if outcome != "failed":
        return ""
    error = errors[-1] if errors else ""
    parts = [(says, _LONGEST_OUTCOME + _LONGEST_ERROR)]
    if error[:_LONGEST_ERROR] not in says:  # "1 failed, 84 passed" does not tell what failed
        parts = [(says, _LONGEST_OUTCOME), (error, _LONGEST_ERROR)]
    line = ": ".join(redact(part)[:length] for part, length in parts if part)
    return f"(failed: {''.join(sign if sign.isprintable() else ' ' for sign in line)})" if line else ""


def masked_stop(messages: Sequence[Message], start: int = 0) -> int:
    """Return where the masked zone of a window ends that begins at `start`, behind the summary."""
    places = range(len(messages) - 1, start - 1, -1)
    return next((at for at in places if _is_masked(messages[at])), start - 1) + 1


def _is_masked(message: Message) -> bool:
    text = text_of(message)
    return role_of(message) == "tool" and text.startswith(CLEARED_OUTPUT) and is_cleared(text)


def zone_start(messages: Sequence[Message], end: int, budget: int, size: Callable[[Message], int]) -> int:
    """Return where the zone before `end` begins: as many turns as the budget holds when they are masked.

    As they were they are no more than `MOST_MASKED` of all: of a short history a part is folded in any case.
    """
    start, used, whole = end, 0, 0.0
    most = MOST_MASKED * sum(map(size, messages[:end])) if budget > 0 else 0
    for group in reversed(groups(list(messages[:end])) if budget > 0 else []):
        turn = messages[group.start : group.stop]
        used += sum(size(masked(message, _TYPICAL_NOTE)) for message in turn)
        whole += sum(map(size, turn))
        if used > budget or whole > most:
            break
        start = group.start
    return start
