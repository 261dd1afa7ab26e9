"""Find private keys that are written as a block of lines: PEM, OpenPGP, SSH and PuTTY."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from leporello.redact.spans import Secret, Subject

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_LABEL = r"(?:[A-Z0-9]{1,12} ){0,4}PRIVATE KEY(?: BLOCK)? ?-{4,5}"
_MARK = re.compile(rf"-----? ?(?:(?P<begin>BEGIN)|END) {_LABEL}")
_PUTTY = re.compile(r"(?P<begin>Private-Lines): ?\d{1,4}")
_LONGEST_BLOCK = 32_768
_MATERIAL = re.compile(r"[A-Za-z0-9+/]{16}")

_BREAK = r"(?:(?:\\{1,4}r)?\\{1,4}n|\r?\n)"
_MARGIN = r"[ \t>|+#*\"'0-9→:]{0,16}?"
_HEADER = r"(?:Proc-Type|DEK-Info|Version|Comment|Subject|Hash|Charset): ?[^\n\\]{0,200}"
_DATA = r"(?:[A-Za-z0-9+/]{16,4096}+={0,2}|[A-Za-z0-9+/]{1,15}=)[\"',+ ]{0,4}"
_BODY = re.compile(
    rf"(?:{_BREAK}{_MARGIN}(?:{_HEADER}|{_DATA}|(?={_BREAK}))|[ \t]?[A-Za-z0-9+/]{{40,4096}}+={{0,2}})*+"
)
_LINE_BREAK = re.compile(_BREAK)
_LINE_BEFORE_END = re.compile(rf"{_MARGIN}[A-Za-z0-9+/]{{1,512}}={{0,2}}[\"',+ ]{{0,4}}")


def find_blocks(subject: Subject) -> Iterable[Secret]:
    """Return every private key block, whole or cut off at either end."""
    return _blocks(subject.text) if "PRIVATE KEY" in subject.flat or "Private-Lines" in subject.flat else ()


def _blocks(text: str) -> Iterator[Secret]:
    marks = list(_MARK.finditer(text)) if "PRIVATE KEY" in text else []
    if "Private-Lines" in text:
        marks = sorted([*marks, *_PUTTY.finditer(text)], key=re.Match.start)
    done = 0
    for index, mark in enumerate(marks):
        if mark.start() < done:
            continue
        following = marks[index + 1] if index + 1 < len(marks) else None
        span = _block(text, mark, following) if mark["begin"] else _headless(text, mark, done)
        if span is not None:
            yield Secret(kind="private-key", start=span[0], end=span[1])
        done = span[1] if span is not None else mark.end()


def _block(text: str, begin: re.Match[str], following: re.Match[str] | None) -> tuple[int, int] | None:
    """Return the block that begins here; None when no key follows the mark, as in code that only names it."""
    limit = following.start() if following is not None else len(text)
    closed = following is not None and following["begin"] is None and limit - begin.end() <= _LONGEST_BLOCK
    if closed and following is not None:
        return (begin.start(), following.end()) if _MATERIAL.search(text, begin.end(), limit) else None
    body = _BODY.match(text, begin.end(), limit)
    return (begin.start(), body.end()) if body is not None and _MATERIAL.search(body[0]) else None


def _headless(text: str, end: re.Match[str], done: int) -> tuple[int, int] | None:
    """Return the lines of a key whose beginning was cut off, up to its end mark."""
    start = position = end.start()
    earliest = max(done, start - _LONGEST_BLOCK)
    breaks = [found.span() for found in _LINE_BREAK.finditer(text, earliest, start)]
    lines = zip([earliest, *(after for _, after in breaks)], (before for before, _ in breaks), strict=False)
    for line_start, line_end in reversed(list(lines)):
        if _LINE_BEFORE_END.fullmatch(text, line_start, line_end) is None:
            break
        position = line_start
    return (position, end.end()) if _MATERIAL.search(text, position, start) else None
