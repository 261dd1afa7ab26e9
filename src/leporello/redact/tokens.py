"""Find secrets that carry a published mark, also when line breaks run through them.

Such a secret holds a long run of letters, digits, hyphens and underscores. Finding the runs takes two passes at the
speed of `bytes.translate` and `bytes.find`; only inside and just before a run are prefixes looked for.
"""

from __future__ import annotations

import re
import string
from typing import TYPE_CHECKING

from leporello.redact.formats import BEARER, DISCORD, FORMATS, MAILCHIMP, MAILGUN, TELEGRAM, TERRAFORM, WEBHOOK, Format
from leporello.redact.patterns import any_of
from leporello.redact.spans import Secret, Subject

# Line breaks and backslashes count as part of a run, because a token may be wrapped or stand behind an escape.
RUN = 20
_RUN_SIGNS = frozenset((string.ascii_letters + string.digits + "_-\r\n\\").encode())
_RUN_CLASSES = bytes(ord("A") if code in _RUN_SIGNS else ord(" ") for code in range(256))
_RUN_NEEDLE = b"A" * RUN
# Lower-case words joined by underscores or hyphens are a name in code; a token holds capitals, digits or a long piece.
_LONGER_THAN_WORDS = re.compile(rb"[a-z]{16}")
_NAME_SIGNS = (string.ascii_lowercase + "_-\r\n\\").encode()
_LOOK_BACK = 48
_LONGEST_REST = 4  # of a prefix, behind a sign in it that ends a run
_INDENTS = frozenset(" \t")
_ESCAPES = frozenset("%[")
_LONGEST_ESCAPE = 24
_MAX_JOINED = 1200
_SHORTEST_WRAPPED_LINE = 40
_TERMINAL_WIDTH = 60

_WRAP = re.compile(r"(?:\\{1,4}r)?\\{1,4}n[ \t]*|\\?\r?\n[ \t]*")
_PIECE = re.compile(r"[A-Za-z0-9_.+/=%-]{1,200}+")
_CHUNK = re.compile(r"[A-Za-z0-9_-]{2,512}+(?:\.[A-Za-z0-9_-]{8,512}+){0,2}(?![=:(])")
_ESCAPE_BEFORE = re.compile(r"(?:\\[nrtbf]|%[0-9A-Fa-f]{2}|\\u[0-9A-Fa-f]{4}|\\x[0-9A-Fa-f]{2}|\x1b\[[0-9;]{0,8}m)\Z")


_PREFIXES = any_of(prefix for form in FORMATS for prefix in form.prefixes)
_PREFIX = re.compile(_PREFIXES)
_INNER_PREFIX = re.compile(rf"[-_\r\n\\](?:(?<=\\)(?:[nrtbf]|u[0-9a-fA-F]{{4}}|x[0-9a-fA-F]{{2}}))?(?={_PREFIXES})")

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
# Where a token holds a sign that ends a run, its prefix may stand in an earlier run: the prefixes to look for, by sign.
_BROKEN_PREFIXES = {
    sign: re.compile(any_of(prefix for form in FORMATS if form.holds(sign) for prefix in form.prefixes))
    for sign in "./+%"
}
# Shapes without a prefix, by the character before the run: their kind, how far before it they may begin, the shape.
_AROUND: dict[str, tuple[tuple[str, int, re.Pattern[str]], ...]] = {
    ":": (("telegram-token", 14, TELEGRAM),),
    "%": (("telegram-token", 14, TELEGRAM), ("authorization", 10, BEARER)),
    ".": (("terraform-token", 23, TERRAFORM),),
    "/": (("webhook-url", 80, WEBHOOK),),
    " ": (("authorization", 10, BEARER),),
    "+": (("authorization", 10, BEARER),),
}
_BY_HEAD = {
    head: tuple(form for form in FORMATS if any(prefix.startswith(head) for prefix in form.prefixes))
    for head in {prefix[:2] for form in FORMATS for prefix in form.prefixes}
}


def find_tokens(subject: Subject) -> Iterable[Secret]:
    """Return every secret that its own shape gives away."""
    classes = subject.plain.translate(_RUN_CLASSES)
    first = classes.find(_RUN_NEEDLE)
    return _in_runs(subject, classes, first) if first >= 0 else ()


def _in_runs(subject: Subject, classes: bytes, first: int) -> Iterator[Secret]:
    text, done = subject.text, 0
    for start, end in _runs(classes, first):
        if _is_name(subject.plain, start, end):
            continue
        for candidate in _candidates(subject.flat, start, end):
            if candidate >= done and _begins_here(text, candidate):
                for secret in _chain(text, candidate):
                    yield secret
                    done = secret.end
        unprefixed = _match_unprefixed(text, start, end)
        if unprefixed is not None and unprefixed.start >= done:
            yield unprefixed
            done = unprefixed.end


def _runs(classes: bytes, start: int) -> Iterator[tuple[int, int]]:
    """Yield where the long runs of token characters begin and end, from the first on."""
    while start >= 0:
        end = classes.find(b" ", start + RUN)
        end = len(classes) if end < 0 else end
        yield start, end
        start = classes.find(_RUN_NEEDLE, end)


def _is_name(plain: bytes, start: int, end: int) -> bool:
    return not plain[start:end].translate(None, _NAME_SIGNS) and _LONGER_THAN_WORDS.search(plain, start, end) is None


