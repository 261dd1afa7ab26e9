"""Exact values: what cannot be guessed again once it is gone."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

from leporello.summary.artifacts.spots import whole_line

if TYPE_CHECKING:
    from collections.abc import Iterator

_LONGEST = 200
# Every quantifier is bounded and every branch begins at the edge of a word: linear on any input.
_VALUE = re.compile(
    r"""(?<![A-Za-z0-9_])(?:
    (?P<url>(?:https?|wss?|ftp|ssh|git|postgres(?:ql)?|mysql|redis|mongodb|s3|file)://[^\s"'`<>)\]{}$，。、；]{2,200})
    | (?P<uuid>[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b)
    | (?P<date>\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d[\d:.Z+-]{0,20})?)
    | (?P<address>(?:\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?|localhost:\d{1,5})\b)
    | (?P<version>(?:[A-Za-z][\w.-]{0,40}(?:==|>=|~=|@\^?))?v?\d{1,4}\.\d{1,5}\.\d{1,6}(?:[-.+][0-9A-Za-z]{1,9}){0,3}\b)
    | (?P<setting>[A-Z][A-Z0-9_]{2,40}=(?!\d)[\w./:@%+-]{1,80})
    | (?P<amount>[$€£¥￥]\d(?:[\d,]{1,14}(?:\.\d{1,4})?|\.\d{1,4})(?![\w{]))
    | (?P<ticket>[A-Z][A-Z0-9]{1,9}-\d{1,8}\b)
    | (?P<hash>(?=[0-9a-f]{0,38}[a-f])(?=[0-9a-f]{0,38}\d)(?:[0-9a-f]{64}|[0-9a-f]{40}|[0-9a-f]{32}|[0-9a-f]{7,12})\b)
    | (?P<code>(?=[A-Z]{0,11}\d)(?=\d{0,11}[A-Z])[A-Z0-9]{5,12}\b)
    | (?P<id>(?<!\w\.)[A-Za-z][A-Za-z0-9]{0,30}(?:[-_][A-Za-z0-9]{1,40}){0,7}
        [-_](?:\d{3,20}|[A-Za-z]{0,6}\d[A-Za-z0-9]{2,20})(?:[-_][A-Za-z0-9]{1,40}){0,7}\b)
    | (?<![.,:/-])(?P<number>\#?\d{1,3}(?:,\d{3}){1,5}(?:\.\d{1,6})?(?![\w/-])|\#?\d{4,18}(?:\.\d{1,8})?(?![\w/-])
        |\d{1,9}\.\d{1,8}%?(?![\w/.-]))
    )""",
    re.VERBOSE | re.ASCII,
)
MAY_HOLD_VALUE = re.compile(r"[0-9=]|://")
"""What every exact value holds; it is found much faster."""
_KINDS = {"ticket": "id", "code": "id"}
_UNNAMED = frozenset({"url", "setting", "version", "amount"})
_SEPARATOR = re.compile(r"""[:=：是为]["'`*]{0,3} ?["'`*]{0,3}([$€£¥￥+-]?\d[\w.,:%/+-]{0,60})""")
_NAME_BEFORE = re.compile(r"(?:(?<![A-Za-z0-9_.-])[A-Za-z_][\w.-]{1,40}|[\u3400-\u9fff]{2,10})$")
_BETWEEN = " \"'`*])"
_DULL_NAMES = frozenset(
    {"line", "lines", "col", "column", "lineno", "index", "length", "step", "width", "height", "size"}
)
_PLACES = frozenset({"line", "lines", "col", "column"})  # a number behind them says where to look, not what holds
_OF_THE_RUN = re.compile(
    r"(?:duration|elapsed)(?:_?ms|_?seconds)?|(?:total|input|output|prompt|completion|cache_\w+)_tokens"
)
_TYPES = frozenset({
    "int", "float", "str", "bool", "number", "string", "Decimal", "double", "long",
    "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "usize", "f32", "f64",
})  # fmt: skip
_NAME = r"(?P<name>[A-Za-z_][\w.-]{1,40}|[\u3400-\u9fff]{2,10})"
_NAME_WITH_SIGN = re.compile(r"(?<![\w.])" + _NAME + r"[\"'`*]{0,3} ?[:=：] ?[\"'`*(\[]{0,3}$")
_NAME_REACH = 52
_SPOKEN_NUMBER = re.compile(
    r"(?<![\w.,:/-])[#$€£¥￥]?\d(?:[\d,.]{0,18}\d)?(?:[ \t]?(?:%|[^\W\d_][^\W\d_-]{0,20}))?(?!\w)"
)
_WORDS_BEFORE = re.compile(r"(?:\b[^\W\d_][\w'-]{1,24}[ \t]){1,2}\Z")
_WORDS_REACH = 52
_FILE_NAME = re.compile(r"\.[a-z]{1,5}$")
_LITTLE_WORDS = frozenset({
    "a", "an", "and", "are", "as", "at", "be", "but", "by", "for", "from", "has", "have", "i", "if", "in", "is", "it",
    "its", "me", "my", "of", "on", "or", "so", "than", "that", "the", "then", "this", "to", "use", "was", "we",
    "will", "with",
})  # fmt: skip


def values_in(words: str) -> Iterator[tuple[str, str, str]]:
    """Yield (word, kind, value) for the exact values in words that stand one to a line."""
    for match in _VALUE.finditer(words):
        kind = match.lastgroup or ""
        text = match[0].rstrip(".,;:'\"")
        if kind != "date" and text:
            yield whole_line(words, match.start()), _KINDS.get(kind, kind), text


def pairs_at(text: str) -> Iterator[tuple[int, str]]:
    """Yield (position, "name: value") for every number behind a name and a colon or an equals sign.

    An address such as "tide.example:8443/events" is written as it stands.
    """
    for match in _SEPARATOR.finditer(text):
        start = match.start()
        before = text[max(0, start - 44) : start].rstrip(_BETWEEN)
        word = before[before.rfind(" ") + 1 :]
        if word in _TYPES:  # "limit: int = 250" is about a limit
            before = before[: -len(word)].rstrip(" :")
            word = before[before.rfind(" ") + 1 :]
        if name := _name_at_end(word):
            value = match[1].rstrip(".,:;-/")
            is_address = "." in name and text.startswith(f"{name}:{value}", start - len(name))
            yield start, f"address: {name}:{value}" if is_address else f"{name}: {value}"


@lru_cache(maxsize=4_096)
def _name_at_end(words: str) -> str:
    """Return the name that words end with, or ""; the same few names stand before most numbers."""
    name = _NAME_BEFORE.search(words)
    if not name or name[0].lower() in _DULL_NAMES or _OF_THE_RUN.fullmatch(name[0].lower()):
        return ""
    return "" if _FILE_NAME.search(name[0]) else name[0]


def spoken_numbers(text: str) -> Iterator[str]:
    """Yield the numbers of a spoken text with the words next to them ("limit of 250 requests")."""
    end = 0
    for match in _SPOKEN_NUMBER.finditer(text):
        number = match.start()
        before = _WORDS_BEFORE.search(text, max(end, number - _WORDS_REACH), number)
        end = match.end()
        words = text[before.start() if before else number : end].split()
        while len(words) > 1 and words[-1].lower() in _LITTLE_WORDS:
            words.pop()
        while len(words) > 1 and words[0].lower() in _LITTLE_WORDS:
            words.pop(0)
        phrase = " ".join(words)
        if before and before[0].split()[-1].lower() in _PLACES:
            continue
        if not phrase.isdigit() or len(phrase) > 3:  # noqa: PLR2004 - a bare short number says nothing
            yield phrase


def named(text: str, kind: str, value: str) -> str:
    """Return the value with the name that stands before it in the text, where there is one; "" when a pair says it."""
    if kind in _UNNAMED:
        return value
    position = text.find(value)
    match = _NAME_WITH_SIGN.search(text, max(0, position - _NAME_REACH), max(0, position))
    if not match:
        return value
    return "" if kind == "number" else f"{match['name']}: {value}"
