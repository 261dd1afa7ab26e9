"""What the chat shows: the answer as it comes, what tools do, notices, and that something is under way."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from rich.console import Console
from rich.live import Live
from rich.padding import Padding
from rich.spinner import Spinner
from rich.text import Text

from leporello.agent.tools.text import counted, shortened
from leporello.messages.visible import visible

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import RenderableType

_REFRESHES: Final = 8
_INDENT: Final = 4
_LINES: Final = 24
_WIDTH: Final = 400


class Screen:
    """A terminal that is written to; nothing that comes from models, tools or files is obeyed by it.

    `stopping` is set while something that is under way shall stop.
    """

    def __init__(self, console: Console | None = None, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.console = console or Console(highlight=False, markup=False, emoji=False)
        self.stopping = False
        self._clock = clock
        self._live: Live | None = None
        self._midline = False
        self._held = ""

    def say(self, text: str) -> None:
        """Write the next piece of an answer; tabs and long lines are left to the terminal."""
        self.rest()
        text = self._held + text
        self._held = "\r" if text.endswith("\r") else ""  # the rest of this line end may come with the next piece
        shown = visible(text.removesuffix("\r"))
        if shown:
            self._midline = not shown.endswith("\n")
            self.console.file.write(shown)
            self.console.file.flush()

    def end_of_answer(self) -> None:
        """Begin a new line if the answer did not."""
        self.rest()
        self._held = ""
        if self._midline:
            self.console.print()
        self._midline = False

    def line(self, text: str = "", style: str = "") -> None:
        """Write a line, or several; long ones are broken between words."""
        self.end_of_answer()
        self.console.print(Text(visible(text), style=style), overflow="fold")

    def detail(self, text: str, style: str = "dim", *, lines: int = _LINES) -> None:
        """Write the beginning of a text, indented."""
        every = _lines(text)
        shown = [shortened(line, _WIDTH) for line in every[:lines]]
        if len(every) > lines:
            shown.append(f"… {counted(len(every) - lines, 'more line')}")
        self._indented(shown, style)

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

    def busy(self, reason: str) -> None:
        """Show that something is under way, why, and for how long; until the next thing is written."""
        self.end_of_answer()
        if self.console.is_terminal:
            spinner = Spinner("dots", text=_UnderWay(self, visible(reason), self._clock))
            self._live = Live(spinner, console=self.console, transient=True, refresh_per_second=_REFRESHES)
            self._live.start(refresh=True)

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
    """A reason with the seconds since it began, drawn anew each time."""

    def __init__(self, screen: Screen, reason: str, clock: Callable[[], float]) -> None:
        self._screen = screen
        self._reason = reason
        self._clock = clock
        self._start = clock()

    def __rich__(self) -> Text:
        ending = " · stopping; Ctrl-C again does not wait" if self._screen.stopping else ""
        return Text(f"{self._reason} · {self._clock() - self._start:.0f} s{ending}", style="dim")
