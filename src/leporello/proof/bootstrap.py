"""How sure a share is: bootstrap intervals over sessions."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

ROUNDS = 1_000
_LEVEL = 0.95


class Share(NamedTuple):
    """A share with its 95 % interval; all None when there is nothing to have a share of."""

    value: float | None
    low: float | None = None
    high: float | None = None


def share(sessions: Sequence[tuple[int, int]], rounds: int = ROUNDS) -> Share:
    """Return the share of hits among all, from (hits, all) of each session, with its interval.

    Whole sessions are drawn again, because what one session needs is not independent. With a single session there is
    no interval.
    """
    counted = [(hits, whole) for hits, whole in sessions if whole]
    if not counted:
        return Share(None)
    value = _ratio(counted)
    if len(counted) == 1:
        return Share(value)
    random = Random(len(counted))  # noqa: S311 - the same data gives the same interval
    drawn = sorted(_ratio(random.choices(counted, k=len(counted))) for _ in range(rounds))
    cut = int(rounds * (1 - _LEVEL) / 2)
    return Share(value, drawn[cut], drawn[-1 - cut])


def _ratio(counted: Sequence[tuple[int, int]]) -> float:
    return sum(hits for hits, _ in counted) / sum(whole for _, whole in counted)
