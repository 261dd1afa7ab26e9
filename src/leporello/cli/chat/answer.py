"""An answer on the terminal while it is written: finished lines once, only those that change drawn again."""

from __future__ import annotations

import re
import threading
import time
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from leporello.cli.chat.markdown import blocks, finished, gap, rendered

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console

_PAUSE: Final = 0.05
"""Seconds between two drawings; pieces that come faster are drawn together."""
_SHARE: Final = 4
"""The pause behind a drawing, as a multiple of the time that the drawing took."""
_MARKER: Final = re.compile(r"(?:^|\n)[ \t]*(?:[-+*=_#>|:`~\s]+|\d+[.)]?[ \t]*)\Z")
"""A last line that is a mark so far: of an item, a heading, a table. What it will be is shown when it is known."""
_BEGIN, _END = "\x1b[?2026h", "\x1b[?2026l"
"""What stands between them is shown at once by terminals that know synchronised output; others ignore both."""


class AnswerWriter:
    """Writes one answer, given in pieces, as Markdown.

    The block that is still being written is drawn again from its first line that has changed; of one that is higher
    than the terminal, the end is shown until it is complete. A terminal that cannot move its cursor is sent whole
    blocks. Pieces that come during a pause are drawn at its end by a timer.
    """

    def __init__(self, console: Console, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._moves = not console.is_dumb_terminal
        self._lock = threading.RLock()
        self._text = ""
        self._drawn: list[str] = []
        self._gap = False
        self._next = 0.0
        self._timer: threading.Timer | None = None
        self._closed = False

    def write(self, text: str) -> None:
        """Take the next piece; it must be safe to show."""
        with self._lock:
            self._text += text
            left = self._next - self._clock()
            if left <= 0:
                self._draw()
            elif self._timer is None and self._moves:
                self._timer = threading.Timer(left, self._draw)
                self._timer.daemon = True
                self._timer.start()

    def close(self) -> None:
        """Write what is left; the cursor stands at the beginning of a line then."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()
            if not self._closed:
                self._draw(complete=True)
            self._closed = True

    def _draw(self, *, complete: bool = False) -> None:
        with self._lock:
            if self._closed:
                return
            start, self._timer = self._clock(), None
            done, self._text = (blocks(self._text), "") if complete else finished(self._text)
            lines = []
            for block in done:
                lines += self._lines(block)
                self._gap = gap(block)
            growing = self._lines(_MARKER.sub("", self._text)) if self._moves else []
            self._replace(lines, growing[-(self._console.height - 1) :])
            now = self._clock()
            self._next = now + max(_PAUSE, _SHARE * (now - start))

    def _lines(self, block: str) -> list[str]:
        """Return the lines of a block, with the empty line that stands before it."""
        lines = rendered(block, self._console)
        return ["", *lines] if lines and self._gap else lines

    def _replace(self, done: list[str], growing: list[str]) -> None:
        """Write lines in the place of those that may still change."""
        lines = [*done, *growing]
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(self._drawn, lines, strict=False)))
        back = len(self._drawn) - same
        self._drawn = growing
        if not back and same == len(lines):
            return
        text = "".join(f"{line}\n" for line in lines[same:])
        if self._moves:
            up = f"\x1b[{back}A\r\x1b[J" if back else ""
            text = f"{_BEGIN}{up}{text}{_END}"
        self._console.file.write(text)
        self._console.file.flush()
