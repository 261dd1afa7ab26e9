"""What every index shares: how far a search looks, what it looks for, and hits as candidates for the ranking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from leporello.store.records import Candidates
from leporello.store.relational.reading import load
from leporello.store.search.scan import as_candidate

if TYPE_CHECKING:
    from leporello.store.records import SearchFilter, Stored
    from leporello.store.relational.dialect import Connection

SCANNED: Final = 4_000  # hits that are looked at, newest first, for those that pass a filter
SCORED: Final = 12_000  # hits whose score is worked out, the newest ones
COUNTED: Final = 2_000  # hits of a term that are counted; beyond, their number is estimated
FEW_OTHERS: Final = SCANNED // 4  # messages outside the conversation that is searched

ALL: Final = (1 << 63) - 1  # the highest number


@dataclass(frozen=True, kw_only=True)
class Match:
    """What to look for: a full-text expression, a filter, and the number of the last message that counts, if any."""

    text: str
    filter: SearchFilter
    newest: int = 0

    @property
    def last(self) -> int:
        """The highest number that counts."""
        return self.newest or ALL


def as_candidates(
    connection: Connection, hits: list[tuple[int, float]], limit: int, *, cut: bool, conversation: int | None = None
) -> Candidates:
    """Return hits, by number and score, as candidates; of equal messages on sibling branches only the first."""
    full = len(hits) >= limit
    stored = load(connection, [number for number, _ in hits], conversation=conversation)
    if len({each.branch for each in stored.values()}) > 1:
        hits = _without_repeats(hits, stored)
    return Candidates(found=tuple(as_candidate(stored[number], score) for number, score in hits), cut=cut, full=full)


def _without_repeats(hits: list[tuple[int, float]], stored: dict[int, Stored]) -> list[tuple[int, float]]:
    """Return the hits, of equal messages at one place of sibling branches only the first."""
    first: dict[tuple[str, float, str], int] = {}
    for number, _ in hits:
        each = stored[number]
        first.setdefault((each.conversation, each.place, each.fingerprint), number)
    kept = set(first.values())
    return [hit for hit in hits if hit[0] in kept]
