"""Full-text expressions as conditions on the index: what `leporello.store.search.query` writes, read for PostgreSQL.

An expression has phrases in quotation marks, `AND`, `OR`, `NOT` and parentheses. Its words become a query of the index,
which knows of their order only which of them stand next to each other, by a hash; phrases of several words are then
looked for in the text of what it found.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from leporello.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

_TOKEN: Final = re.compile(r'\s*(?:"((?:[^"]|"")*)"|([()])|([^\s"()]+))')
_SEPARATORS: Final = re.compile(r"[\x00-/:-@\[-`{-\x7f]+")
_UPPER: Final = {ord(letter): letter.lower() for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}


@dataclass(frozen=True)
class TermPhrase:
    """Words in this order."""

    terms: tuple[str, ...]

    @cached_property
    def needle(self) -> str:
        """The phrase as it stands in the text of the index."""
        return stored_text(self.terms)


@dataclass(frozen=True)
class Operation:
    """AND, OR or NOT of two and more expressions; NOT is the first without the others."""

    name: str
    parts: tuple[TermExpression, ...]


TermExpression = TermPhrase | Operation


_MOST_PAIRS: Final = 20_000  # of one message
_ANY_PAIR: Final = "+"  # of a message with more; no term has a character of ASCII that is no letter and no digit
_DIGITS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


def pairs(terms: Sequence[str]) -> list[str]:
    """Return what the index has for terms that stand next to each other, each once: three digits of a hash."""
    found = {zlib.crc32(f"{one} {other}".encode("utf-8", "replace")) & 0x3FFFF for one, other in pairwise(terms)}
    if len(found) > _MOST_PAIRS:
        return [_ANY_PAIR]
    return [f"+{_DIGITS[number >> 12]}{_DIGITS[number >> 6 & 63]}{_DIGITS[number & 63]}" for number in found]


PART: Final = 13  # bits of the number of a message that do not tell the part of the index that it is in
PART_SIGN: Final = "#"


def part_term(number: int) -> str:
    """Return what the index has for the part that a message is in."""
    return f"{PART_SIGN}{number >> PART}"


def stored_text(terms: tuple[str, ...] | list[str]) -> str:
    """Return terms as they stand in the text of the index: each with a space of its own on either side."""
    return "".join(f" {term} " for term in terms)


class Lexemes(str):
    """Terms in the form in which PostgreSQL reads a `tsvector`."""

    __slots__ = ()

    @classmethod
    def of(cls, terms: Iterable[str]) -> Lexemes:
        """Write down terms."""
        return cls(" ".join(map(_lexeme, terms)))


def parse(text: str) -> TermExpression:
    """Read an expression."""
    reader = _Reader(text)
    found = reader.alternatives()
    if not reader.at_end:
        raise QueryError(f"The full-text expression {text!r} cannot be read.")
    return found


def tsquery(expression: TermExpression) -> str:
    """Return what the words of an expression ask of the index; it may find too much, never too little."""
    if isinstance(expression, TermPhrase):
        # two terms say more together than both do alone, and the planner knows how often they stand together
        beside = [f"({_lexeme(pair)} | {_lexeme(_ANY_PAIR)})" for pair in pairs(expression.terms)]
        return " & ".join(beside or map(_lexeme, expression.terms)) or _lexeme("\ue002")  # which nothing has
    if expression.name == "NOT":
        first, *others = expression.parts
        known = [f"!({tsquery(each)})" for each in others if not needs_text(each)]
        return " & ".join([f"({tsquery(first)})", *known])
    return {"AND": " & ", "OR": " | "}[expression.name].join(f"({tsquery(each)})" for each in expression.parts)


def needs_text(expression: TermExpression) -> bool:
    """Tell whether the order of words matters to an expression."""
    if isinstance(expression, TermPhrase):
        return len(expression.terms) > 1
    return any(map(needs_text, expression.parts))


def condition(expression: TermExpression) -> tuple[str, list[str]]:
    """Return the condition that the text of the index fulfils, with its values."""
    if isinstance(expression, TermPhrase):
        return "strpos(s.text, ?) > 0", [expression.needle]
    conditions = [condition(each) for each in expression.parts]
    values = [value for _, own in conditions for value in own]
    texts = [text for text, _ in conditions]
    joint = {"AND": " AND ", "OR": " OR ", "NOT": " AND NOT "}[expression.name]
    return f"({joint.join(texts)})", values


def phrases(expression: TermExpression) -> list[TermPhrase]:
    """Return the phrases that a score is worked out from."""
    if isinstance(expression, TermPhrase):
        return [expression]
    parts = expression.parts[:1] if expression.name == "NOT" else expression.parts
    return [phrase for each in parts for phrase in phrases(each)]


def _lexeme(term: str) -> str:
    escaped = term.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


class _Reader:
    """Reads an expression from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [match.groups() for match in _TOKEN.finditer(text)]
        self._next = 0

    @property
    def at_end(self) -> bool:
        return self._next == len(self._tokens)

    def alternatives(self) -> TermExpression:
        return self._joined("OR", self._all)

    def _all(self) -> TermExpression:
        return self._joined("AND", self._excluding)

    def _excluding(self) -> TermExpression:
        return self._joined("NOT", self._one)

    def _joined(self, name: str, read: Callable[[], TermExpression]) -> TermExpression:
        parts = [read()]
        while self._word() == name:
            self._next += 1
            parts.append(read())
        return parts[0] if len(parts) == 1 else Operation(name, tuple(parts))

    def _one(self) -> TermExpression:
        if self.at_end:
            raise QueryError(f"The full-text expression {self._text!r} ends too early.")
        quoted, mark, word = self._tokens[self._next]
        self._next += 1
        if quoted is not None:
            return _phrase(quoted.replace('""', '"'))
        if mark == "(":
            inner = self.alternatives()
            self._expect(")")
            return inner
        if mark:
            raise QueryError(f"The full-text expression {self._text!r} cannot be read.")
        return _phrase(word)

    def _word(self) -> str | None:
        return None if self.at_end else self._tokens[self._next][2]

    def _expect(self, mark: str) -> None:
        if self.at_end or self._tokens[self._next][1] != mark:
            raise QueryError(f"The full-text expression {self._text!r} lacks {mark!r}.")
        self._next += 1


def _phrase(text: str) -> TermPhrase:
    """Cut a phrase into terms, which only ASCII characters separate."""
    return TermPhrase(tuple(filter(None, _SEPARATORS.split(text.translate(_UPPER)))))
