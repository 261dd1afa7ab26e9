"""Put the finders together: find, replace, and withhold the text when that cannot be finished."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TypeAlias

from leporello.errors import RedactionError
from leporello.redact.assignments import find_assignments
from leporello.redact.blocks import find_blocks
from leporello.redact.names import kind_of_name
from leporello.redact.places import find_places
from leporello.redact.redacted import Redacted, clean
from leporello.redact.rules import installed_rules
from leporello.redact.spans import Secret, Subject, merged
from leporello.redact.tokens import RUN, find_tokens
from leporello.redact.values import is_password, is_token

Finder: TypeAlias = Callable[[Subject], Iterable[Secret]]

WITHHELD = clean("[WITHHELD: this text could not be searched for secrets]")
"""Stands in the place of a text that the redactor could not finish."""
FINDERS: tuple[Finder, ...] = (find_blocks, find_tokens, find_places, find_assignments)

# Most short texts are words between signs that announce nothing. A secret has a long run, a sign such as = : - or %, a
# letter beyond ASCII, or the word "login" before it.
_LONGEST_PROSE = 1_000
_PROSE = re.compile(rf"(?:\w{{0,{RUN - 1}}}+[ \n.,;?!'\"()/]++)*+\w{{0,{RUN - 1}}}+", re.ASCII)
_LONGEST_TEXT = 64_000_000
_DEEPEST_VALUE = 200
_MOST_PASSES = 6
_REACH = 500_000
# A search of a very long text in one go would keep every other thread waiting.
_STEP, _VIEW = 250_000, 50_000

# The loggers above this one redact what they are told, and this one tells what redacting cannot do.
_log = logging.getLogger("leporello.redact")


def secrets(text: str) -> list[Secret]:
    """Return the secrets in a text, in order and without overlaps; raise RedactionError when it cannot be searched."""
    return _search(text, (*FINDERS, *installed_rules()))


def redact(text: str) -> Redacted:
    """Replace every secret by `[REDACTED:<kind>]`; return WITHHELD, never the text, when that cannot be finished."""
    if isinstance(text, Redacted):
        return text
    rules = installed_rules()
    plain = type(text) is str and not rules and len(text) <= _LONGEST_PROSE
    if plain and _PROSE.fullmatch(text) and "login" not in text:
        return clean(text)
    return _redact(text, (*FINDERS, *rules))


def redact_part(text: str, start: int, stop: int, found: Sequence[Secret] | None = None) -> Redacted:
    """Redact the part of a text from `start` up to, and without, `stop`, with what surrounds it in view.

    Half of a secret has no shape, and a value whose name was cut off has no name; so the secrets are those of the
    text, which a caller who needs many parts of it finds once and hands over as `found`.
    """
    if found is None:
        first, last = max(0, start - _REACH), min(len(text), stop + _REACH)
        text, start, stop = text[first:last], start - first, stop - first
    try:
        found = secrets(text) if found is None else found
    except RedactionError:
        return WITHHELD
    inside = [
        Secret(kind=secret.kind, start=max(0, secret.start - start), end=min(stop, secret.end) - start)
        for secret in found
        if secret.start < stop and secret.end > start
    ]
    return redact(_replaced(text[start:stop], inside))


def _search(text: str, finders: tuple[Finder, ...]) -> list[Secret]:
    if len(text) > _LONGEST_TEXT:
        raise RedactionError(
            f"a text of {len(text):,} characters is longer than the {_LONGEST_TEXT:,} that are searched"
        )
    return _stepwise(text, finders) if len(text) > 2 * _STEP else _found(text, finders)


def _found(text: str, finders: tuple[Finder, ...]) -> list[Secret]:
    subject = Subject(text=text)
    found = [secret for find in finders for secret in find(subject)]
    return merged(found) if found else []


def _stepwise(text: str, finders: tuple[Finder, ...]) -> list[Secret]:
    """Search a very long text in steps, each with what surrounds it in view."""
    found: list[Secret] = []
    done = 0
    for step in range(0, len(text), _STEP):
        first, last = max(0, step - _VIEW), min(len(text), step + _STEP + _VIEW)
        for secret in _found(text[first:last], finders):
            start, end = secret.start + first, secret.end + first
            if max(step, done) <= start < step + _STEP:
                if end == last < len(text):  # it may go on beyond what is in view
                    return _found(text, finders)
                found.append(Secret(kind=secret.kind, start=start, end=end))
                done = end
    return found


def _redact(text: str, finders: tuple[Finder, ...]) -> Redacted:
    try:
        return clean(_replaced_until_clean(text, finders))
    except Exception as error:  # noqa: BLE001 - whatever goes wrong, the text must not travel
        # The message of an unexpected error may quote the text, so only its type is logged.
        reason = str(error) if isinstance(error, RedactionError) else type(error).__name__
        _log.error("a text was withheld: %s", reason)
        return WITHHELD


def _replaced_until_clean(text: str, finders: tuple[Finder, ...]) -> str:
    """Replace again what becomes visible by a replacement, so that redacting twice is redacting once."""
    for _ in range(_MOST_PASSES):
        found = _search(text, finders)
        if not found:
            return text
        text = _replaced(text, found)
    raise RedactionError(f"secrets are still found after {_MOST_PASSES} passes")


def _replaced(text: str, found: list[Secret]) -> str:
    return "".join(_parts(text, found))


def _parts(text: str, found: list[Secret]) -> Iterator[str]:
    position = 0
    for secret in found:
        yield text[position : secret.start]
        yield f"[REDACTED:{secret.kind}]"
        position = secret.end
    yield text[position:]


def redact_value(value: object) -> object:
    """Return a JSON-like value with the secrets of all its strings replaced; the value of a secret's key is one."""
    return _redact_value(value, key="", depth=0)


def _redact_value(value: object, *, key: str, depth: int) -> object:
    if depth > _DEEPEST_VALUE:
        return WITHHELD
    if isinstance(value, str):
        return _redact_keyed(key, value)
    if isinstance(value, dict):
        return {
            _redact_name(name) if isinstance(name, str) else name: _redact_value(
                item, key=name if isinstance(name, str) else "", depth=depth + 1
            )
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_redact_value(item, key=key, depth=depth + 1) for item in value]
    return value


@lru_cache(maxsize=1024)
def _redact_name(name: str) -> Redacted:
    """Redact the name of a member; the same few occur again and again."""
    return redact(name)


def _redact_keyed(key: str, value: str) -> Redacted:
    """Redact a string whose key may say that the whole of it is a secret."""
    kind = kind_of_name(key) if key else None
    if kind == "password" and is_password(value, quoted=True, alone=True):
        return clean("[REDACTED:password]")
    if kind in {"token", "key", "secret"} and is_token(value, quoted=True):
        return clean("[REDACTED:secret]")
    return redact(value)
