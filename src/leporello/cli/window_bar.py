"""A window of a model drawn as a bar: what it holds, part by part, and where it is folded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Mapping

STYLES: Final = {
    "system": "blue",
    "tools": "magenta",
    "summary": "green",
    "masked": "cyan",
    "messages": "yellow",
}
"""The parts in their order in the window, and how each is drawn."""
_CELLS: Final = {"system": "█", "tools": "▓", "summary": "▒", "masked": "░", "messages": "▄"}


def window_bar(parts: Mapping[str, int], window: int, threshold: int, width: int, *, plain: bool = False) -> Text:
    """Draw a window and its tokens; a red mark stands where it is folded.

    A `plain` bar needs no colours: every part has a cell of its own kind. A part that is there has at least one cell.
    """
    per_cell = max(window, sum(parts.values()), 1) / width
    bar = Text()
    for name, style in STYLES.items():
        tokens = parts.get(name, 0)
        cells = max(1, round(tokens / per_cell)) if tokens else 0
        bar.append((_CELLS[name] if plain else "█") * cells, style=style)
    bar = bar[:width]
    bar.append("·" * (width - len(bar)), style="dim")
    if not threshold:
        return bar
    mark = min(width, round(threshold / per_cell))
    return Text.assemble(bar[:mark], ("│", "red"), bar[mark:])


def legend(name: str, *, plain: bool = False) -> Text:
    """Return the sign of a part."""
    return Text(_CELLS[name] if plain else "█", style=STYLES[name])
