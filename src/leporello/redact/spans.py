"""The text that is searched, where a secret stands in it, and how overlapping finds become one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


class Subject:
    """A text to be searched.

    `plain` has one byte per character: itself, or a question mark for all that is not ASCII. `flat` is the same as
    text, which is searched several times faster than a text with wide characters.
    """

    __slots__ = ("flat", "plain", "text")

    def __init__(self, *, text: str) -> None:
        self.text: str = text
        self.plain: bytes = text.encode("ascii", "replace")
        self.flat: str = text if text.isascii() else self.plain.decode("ascii")


@dataclass(frozen=True, kw_only=True, slots=True)
class Secret:
    """A secret found in a text: its kind and where it begins and ends."""

    kind: str
    start: int
    end: int


def merged(found: Iterable[Secret]) -> list[Secret]:
    """Return disjoint secrets in order; those that overlap become one, named by the one found first."""
    ranked = sorted(enumerate(found), key=lambda item: item[1].start)
    result: list[tuple[int, Secret]] = []
    for rank, secret in ranked:
        if result and secret.start < result[-1][1].end:
            best, last = result[-1]
            kind = last.kind if best <= rank else secret.kind
            result[-1] = (
                min(best, rank),
                Secret(kind=kind, start=last.start, end=max(last.end, secret.end)),
            )
        else:
            result.append((rank, secret))
    return [secret for _, secret in result]
