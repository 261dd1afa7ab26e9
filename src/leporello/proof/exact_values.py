"""Exact values in text, by kind: what an agent cannot guess again once it is gone from its window.

This is the measure's own reading of text. It shares nothing with what engines extract, so that no engine is measured
by its own yardstick.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, get_args

if TYPE_CHECKING:
    from collections.abc import Iterator

Kind: TypeAlias = Literal["path", "url", "hash", "error", "function", "identifier", "number"]
KINDS: Final[tuple[Kind, ...]] = get_args(Kind)

_EXTENSIONS = (
    "bat|bash|c|cc|cfg|conf|cpp|cs|css|csv|cxx|db|env|go|gradle|h|hpp|html|ini|ipynb|java|js|json|jsonl|jsx|kt|lock|log"
    "|lua|md|mjs|mod|php|pl|proto|ps1|py|pyi|rb|rs|rst|scala|scss|sh|sql|sqlite|sum|svg|swift|toml|ts|tsx|txt|vue|xml"
    "|yaml|yml|zig|zsh"
)
# Every branch begins at the edge of a word and every quantifier is bounded: linear on any input.
_VALUE = re.compile(
    rf"""
      (?P<url>\bhttps?://[^\s"'`<>)\]}}]{{3,200}})
    | (?P<path>(?<![\w/.@-])(?:~|\.{{1,2}})?/(?:[\w.@+-]{{1,80}}/){{0,20}}[\w.@+-]{{2,80}}
        |(?<![\w/.@-])(?:[\w.@+-]{{1,80}}/){{2,20}}[\w.@+-]{{2,80}}
        |(?<![\w/.@-])(?:[\w.@+-]{{1,80}}/)?[\w-][\w.-]{{0,80}}\.(?:{_EXTENSIONS})(?!\w))
    | (?P<hash>\b[0-9a-fA-F]{{8}}(?:-[0-9a-fA-F]{{4}}){{3}}-[0-9a-fA-F]{{12}}\b
        |\b(?=[0-9a-f]{{0,40}}[a-f])(?=[0-9a-f]{{0,40}}[0-9])[0-9a-f]{{7,64}}\b)
    | (?P<error>\b[A-Za-z_][\w.]{{0,80}}(?:Error|Exception|Failure)\b)
    | (?P<function>(?<=\bdef\ )\w{{3,80}}|(?<=\bfunc\ )\w{{3,80}}|(?<=\bclass\ )\w{{3,80}}|(?<=\bfn\ )\w{{3,80}}
        |\b(?=[A-Za-z]{{1,80}}_|[A-Za-z]?[a-z]{{1,80}}[A-Z])[A-Za-z_]\w{{2,80}}(?=\())
    | (?P<identifier>\b[A-Z]{{2,10}}-\d{{1,8}}\b
        |\b[A-Za-z][A-Za-z0-9]{{0,60}}_\w{{1,80}}\b
        |\b[a-z]{{1,60}}[A-Z]\w{{1,80}}\b
        |\b[A-Z][a-z]{{1,60}}[A-Z]\w{{1,80}}\b
        |\b[A-Za-z_]\w{{1,60}}(?:\.[A-Za-z_]\w{{2,60}}){{1,6}}\b)
    | (?P<number>(?<![\w.,:/-])(?:\d{{4,18}}|\d{{1,9}}(?:\.\d{{1,9}}){{1,3}}
        |\d{{1,3}}(?:,\d{{3}}){{1,5}})%?(?![\w/-]|\.\w))
    """,
    re.VERBOSE,
)
_SHORTEST = 4
_ERROR_TEXT = re.compile(
    r"(?:\b\w{0,60}(?:error|exception|panic|fatal|failed|failure)\b[^:\n]{0,40}: ?|\bE  +)([^\n]{12,160})",
    re.IGNORECASE,
)
_WORD = re.compile(r"[^\W\d_]{4,40}")
_WHOLE_WORD = re.compile(r"(?<![^\W_])(?=\d*[^\W\d_])[^\W_]{4,40}(?![^\W_])")
_MOST_ERRORS = 2_000


class Value(NamedTuple):
    """An exact value and its kind."""

    text: str
    kind: Kind


def values_in(text: str) -> Iterator[Value]:
    """Yield the exact values of a text, in their order; a value that occurs twice comes twice."""
    for match in _VALUE.finditer(text):
        value = match[0].rstrip(".,;:-'\"")
        if len(value) >= _SHORTEST and match.lastgroup:
            yield Value(value, match.lastgroup)  # type: ignore[arg-type]


def error_texts(text: str) -> Iterator[str]:
    """Yield what error messages in a text say, as far as a line goes."""
    for number, match in enumerate(_ERROR_TEXT.finditer(text)):
        if number == _MOST_ERRORS:
            return
        said = match[1].strip(" .\"'`")
        if len(_WORD.findall(said)) >= 2:  # noqa: PLR2004 - a message is more than one word
            yield said


def content_words(text: str) -> set[str]:
    """Return the words of a text that say what it is about."""
    return {word for word in map(str.lower, _WORD.findall(text)) if word not in _COMMON}


def whole_words(text: str) -> set[str]:
    """Return the same with their digits, as a search knows them: "4XGCCM" is one word, of which "xgccm" is none."""
    return {word for word in map(str.lower, _WHOLE_WORD.findall(text)) if word not in _COMMON}


def files_in(text: str) -> set[str]:
    """Return the paths and file names in a text."""
    return {value for value, kind in values_in(text) if kind == "path"}


_COMMON_WORDS = """
    about above after again against also because been before being below between both cannot could does doing done down
    during each ever every from further have having here into itself just like made make many more most much must need
    needs next none only once other over same should since some such than that their them then there these they this
    those through under until upon very want wants well were what when where which while will with within without would
    your yours true false null self return string value values data type name file files line lines text code test
"""
_COMMON = frozenset(_COMMON_WORDS.split())
