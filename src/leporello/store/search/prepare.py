"""What is indexed for a message: one line of terms, the same for every database.

A term is a run of letters and digits, folded (case, accents, compatibility forms) and stemmed; characters of scripts
that are written without spaces, and emoji and other symbols, are terms of their own. Everything else separates, so an
identifier, a path or a uuid is a phrase of its parts. Queries are cut by the same functions, so whatever stands in a
message is found by writing it down again. All of it takes time in proportion to the length of the text.
"""

from __future__ import annotations

import json
import re
import unicodedata
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from leporello.messages import parts_of, text_of, tool_calls_of
from leporello.redact import redact_message
from leporello.store.search.stem import stem

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from leporello.messages import Message
    from leporello.redact import RedactedMessage

PREPARE_VERSION = 2
"""Changes whenever the same message would be indexed differently; an index of another version must be made again."""

FTS_DDL = """CREATE VIRTUAL TABLE IF NOT EXISTS search USING fts5(text, content='', tokenize='ascii')"""
"""The terms are ready-made, so the plainest tokenizer is right: only ASCII characters separate."""

LONGEST_INDEXED = 512 * 1024
"""Characters of a message that search finds: of a longer one the first and the last half of this many."""

_MARGIN = 16 * 1024  # a secret that a cut would make unrecognisable is not longer
_LONGEST_TERM = 128
_DEEPEST_JSON = 100
_LONGEST_REMEMBERED, _MOST_REMEMBERED = 24, 1 << 15

# Scripts without spaces between words: Thai to Myanmar, Khmer, kana, Han, Yi, hangul and their extensions.
_APART = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u2e80-\u2fff\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303b"
    "\u3040-\u312f\u3130-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua000-\ua48f\uac00-\ud7a3\uf900-\ufaff\uff66-\uffdc"
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_SYMBOLS = "\u00a2-\u00a9\u00ac\u00ae-\u00b1\u20a0-\u20cf\u2100-\u214f\u2190-\u2bff\u3200-\u33ff\U0001f000-\U0001fbff"
_INDIC = "\u0900-\u0963\u0966-\u0dff"  # their vowel signs are marks, which \w leaves out
_TERM = re.compile(
    rf"[{_APART}{_SYMBOLS}]|[^\W_{_APART}{_SYMBOLS}]+(?:[{_INDIC}]+[^\W_{_APART}{_SYMBOLS}]*)*|[{_INDIC}]+"
)
_CHARACTERS = re.compile(
    "[\u3005-\u3007\u3040-\u312f\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7a3]+"
)  # all terms as they are
_ALONE = re.compile(f"[{_APART}]")
_SCRIPTS = re.compile(f"[{_APART}]+|[^{_APART}]+")
_IN_PIECES = re.compile("[\u1100-\u11ff\u3099\u309a]")
_PIECES = re.compile("[\u1100-\u11ff]+|[\u3040-\u30ff][\u3099\u309a]")  # hangul and kana written in pieces
# ASCII as it is indexed: in lower case, with spaces for all that separates; other bytes stay.
_ASCII = bytes(ord(chr(code).lower() if chr(code).isalnum() else " ") for code in range(128)) + bytes(range(128, 256))
_SEPARATOR = re.compile(r"[\x00-/:-`{-\x7f]")  # a compatibility form may be spelt with spaces or slashes
# Accents and points that stand after their letter, soft hyphens, joiners and variation selectors.
_INVISIBLE = re.compile("[\u00ad\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u200c\u200d\ufe00-\ufe0f]")


def prepared_text(message: Message) -> str:
    """Return the line of terms to index for a message: who speaks, the text, calls and their arguments; no secrets.

    Of a very long message its two ends are indexed, so that indexing it does not keep other writers waiting.
    """
    return _stemmed(_ends(_indexed(redact_message(_bounded(message)))))


def plain_text(message: Mapping[str, Any]) -> str:
    """Return what a search of this message looks at, as it was written: for ranking and snippets, not for an index."""
    return "\n".join(piece for piece in (_said(message), *_called(message)) if piece)


def stemmed_terms(text: str) -> list[str]:
    """Cut a text into index terms."""
    return _stemmed(text).split()


def folded_terms(text: str) -> list[str]:
    """Cut a text into terms without stemming them: what an exact search compares."""
    terms: list[str] = []
    for piece in _pieces(text):
        if piece.isascii() and len(piece) <= _LONGEST_TERM:
            terms.append(piece)
        else:
            terms += _terms(piece)
    return terms


def pieces_by_script(text: str) -> list[str]:
    """Cut a text where writing without spaces between words begins or ends."""
    return _SCRIPTS.findall(text)


def set_apart(term: str) -> bool:
    """Tell whether a term is one character of a script that is written without spaces."""
    return _ALONE.fullmatch(term) is not None


def _stemmed(text: str) -> str:
    return " ".join(filter(None, map(_STEMMED.__getitem__, _pieces(text))))


def _pieces(text: str) -> list[str]:
    """Split a text at what separates in ASCII: mostly into words in lower case, and into runs of other scripts."""
    return text.encode("utf-8", "surrogatepass").translate(_ASCII).decode("utf-8", "surrogatepass").split()


