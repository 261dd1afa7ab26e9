"""Text from outside, made safe to show.

Nothing that a terminal would obey, and nothing invisible that a reader would obey without seeing it, is passed on:
control characters become pictures (␛); marks and overrides of direction, separators that break lines, and characters
without any width, tags and selectors among them, are written out (<U+202E>). Joiners stay: scripts and emoji need them.

What a user agrees to, such as a command, is shown by `spelled_out`: it writes out everything that is not plainly
seen, joiners and odd spaces too, and `read_back` gives the very same text again.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Final

_UNSAFE: Final = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\ud800-\udfff\U000e0000-\U000e00ff\U000e01f0-\U000e0fff]"
    r"|(?<![\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])[\U000e0100-\U000e01ef]"  # a form of a Chinese character
)
_LINE_BREAKS: Final = {ord("\n"): "␊", ord("\t"): "␉"}
_DELETE, _LAST_C0, _PICTURES = 0x7F, 0x1F, 0x2400


def visible(text: str) -> str:
    """Return a text with every character that is obeyed instead of shown made visible."""
    return _UNSAFE.sub(_picture, text.replace("\r\n", "\n"))


def one_line(text: str) -> str:
    """Return a text for one line of a log: what would break or forge lines is made visible too."""
    return visible(text).translate(_LINE_BREAKS)


def _picture(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code <= _LAST_C0:
        return chr(_PICTURES + code)
    return "␡" if code == _DELETE else f"<U+{code:04X}>"


_NOT_PLAIN: Final = re.compile(r"[^\x20-\x7e\n]| (?=\n|\Z)|<(?=U\+[0-9A-F]{4,6}>)")
_WRITTEN_OUT: Final = re.compile(r"<U\+([0-9A-F]{4,6})>")
_BLANK: Final = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U00013441\U00013442\U00016fe4"
    "\U0001d159\U000e0100-\U000e01ef]"
)
"""Letters, marks and symbols that look like nothing; what else does is a control, a format, a space or unassigned."""


def spelled_out(text: str) -> str:
    """Return a text with every character written out that is not plainly seen; `read_back` undoes it."""
    return _NOT_PLAIN.sub(_spelled, text)


def read_back(text: str) -> str:
    """Return the text that `spelled_out` made visible."""
    return _WRITTEN_OUT.sub(lambda match: chr(int(match[1], 16)), text)


def _spelled(match: re.Match[str]) -> str:
    character = match[0]
    seen = character > "\x7e" and unicodedata.category(character)[0] not in "CZ" and not _BLANK.match(character)
    return character if seen else f"<U+{ord(character):04X}>"
