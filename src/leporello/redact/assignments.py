"""Find the values of names that announce a secret: `password=…`, `"api_key": "…"`, `<password>…`, `密码：…`."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING

from leporello.redact.headers import authorization, cookies, is_basic
from leporello.redact.names import ENDINGS, SUFFIXES, kind_of_name
from leporello.redact.patterns import any_of, places_of
from leporello.redact.spans import Secret, Subject
from leporello.redact.values import is_password, is_placeholder, is_token

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


def _backwards(words: Iterable[str]) -> bytes:
    return any_of(word[::-1] for word in words).encode()


# Separators are rarer than letters, so names are read backwards from them: in a reversed copy of the text, in lower
# case and with one sign for every separator, a name's last letters come right after the separator.
_NORMAL = bytes(ord("=") if chr(code) in ":>" else ord(chr(code).lower()) for code in range(128)) + b"?" * 128
_REVERSED_NAME = re.compile(
    rb"=(?!=)[ \t\"'\\\]`*]{0,6}+(?:\d{1,3}[v_-]{0,2}+|" + _backwards(SUFFIXES) + rb"[_-]?)?" + _backwards(ENDINGS)
)
# The letter of an escape, such as a line break in JSON, is no part of the name that follows it.
_NAME = re.compile(r"(?:(?<=\\)[nrt])?([A-Za-z0-9_.\-]{1,80}+)[ \t\"'\\\]`*]{0,6}+(?:%2[27])?\Z")
_LONGEST_NAME = 90
_LINE_START = re.compile(
    r"(?:\A|\n|\\[nr])(?:[ \t]|\\{1,8}t)*+(?:\d{1,6}[ \t→|:]++)?(?:[+-][ \t]*+)?"
    r"(?:export[ \t]+|set[ \t]+|ENV[ \t]+|ARG[ \t]+)?\Z",
    re.IGNORECASE,
)
# A line ends, also as an escape inside a string, and with the string.
_LINE_END = re.compile(r"\Z|[\r\n<]|\\{1,8}[nr\"]|[\"`]")
_LONGEST_INDENT = 40
_LONGEST_OPERATOR = 8

_OPENING = re.compile(r"[fFrRbBuU]{0,2}(\\{0,3}[\"'`])")
_WIDE = "\u2018-\u2026\u2190-\u21ff\u2e80-\u9fff\uac00-\ud7af\uff00-\uffef"
_BARE = re.compile(rf"[^\s\"'`,;&)}}\]<>|\\{_WIDE}]{{1,512}}+")
_REST = re.compile(rf"[^\s\"'`\\{_WIDE}]{{1,512}}+")
_LONGEST_QUOTED = 16_384
_LONGEST_HEAD = 512

_SEED_PHRASE = re.compile(r"[a-z]{3,8}(?: [a-z]{3,8}){11,23}")
_SIGNATURE = re.compile(r"[A-Za-z0-9+/=%_-]{16,512}")
_HEX_SIGNATURE = re.compile(r"[0-9a-f]{64}")

_ENCODED_SEPARATOR = re.compile(r"%3[ADad](?:%20|%22|%27|\+){0,2}")
_ENCODED_VALUE = re.compile(r"(?:[^\s&\"'<>%]|%(?!2[267Cc])[0-9A-Fa-f]{2}){4,512}+")
_CHINESE = re.compile(r"(?:密码|口令|密钥|令牌)(?:[是为]|[：:=])[是为：:= ]{0,3}[\"'“「`]?([!-~]{4,256}+)")

# The same in JSON that writes every such character as an escape.
_ESCAPED_CHINESE = re.compile(
    r"\\u(?i:5bc6\\{1,4}+u(?:7801|94a5)|53e3\\{1,4}+u4ee4|4ee4\\{1,4}+u724c)"
    r"(?:[:=]|\\{1,4}+u(?i:662f|4e3a|ff1a))(?:[:= ]|\\{1,4}+u(?i:662f|4e3a|ff1a)){0,3}"
    r"(?:['`]|\\{1,4}+(?:\"|u(?i:201c|300c)))?([!#-&(-\[\]-_a-~]{4,256}+)"
)
_SENTENCE_END = ".!?:*"

_LABELS = {"password": "password", "auth": "basic-auth", "phrase": "seed-phrase", "signature": "signature"}


@dataclass(frozen=True, kw_only=True)
class _Value:
    """What follows a name: its beginning, where it ends, and how it stands there.

    `quoted` says that it stands in quotes, `alone` that its line or parameter holds nothing else, `query` that it is a
    parameter of an address.
    """

    head: str
    start: int
    end: int
    quoted: bool = False
    alone: bool = False
    query: bool = False


def find_assignments(subject: Subject) -> Iterable[Secret]:
    """Return the values that stand after a secret's name."""
    text, flat = subject.text, subject.flat
    found: list[Iterable[Secret]] = []
    if separators := _separators(subject.plain):
        found.append(_named(text, separators))
    if "%3" in flat:
        found.append(_find_encoded(subject))
    if text is not flat and ("密" in text or "令" in text):
        found.append(_find_chinese(_CHINESE, text))
    if "\\u" in flat:
        found.append(_find_chinese(_ESCAPED_CHINESE, text))
    return chain.from_iterable(found) if found else ()


def _separators(plain: bytes) -> list[int]:
    """Return, from the first to the last, the separators that may stand after a secret's name."""
    backwards = plain.translate(_NORMAL)[::-1]
    last = len(plain) - 1
    return [last - match.start() for match in _REVERSED_NAME.finditer(backwards)][::-1] if b"=" in backwards else []


