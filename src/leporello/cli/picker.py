"""A list in the terminal from which one row is chosen with the arrow keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

from prompt_toolkit.application import Application, get_app
from prompt_toolkit.data_structures import Point
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.layout import FormattedTextControl, HSplit, Layout, Window

from leporello.cli.format import wrapped

if TYPE_CHECKING:
    from collections.abc import Sequence

    from prompt_toolkit.formatted_text import StyleAndTextTuples
    from prompt_toolkit.input import Input
    from prompt_toolkit.key_binding import KeyPressEvent
    from prompt_toolkit.output import Output

HELP = "↑ ↓ move, Enter chooses, q leaves everything as it is"


def pick(
    title: str,
    rows: Sequence[str],
    *,
    start: int = 0,
    terminal: tuple[Input, Output] | None = None,
) -> int | None:
    """Let the user choose a row; None when they leave. `terminal` is another one than the process's own."""
    at = start
    keys = KeyBindings()

    def move(by: int) -> None:
        nonlocal at
        at = (at + by) % len(rows)

    @keys.add("up")
    @keys.add("k")
    def _up(_event: KeyPressEvent) -> None:
        move(-1)

    @keys.add("down")
    @keys.add("j")
    def _down(_event: KeyPressEvent) -> None:
        move(1)

    @keys.add("enter")
    def _choose(event: KeyPressEvent) -> None:
        event.app.exit(result=at)

    @keys.add("q")
    @keys.add("escape", eager=True)
    @keys.add("c-c")
    @keys.add("c-d")
    def _leave(event: KeyPressEvent) -> None:
        event.app.exit(result=None)

    def lines() -> list[list[str]]:
        """Return the lines of each row, broken between words."""
        width = get_app().output.get_size().columns
        return [wrapped(f"{'❯' if index == at else ' '} {row}", width) for index, row in enumerate(rows)]

    def screen() -> StyleAndTextTuples:
        shown: StyleAndTextTuples = []
        for index, row in enumerate(lines()):
            shown += [("", "\n" if index else ""), ("reverse" if index == at else "", "\n".join(row))]
        return shown

    def here() -> Point:
        """Return where the chosen row begins: what stands around it is shown when there are more rows than lines."""
        return Point(0, sum(map(len, lines()[:at])))

    control = FormattedTextControl(screen, focusable=True, show_cursor=False, get_cursor_position=here)
    listed = Window(control, dont_extend_height=True)
    source, sink = terminal or (None, None)
    application: Application[int | None] = Application(
        layout=Layout(HSplit([_line("bold", title), listed, _line("italic", HELP)])),
        key_bindings=keys,
        input=source,
        output=sink,
        erase_when_done=True,
    )
    return application.run()


def _line(style: str, text: str) -> Window:
    """Return a line that stays when the rows are scrolled."""
    return Window(FormattedTextControl([(style, text)]), height=1)
