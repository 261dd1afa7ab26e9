"""Text from strangers, made safe to show.

Nothing that a terminal would obey, and nothing invisible that a reader would obey without seeing it, is passed on:
control characters become pictures (␛); marks and overrides of direction, separators that break lines, and characters
without any width, tags and selectors among them, are written out (<U+202E>). Joiners stay: scripts and emoji need them.
"""

from __future__ import annotations

import re
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