def _named(text: str, separators: list[int]) -> Iterator[Secret]:
    done = 0
    for separator in separators:
        if separator < done:
            continue
        found, done = _after(text, separator)
        yield from found


def _after(text: str, separator: int) -> tuple[list[Secret], int]:
    """Return the secrets that the name before this separator announces, and how far the text is done with."""
    named = _name_before(text, separator)
    kind = kind_of_name(named[1]) if named is not None else None
    if named is None or kind is None:
        return [], separator
    name_start = separator - (named.end() - named.start(1))
    if text[separator] == ">" and text[name_start - 1 : name_start] != "<":
        return [], separator
    start = _value_start(text, separator)
    opened = _OPENING.match(text, start)
    if kind == "authorization":
        return authorization(text, opened.end() if opened is not None else start), separator
    if kind == "cookie":
        return cookies(text, opened.end() if opened is not None else start)
    value = _quoted(text, opened) if opened is not None else None
    if value is None:
        cut_off = opened.end() if opened is not None else None
        value = _bare(text, name=named[1], name_start=name_start, separator=separator, start=cut_off or start)
    if kind == "signature" and value.query:
        value = _before_sentence_end(value)
    if not _is_secret(kind, value):
        return [], separator
    end = _whole_end(text, value)
    return [Secret(kind=_LABELS.get(kind, "secret"), start=value.start, end=end)], end


def _name_before(text: str, separator: int) -> re.Match[str] | None:
    return _NAME.search(text[max(0, separator - _LONGEST_NAME) : separator])


def _value_start(text: str, separator: int) -> int:
    """Skip spaces and the rest of an operator such as `==` or `=>`."""
    position = separator + 1
    while position - separator < _LONGEST_OPERATOR and text[position : position + 1] in {"=", ">", " ", "\t"}:
        position += 1
    return position


def _quoted(text: str, opened: re.Match[str]) -> _Value | None:
    """Read up to the quote that closes this one on the same line; None when there is none."""
    start, delimiter = opened.end(), opened[1]
    limit = min(len(text), start + _LONGEST_QUOTED)
    newline = text.find("\n", start, limit)
    limit = newline if newline >= 0 else limit
    end = text.find(delimiter, start, limit)
    while end > start and len(delimiter) == 1 and text[end - 1] == "\\":
        end = text.find(delimiter, end + 1, limit)
    if end < 0:
        return None
    return _Value(head=text[start : min(end, start + _LONGEST_HEAD)], start=start, end=end, quoted=True)


def _bare(text: str, *, name: str, name_start: int, separator: int, start: int) -> _Value:
    """Read a value without quotes: to the next space on a line of its own, else to the next delimiter."""
    own_line = _LINE_START.search(text[max(0, name_start - _LONGEST_INDENT) : name_start]) is not None
    pattern = _REST if own_line else _BARE
    found = pattern.match(text, start)
    head = found[0].rstrip(",;") if found is not None else ""
    end = start + len(head)
    query = text[name_start - 1 : name_start] in {"?", "&", ";"}
    shouted = name.isupper() and text[separator:start] == "=" and not head.isupper()
    ends_line = (own_line or text[separator] == ">") and _LINE_END.match(text, end) is not None
    cut_off = text[start - 1] in "\"'`"
    return _Value(head=head, start=start, end=end, alone=query or shouted or ends_line or cut_off, query=query)


def _before_sentence_end(value: _Value) -> _Value:
    """Leave out the signs that end the sentence in which an address stands."""
    head = value.head.rstrip(_SENTENCE_END)
    return replace(value, head=head, end=value.start + len(head))


def _whole_end(text: str, value: _Value) -> int:
    """Return where a value ends that is longer than the beginning by which it was judged."""
    end = value.end
    while not value.quoted and end - value.start >= _LONGEST_HEAD and (more := _REST.match(text, end)) is not None:
        end = more.end()
    return end


def _is_secret(kind: str, value: _Value) -> bool:
    if kind == "password":
        return is_password(value.head, quoted=value.quoted, alone=value.alone)
    if kind == "auth":
        return is_basic(value.head)
    if kind == "phrase":
        return _SEED_PHRASE.fullmatch(value.head) is not None
    if kind == "signature":
        pattern = _SIGNATURE if value.query else _HEX_SIGNATURE
        return not value.quoted and pattern.fullmatch(value.head) is not None
    return is_token(value.head, quoted=value.quoted)


def _find_encoded(subject: Subject) -> Iterator[Secret]:
    """Yield values whose separator is percent-encoded."""
    text, done = subject.text, 0
    for position in places_of(subject.flat, "%3"):
        separator = _ENCODED_SEPARATOR.match(text, position) if position >= done else None
        named = _name_before(text, position) if separator is not None else None
        kind = kind_of_name(named[1]) if named is not None else None
        if separator is None or kind is None:
            continue
        found = _ENCODED_VALUE.match(text, separator.end())
        value = _Value(head=found[0], start=found.start(), end=found.end(), alone=True, query=True) if found else None
        if value is not None and _is_secret(kind, value):
            yield Secret(kind=_LABELS.get(kind, "secret"), start=value.start, end=value.end)
            done = value.end


def _find_chinese(pattern: re.Pattern[str], text: str) -> Iterator[Secret]:
    """Yield passwords and keys that a Chinese sentence names."""
    for match in pattern.finditer(text):
        value = match[1].rstrip("\"'`,;.")
        if any(map(str.isdigit, value)) and not is_placeholder(value):
            yield Secret(kind="password", start=match.start(1), end=match.start(1) + len(value))
