"""What is typed is broken between words on the screen, and stays as it was typed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st
from prompt_toolkit.application import create_app_session
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.layout.controls import BufferControl
from prompt_toolkit.layout.processors import TransformationInput
from rich.cells import cell_len

from leporello.cli.chat.word_wrap import WordWrap, gaps_of

if TYPE_CHECKING:
    from tests.fixtures.chat import Place

WITHOUT_WIDTH = "\ufe0f"
LONG = "Write a long story about ship number 4, a harbour and 3 containers, with a happy end, and tell me who wrote it."


def rows(text: str, width: int) -> list[str]:
    """Break a text as a terminal does: wherever the screen ends."""
    lines, column = [""], 0
    for character in text:
        cells = cell_len(character)
        if column + cells > width:
            lines.append("")
            column = 0
        lines[-1] += character
        column += cells
    return lines


def shown(text: str, width: int, margin: int = 2) -> tuple[str, list[int], list[int]]:
    """Return what stands on the screen, where each place of the text is there, and the way back."""
    with create_app_session():
        control = BufferControl(Buffer())
        given_ = TransformationInput(control, Buffer().document, 0, lambda x: x, [("", text)], width + margin, 10)
        made = WordWrap(margin).apply_transformation(given_)
    displayed = "".join(fragment[1] for fragment in made.fragments)
    places = [made.source_to_display(place) for place in range(len(text) + 1)]
    return displayed, places, [made.display_to_source(place) for place in places]


@given(st.text("ab c数️é-", max_size=60), st.integers(1, 12))
def test_no_word_is_cut_that_fits_and_every_place_is_found_again(text: str, width: int) -> None:
    displayed, places, back = shown(text, width)
    assert back == list(range(len(text) + 1))
    assert "".join(displayed[place] for place in places[:-1]) == text
    assert displayed.replace(" ", "") == text.replace(" ", "")
    words = [word.lstrip(WITHOUT_WIDTH) for word in text.split()]  # in front, it belongs to the space before it
    cut = [word for word in words if cell_len(word) < width and not any(word in row for row in rows(displayed, width))]
    assert cut == []


def test_planted_a_line_that_is_broken_anywhere() -> None:
    assert any(word not in " ".join(rows(LONG, 58)).split() for word in LONG.split())
    assert dict(gaps_of(LONG, 58)) != {}


@pytest.mark.slow
@pytest.mark.parametrize("columns", [60, 80, 160])
def test_a_long_line_is_typed_and_sent_as_it_is(place: Place, columns: int) -> None:
    place.server.script("I will.")
    with place.chat(columns=columns) as chat:
        chat.wait_until(chat.listens)
        chat.type(LONG)
        chat.wait_until(lambda: LONG in chat.words(), "the words, none of them cut")
        chat.type(chat.ENTER)
        chat.wait_for("I will.")
    assert place.sent()[-1]["content"] == LONG
