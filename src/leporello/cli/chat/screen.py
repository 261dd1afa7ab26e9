"""What the chat shows: the answer as it comes, what tools do, notices, and that something is under way."""

from __future__ import annotations

import time
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.spinner import Spinner
from rich.text import Text

from leporello.agent.tools.text import counted, shortened
from leporello.cli.chat.answer import AnswerWriter
from leporello.cli.format import wrapped
from leporello.messages.visible import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import RenderableType

_REFRESHES: Final = 8
_INDENT: Final = 4
_LINES: Final = 24
_NEWEST: Final = 6
_WIDTH: Final = 400


class Screen:
    """A terminal that is written to; nothing that comes from models, tools or files is obeyed by it.

    `stopping` is set while something that is under way shall stop.
    """

    def __init__(self, console: Console | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.console: Console = console or Console(highlight=False, markup=False, emoji=False)
        self.stopping = False
        self._clock = clock
        self._live: Live | None = None
        self._answer: AnswerWriter | None = None
        self._midline = False
        self._held = ""

    def say(self, text: str) -> None:
        """Write the next piece of an answer: as Markdown on a terminal, else as the model wrote it."""
        self.rest()
        text = self._held + text
        self._held = "\r" if text.endswith("\r") else ""  # the rest of this line end may come with the next piece
        shown = visible(text.removesuffix("\r"))
        if not shown:
            return
        if self.console.is_terminal:
            self._answer = self._answer or AnswerWriter(self.console)
            self._answer.write(shown)
            return
        self._midline = not shown.endswith("\n")
        self.console.file.write(shown)
        self.console.file.flush()

    def end_of_answer(self) -> None:
        """Begin a new line if the answer did not."""
        self.rest()
        self._held = ""
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.close()
        if self._midline:
            self.console.print()
        self._midline = False

    def line(self, text: str = "", style: str = "") -> None:
        """Write a line, or several; long ones are broken between words, and continued below their text."""
        self.end_of_answer()
        lines = (part for line in visible(text).split("\n") for part in wrapped(line, self.console.width))
        self.console.print(Text("\n".join(lines), style=style), overflow="fold")

    def detail(self, text: str, style: str = "dim", *, lines: int = _LINES) -> None:
        """Write the beginning of a text, indented."""
        every = _lines(text)
        shown = [shortened(line, _WIDTH) for line in every[:lines]]
        if len(every) > lines:
            shown.append(f"… {counted(len(every) - lines, 'more line')}")
        self._indented(shown, style)

    def ends(self, text: str, style: str = "dim", *, lines: int) -> None:
        """Write the beginning and the end of a text, indented: what a command says last matters most."""
        every = [shortened(line, _WIDTH) for line in _lines(text)]
        if len(every) > lines:
            first, last = lines - lines // 2, lines // 2
            every[first:-last] = [f"… {counted(len(every) - lines, 'more line')}"]
        self._indented(every, style)

    def whole(self, text: str) -> None:
        """Write all of a text, however long, indented; long lines are left to the terminal."""
        self.end_of_answer()
        self.console.file.writelines(f"{' ' * _INDENT}{line}\n" for line in _lines(text))
        self.console.file.flush()

    def notice(self, text: str) -> None:
        """Write something the user should know."""
        self.line(text, "yellow")

    def problem(self, text: str) -> None:
        """Write what went wrong."""
        self.line(text, "red")

    def show(self, thing: RenderableType) -> None:
        """Write a table, or anything else that rich can draw."""
        self.end_of_answer()
        self.console.print(thing)

    def busy(self, reason: str, *, about: float | None = None, left: float | None = None) -> None:
        """Show that something is under way, why, and for how long; until the next thing is written.

        `about` is an estimate of the seconds that it takes; `left` counts down the seconds to the next attempt.
        """
        self.end_of_answer()
        if self.console.is_terminal:
            self._under_way = _UnderWay(self, visible(reason), self._clock, about=about, left=left)
            self._live = Live(self._under_way, console=self.console, transient=True, refresh_per_second=_REFRESHES)
            self._live.start(refresh=True)

    def output(self, text: str) -> None:
        """Show the newest lines that something writes, below what says that it is under way."""
        if self._live is not None:
            self._under_way.newest.extend(_lines(text))

    def rest(self) -> None:
        """Take away what shows that something is under way."""
        live, self._live = self._live, None
        if live is not None:
            live.stop()

    @contextmanager
    def while_busy(self, reason: str) -> Iterator[None]:
        """Show for the length of a block that something is under way."""
        self.busy(reason)
        try:
            yield
        finally:
            self.rest()

    def _indented(self, lines: list[str], style: str) -> None:
        self.end_of_answer()
        self.console.print(
            Padding(Text("\n".join(lines), style=style, overflow="fold"), (0, 0, 0, _INDENT), expand=False)
        )


def is_cut(text: str) -> bool:
    """Tell whether `Screen.detail` leaves something of a text out."""
    every = _lines(text)
    return len(every) > _LINES or any(len(line) > _WIDTH for line in every)


def _lines(text: str) -> list[str]:
    return visible(text).rstrip("\n").split("\n")


class _UnderWay:
    """A reason with the seconds since it began, and the newest lines of output, drawn anew each time."""

    def __init__(
        self, screen: Screen, reason: str, clock: Callable[[], float], *, about: float | None, left: float | None
    ) -> None:
        self._screen = screen
        self._about = about
        self._left = left
        self._reason = reason
        self._clock = clock
        self._start = clock()
        self._spinner = Spinner("dots", text=_Told(self._told))
        self.newest: deque[str] = deque(maxlen=_NEWEST)

    def __rich__(self) -> Group:
        newest = [
            Text(f"{' ' * _INDENT}{line}", style="dim", no_wrap=True, overflow="ellipsis") for line in self.newest
        ]
        return Group(*newest, self._spinner)

    def _told(self) -> str:
        ending = " · stopping; Ctrl-C again does not wait" if self._screen.stopping else ""
        passed = self._clock() - self._start
        if self._left is not None:
            return f"{self._reason}, in {max(0.0, self._left - passed):.0f} s{ending}"
        about = "" if self._about is None else f" of about {max(1.0, self._about):.0f} s"
        return f"{self._reason} · {passed:.0f} s{about}{ending}"


class _Told:
    """A text that is asked for whenever it is drawn."""

    def __init__(self, tell: Callable[[], str]) -> None:
        self._tell = tell

    def __rich__(self) -> Text:
        return Text(self._tell(), style="dim")
