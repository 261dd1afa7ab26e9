"""The months and days that a question names: "May 4th", "4 May 2023", "2023-05-04", "5月4日", "5월 4일"."""

from __future__ import annotations

import re
from calendar import monthrange
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

_NAMES: Final = "january february march april may june july august september october november december"
_MONTHS: Final = {name: number for number, name in enumerate(_NAMES.split(), start=1)}
_NAMED: Final = "|".join(_MONTHS)
_DAY: Final = r"(?P<day>3[01]|[12]\d|0?[1-9])"
_ORDINAL: Final = r"(?:st|nd|rd|th)?"
_YEAR: Final = r"(?P<year>(?:19|20)\d\d)"
# A month alone is one when it is written with a capital: "may" and "march" are words, too.
_WRITTEN: Final = (
    re.compile(rf"(?<![\w-]){_YEAR}-(?P<month>0[1-9]|1[0-2])-{_DAY}(?![\w-])"),
    re.compile(rf"(?:{_YEAR}\s*[年년]\s*)?(?P<month>1[0-2]|0?[1-9])\s*[月월]\s*(?:{_DAY}\s*[日号號일])?"),
    re.compile(rf"\b(?P<month>{_NAMED})\s+{_DAY}{_ORDINAL}\b(?:,?\s+{_YEAR}\b)?", re.IGNORECASE),
    re.compile(rf"\b{_DAY}{_ORDINAL}\s+(?:of\s+)?(?P<month>{_NAMED})\b(?:,?\s+{_YEAR}\b)?", re.IGNORECASE),
    re.compile(rf"\b(?P<month>{_NAMED.title()})\b(?:,?\s+{_YEAR}\b)?"),
)


@dataclass(frozen=True, kw_only=True)
class NamedDate:
    """A month, perhaps with its day, perhaps with its year."""

    month: int
    day: int | None = None
    year: int | None = None

    def closeness(self, time: float) -> int:
        """Return 2 when a moment is on the named day, 1 when it is in the named month, 0 when in another."""
        moment = datetime.fromtimestamp(time, UTC)
        if moment.month != self.month or self.year not in {None, moment.year}:
            return 0
        return 1 + (moment.day == self.day)

    def span(self, year: int) -> tuple[float, float] | None:
        """Return the first and the last moment of the named day in a year; None when there is no such day."""
        if self.day is None or self.year not in {None, year} or self.day > monthrange(year, self.month)[1]:
            return None
        start = datetime(year, self.month, self.day, tzinfo=UTC)
        return start.timestamp(), (start + timedelta(days=1, microseconds=-1)).timestamp()


def named_dates(text: str) -> tuple[NamedDate, ...]:
    """Return the dates that a text names, each once; a part of one date is not another."""
    found: list[NamedDate] = []
    for form in _WRITTEN:
        found += map(_read, form.finditer(text))
        text = form.sub(" ", text)
    return tuple(dict.fromkeys(found))


def _read(match: re.Match[str]) -> NamedDate:
    parts = match.groupdict()
    month, day, year = parts["month"].lower(), parts.get("day"), parts["year"]
    return NamedDate(
        month=_MONTHS.get(month) or int(month),
        day=int(day) if day else None,
        year=int(year) if year else None,
    )
