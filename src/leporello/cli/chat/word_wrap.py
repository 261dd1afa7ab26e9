"""Breaks the line that is typed between words: prompt_toolkit breaks it wherever the screen ends."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from prompt_toolkit.formatted_text import fragment_list_to_text
from prompt_toolkit.layout.processors import Processor, Transformation
from prompt_toolkit.layout.utils import explode_text_fragments
from rich.cells import cell_len

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prompt_toolkit.layout.processors import TransformationInput

_PART: Final = re.compile(r"\S+|\s+")


class WordWrap(Processor):
    """Fills the rest of a screen line with spaces where the next word does not fit; `margin` columns stand before it.

    What is typed stays as it is: the spaces are on the screen only.
    """

    def __init__(self, margin: int) -> None:
        self._margin = margin

    def apply_transformation(self, transformation_input: TransformationInput) -> Transformation:
        """Insert the spaces, and say where what was typed stands now."""
        fragments = explode_text_fragments(transformation_input.fragments)
        text = fragment_list_to_text(fragments)
        gaps = list(gaps_of(text, transformation_input.width - self._margin))
        for place, count in reversed(gaps):
            fragments[place:place] = [("", " " * count)]
        places = [place for place, _ in gaps]
        before = [0]
        for _, count in gaps:
            before.append(before[-1] + count)

        def shown(place: int) -> int:
            return place + before[bisect_right(places, place)]

        def typed(column: int) -> int:
            return max(0, bisect_right(range(len(text) + 1), column, key=shown) - 1)

        return Transformation(fragments, source_to_display=shown, display_to_source=typed)


def gaps_of(text: str, width: int) -> Iterator[tuple[int, int]]:
    """Yield the places of the words that are moved to the next screen line, each with the columns left before it.

    A word needs a column more than it has: for the space behind it, or the cursor.
    """
    column = 0
    for part in _PART.finditer(text):
        needed = cell_len(part[0]) + 1
        if not part[0].isspace() and column > 0 and column + needed > width >= needed:
            yield part.start(), width - column
            column = 0
        for character in part[0]:
            cells = cell_len(character)
            column = cells if column + cells > width else column + cells