def _terms(piece: str) -> Iterable[str]:
    return _remembered_terms(piece) if len(piece) <= _LONGEST_REMEMBERED else _cut_terms(piece)


@lru_cache(maxsize=1 << 12)
def _remembered_terms(piece: str) -> tuple[str, ...]:
    return tuple(_cut_terms(piece))


def _cut_terms(piece: str) -> Iterator[str]:
    """Cut a piece into terms; one that is too long is cut again."""
    whole = piece.casefold()
    if _IN_PIECES.search(whole):
        whole = _PIECES.sub(lambda match: unicodedata.normalize("NFC", match[0]), whole)
    whole = _INVISIBLE.sub("", whole)
    terms = whole if _CHARACTERS.fullmatch(whole) else [_folded(term) for term in _TERM.findall(whole)]
    for term in terms:
        for start in range(0, len(term), _LONGEST_TERM):
            yield term[start : start + _LONGEST_TERM]


class _Stemmed(dict[str, str]):
    """The index terms of pieces, as one line each; the same pieces occur again and again, so they are remembered."""

    def __missing__(self, piece: str) -> str:
        line = " ".join(map(stem, _terms(piece)))
        if len(piece) <= _LONGEST_REMEMBERED:
            if len(self) >= _MOST_REMEMBERED:
                self.clear()
            self[piece] = line
        return line


_STEMMED = _Stemmed()


def _folded(term: str) -> str:
    """Fold compatibility forms and accents of a word; ASCII, Chinese, kana and hangul, and symbols stay as they are."""
    if term.isascii() or "\u2e80" <= term[0] <= "\ud7a3" or (len(term) == 1 and not term.isalpha()):
        return term
    plain = _INVISIBLE.sub("", unicodedata.normalize("NFKD", term)).casefold()
    return _SEPARATOR.sub("", plain) or term


def _indexed(message: RedactedMessage) -> str:
    name = message.get("name")
    return "\n".join([name if isinstance(name, str) else "", _said(message), *_called(message)])


def _bounded(message: Message) -> Message:
    """Return a message with nothing but the ends of very long texts, wider than what is indexed of them.

    What stands at the inner cuts, where half of a secret would not be known, is left out after redaction.
    """
    content, calls = message.get("content"), message.get("tool_calls")
    if isinstance(content, str) and len(content) > LONGEST_INDEXED:
        message = {**message, "content": _ends(content, _MARGIN)}
    elif isinstance(content, list):
        message = {**message, "content": [_bounded_at(part, "text") for part in content]}
    if isinstance(calls, list):
        message = {**message, "tool_calls": [_bounded_call(call) for call in calls]}
    return message


def _bounded_call(call: Any) -> Any:
    function = call.get("function") if isinstance(call, dict) else None
    return {**call, "function": _bounded_at(function, "arguments")} if function is not None else call


def _bounded_at(value: Any, key: str) -> Any:
    text = value.get(key) if isinstance(value, dict) else None
    if not isinstance(text, str) or len(text) <= LONGEST_INDEXED:
        return value
    return {**value, key: _ends(text, _MARGIN)}


def _ends(text: str, margin: int = 0) -> str:
    """Return the first and the last part of a very long text, each longer by the margin."""
    half = LONGEST_INDEXED // 2 + margin
    return text if len(text) <= LONGEST_INDEXED else f"{text[:half]}\n{text[-half:]}"


def _said(message: Mapping[str, Any]) -> str:
    """Return the text of a message; a tool's JSON answer is read, so that escapes do not glue words together."""
    text = message.get("content")
    if not isinstance(text, str):
        text = text_of(message)
        other = [str(part["refusal"]) for part in parts_of(message) if isinstance(part.get("refusal"), str)]
        text = "\n".join([text, *other]) if other else text
    is_json = len(text) <= LONGEST_INDEXED and "\\" in text and text.lstrip()[:1] in {"{", "["}
    return "\n".join(_leaves(_json(text), keys=True)) if is_json else text


def _called(message: Mapping[str, Any]) -> Iterator[str]:
    for call in tool_calls_of(message):
        yield call.name
        yield "\n".join(_leaves(call.arguments)) if call.arguments else call.raw


def _json(text: str) -> Any:
    """Read JSON with its numbers as written and repeated keys kept; text that is no JSON is returned as it is."""
    try:
        return json.loads(text, parse_float=str, parse_int=str, object_pairs_hook=_Pairs)
    except (ValueError, RecursionError):
        return text


class _Pairs(list[tuple[str, Any]]):
    """The members of a JSON object, in order."""


def _leaves(value: Any, *, keys: bool = False, depth: int = 0) -> Iterator[str]:
    """Walk a JSON value's strings and numbers; with `keys`, the names of members too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, bool) or value is None:
        return
    elif isinstance(value, int | float) or depth > _DEEPEST_JSON:
        yield str(value)
    elif isinstance(value, dict | _Pairs):
        for key, item in value.items() if isinstance(value, dict) else value:
            if keys:
                yield str(key)
            yield from _leaves(item, keys=keys, depth=depth + 1)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _leaves(item, keys=keys, depth=depth + 1)