def _candidates(flat: str, start: int, end: int) -> Iterator[int]:
    """Yield where a known prefix stands: before a run, at its beginning, or inside it after a joint."""
    before = flat[start - 1 : start]
    if (broken := _BROKEN_PREFIXES.get(before)) is not None:
        for hit in broken.finditer(flat, max(0, start - _LOOK_BACK), start + _LONGEST_REST):
            if hit.start() < start:
                yield hit.start()
    if before in _INDENTS and "\n" in flat[max(0, start - RUN) : start]:
        for hit in _PREFIX.finditer(flat, max(0, start - _LOOK_BACK), start):
            yield hit.start()
    elif before in _ESCAPES:
        for hit in _PREFIX.finditer(flat, start, min(end, start + _LONGEST_ESCAPE)):
            yield hit.start()
    if _PREFIX.match(flat, start) is not None:
        yield start
    for hit in _INNER_PREFIX.finditer(flat, start, end):
        yield hit.end()


def _chain(text: str, start: int) -> Iterator[Secret]:
    """Yield the token that begins here, and those that follow it without a gap."""
    while _PREFIX.match(text, start) is not None and (secret := _match(text, start)) is not None:
        yield secret
        start = secret.end


def _match(text: str, start: int) -> Secret | None:
    forms = _BY_HEAD[text[start : start + 2]]
    for form in forms:
        if (match := form.pattern.match(text, start)) is not None:
            return Secret(kind=form.kind, start=start, end=_continued(text, match.end()))
    return _match_wrapped(text, start, forms)


def _begins_here(text: str, start: int) -> bool:
    """Tell whether a word begins here; an escape before it, such as a percent-encoded quote, is not part of it."""
    before = text[start - 1 : start]
    if not (before.isascii() and before.isalnum()):
        return True
    return _ESCAPE_BEFORE.search(text[max(0, start - 12) : start]) is not None


def _match_wrapped(text: str, start: int, forms: tuple[Format, ...]) -> Secret | None:
    """Match a token that line breaks run through."""
    joined, pieces = _unwrapped(text, start)
    if len(pieces) == 1:
        return None
    for form in forms:
        match = form.pattern.match(joined)
        if match is not None and (_is_mixed(match[0]) or match[0].isupper()):
            offset, origin = max(piece for piece in pieces if piece[0] < match.end())
            return Secret(kind=form.kind, start=start, end=_continued(text, origin + match.end() - offset))
    return None


def _unwrapped(text: str, start: int) -> tuple[str, list[tuple[int, int]]]:
    """Join what stands here with the lines it continues on; each piece is (its place in the whole, in the text)."""
    whole = ""
    pieces: list[tuple[int, int]] = []
    position = start
    while len(whole) < _MAX_JOINED and (piece := _PIECE.match(text, position)) is not None:
        pieces.append((len(whole), position))
        whole += piece[0]
        wrap = _WRAP.match(text, piece.end())
        if wrap is None or (len(pieces) > 1 and len(piece[0]) < _SHORTEST_WRAPPED_LINE):
            break
        position = wrap.end()
    return whole, pieces or [(0, start)]


def _continued(text: str, end: int) -> int:
    """Follow a token whose line is full onto the next lines, as long as they look like more of it."""
    while (wrap := _WRAP.match(text, end)) is not None and (chunk := _CHUNK.match(text, wrap.end())) is not None:
        explicit = wrap[0].startswith("\\\n") or wrap[0].startswith("\\\r\n")
        line = text[max(0, end - _TERMINAL_WIDTH) : end]
        full = len(line) == _TERMINAL_WIDTH and _WRAP.search(line) is None
        if not (explicit or (full and _is_mixed(chunk[0]))):
            break
        end = chunk.end()
    return end


def _is_mixed(chunk: str) -> bool:
    """Tell a piece of a token from a word."""
    letters = chunk.strip("0123456789_-.")
    digits = any(map(str.isdigit, chunk))
    return bool(letters) and (digits or not (letters.islower() or letters.isupper() or letters.istitle()))


def _match_unprefixed(text: str, start: int, end: int) -> Secret | None:
    """Match the shapes that begin with any character, by what stands around the run."""
    if text[start + 32 : start + 33] == "-" and (match := MAILGUN.match(text, start)):
        return _secret("mailgun-key", match)
    if (match := _mailchimp(text, start, end)) is not None:
        return _secret("mailchimp-key", match)
    if text[end : end + 1] == "." and (match := DISCORD.search(text, max(start, end - 28), end + 50)):
        return _secret("discord-token", match)
    for kind, look_back, pattern in _AROUND.get(text[start - 1 : start], ()):
        if match := pattern.search(text, max(0, start - look_back), end):
            return _secret(kind, match)
    return None


def _mailchimp(text: str, start: int, end: int) -> re.Match[str] | None:
    """Match the one shape that is told by its end: 32 digits before the name of a data centre."""
    begin = text.find("-us", start, end) - 32
    return MAILCHIMP.match(text, begin) if begin >= start and _begins_here(text, begin) else None


def _secret(kind: str, match: re.Match[str]) -> Secret:
    group = "secret" if "secret" in match.re.groupindex else 0
    return Secret(kind=kind, start=match.start(group), end=match.end(group))
