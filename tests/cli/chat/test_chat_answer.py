"""An answer as it streams: rendered as Markdown, wrapped between words, without flicker, nothing lost or obeyed."""

from __future__ import annotations

import io
import re
from itertools import count, pairwise
from typing import TYPE_CHECKING

import pyte
import pytest
from hypothesis import given, settings, strategies as st
from rich.console import Console
from rich.markdown import Markdown

from leporello.cli.chat.answer import AnswerWriter
from leporello.cli.chat.markdown import blocks, rendered
from leporello.messages.visible import visible

if TYPE_CHECKING:
    from collections.abc import Sequence

pytestmark = pytest.mark.slow

WIDTHS = [60, 80, 160]
PARAGRAPH = (
    "The **parser** reads `tokens` one by one, and says where it went wrong, with the line and the column of it."
)
SAMPLES = [
    PARAGRAPH,
    "# Plan\nWhat comes first.",
    "- one item that is long enough to be wrapped at a width of sixty columns, I hope\n- two\n  1. nested\n  2. again",
    "| file | lines |\n|------|------:|\n| `parser.py` | 120 |\n| b.py | 3 |",
    "```\ndef f(x):\n\n    return x  # ```\n```",
    "> quoted\n> twice",
    "See [the repo](http://example.org/x?a=1) and ![a picture](http://a.b/c.png), <b>not bold</b>, <http://auto.link>.",
    "[x]: http://definition.example/",
    "Heading\n=======",
    "---",
    "1. first\n2. second\n\n\n3. third",
]
HOSTILE = [
    "&#27;[2J",
    "&#x202e;txt.exe",
    "\x1b]0;owned\x07",
    "\x1b[2J",
    "a\x9b31m",
    "[x](<&#27;[2J>)",
    "```&#27;\nx\n```",
]
OURS = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?2026[hl]|\x1b\[\d+A\r\x1b\[J")
OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class Terminal(io.StringIO):
    """A terminal with a screen that never scrolls; `frames` are what a person may have seen: the text after a write."""

    def __init__(self, width: int, *, watched: bool = False) -> None:
        super().__init__()
        self.screen = pyte.Screen(width, 150)
        self._stream = pyte.Stream(self.screen)
        self._watched = watched
        self.frames: list[str] = []

    def write(self, text: str) -> int:
        self._stream.feed(text.replace("\n", "\r\n"))
        if text and self._watched:
            self.frames.append(self.text())
        return super().write(text)

    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip()


class FlickeringWriter(AnswerWriter):
    """A writer that clears what may still change before it draws it."""

    def _replace(self, done: list[str], growing: list[str]) -> None:
        if self._drawn:
            self._console.file.write(f"\x1b[{len(self._drawn)}A\r\x1b[J")
            self._drawn = []
        super()._replace(done, growing)


def streamed(
    pieces: Sequence[str],
    width: int = 80,
    *,
    writer: type[AnswerWriter] = AnswerWriter,
    dumb: bool = False,
    watched: bool = False,
) -> Terminal:
    """Write an answer piece by piece, each drawn at once."""
    file, ticks = Terminal(width, watched=watched), count()
    environ = {"TERM": "dumb" if dumb else "xterm"}
    console = Console(file=file, force_terminal=True, width=width, height=300, color_system=None, _environ=environ)
    answer = writer(console, clock=lambda: float(next(ticks)))
    for piece in pieces:
        answer.write(visible(piece))
    answer.close()
    return file


def letters(text: str) -> str:
    return "".join(filter(str.isalnum, text))


texts = st.lists(st.sampled_from(SAMPLES), min_size=1, max_size=5).flatmap(
    lambda parts: st.sampled_from(["\n\n", "\n"]).map(lambda between: between.join(parts))
)


def cut(text: str, places: list[int]) -> list[str]:
    ends = [0, *sorted(min(place, len(text)) for place in places), len(text)]
    return [text[start:end] for start, end in pairwise(ends)]


@settings(deadline=None, max_examples=60)
@given(texts, st.lists(st.integers(0, 600), max_size=12), st.sampled_from(WIDTHS))
def test_an_answer_looks_the_same_in_whatever_pieces_it_comes(text: str, places: list[int], width: int) -> None:
    assert streamed(cut(text, places), width).text() == streamed([text], width).text()


@settings(deadline=None, max_examples=60)
@given(texts, st.sampled_from(WIDTHS))
def test_nothing_that_was_said_is_left_out(text: str, width: int) -> None:
    shown = streamed([text], width).text()
    assert sorted(filter(str.isalpha, shown)) == sorted(filter(str.isalpha, text))


def test_a_rendering_that_leaves_something_out_is_caught() -> None:
    text, out = "<b>not bold</b> and [x]: here\n\n[y]: http://definition.example/", io.StringIO()
    Console(file=out, width=80).print(Markdown(text))
    assert sorted(letters(out.getvalue())) != sorted(letters(text))


@settings(deadline=None)
@given(texts)
def test_blocks_are_the_whole_text(text: str) -> None:
    assert "".join(blocks(text)) == text


@pytest.mark.parametrize("width", WIDTHS)
def test_words_wrap_between_words(width: int) -> None:
    file = streamed([PARAGRAPH * 3], width)
    words = PARAGRAPH.replace("*", "").replace("`", "").split()
    lines = file.text().split("\n")
    assert {word for line in lines for word in line.split()} >= set(words[1:-1])
    assert all(len(line) <= width for line in lines)
    raw = Terminal(width)
    raw.write(PARAGRAPH * 3)
    assert not {word for line in raw.text().split("\n") for word in line.split()} >= set(words[1:-1])


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_flickers_while_an_answer_comes(width: int) -> None:
    """What was shown stays where it is among the words, whatever is drawn again around it."""
    text = "\n\n".join([*SAMPLES, "The end."])
    pieces = [text[at : at + 3] for at in range(0, len(text), 3)]
    frames = [letters(frame) for frame in streamed(pieces, width, watched=True).frames]
    assert all(after.startswith(before) for before, after in pairwise(frames))
    broken = [letters(frame) for frame in streamed(pieces, width, writer=FlickeringWriter, watched=True).frames]
    assert not all(after.startswith(before) for before, after in pairwise(broken))


@settings(deadline=None)
@given(st.lists(st.one_of(st.text(), st.sampled_from([*HOSTILE, *SAMPLES]))))
def test_nothing_that_a_model_says_is_obeyed_by_the_terminal(pieces: list[str]) -> None:
    sent = streamed(pieces).getvalue()
    assert not OBEYED.search(OURS.sub("", sent))


def test_markdown_that_is_obeyed_is_caught() -> None:
    out = io.StringIO()
    Console(file=out, force_terminal=True, width=80).print(Markdown(" ".join(HOSTILE[:2])))
    assert OBEYED.search(OURS.sub("", out.getvalue()))


def test_a_terminal_that_cannot_move_its_cursor_is_sent_whole_blocks() -> None:
    file = streamed([*"One **bold** word.\n\nAnother\nparagraph."], dumb=True, watched=True)
    assert "\x1b" not in file.getvalue()
    assert file.frames == ["One bold word.", "One bold word.\n\nAnother\nparagraph."]


def test_what_is_higher_than_the_screen_is_shown_whole_in_the_end() -> None:
    file, ticks = Terminal(40), count()
    console = Console(file=file, force_terminal=True, width=40, height=10, color_system=None)
    answer = AnswerWriter(console, clock=lambda: float(next(ticks)))
    for number in range(30):
        answer.write(f"- item {number}\n")
        assert len(file.text().split("\n")) < 10
    answer.close()
    assert file.text().split("\n") == [f" • item {number}" for number in range(30)]


def test_pieces_that_come_in_a_pause_are_shown_when_it_ends() -> None:
    """Nobody has to wait for the next piece: a timer draws what came too soon after a drawing."""
    file = Terminal(60)
    answer = AnswerWriter(Console(file=file, force_terminal=True, width=60, height=50, color_system=None))
    answer.write("The first")
    answer.write(" and the second")
    assert file.text() == "The first"
    timer = answer._timer
    assert timer is not None
    timer.join()
    assert file.text() == "The first and the second"
    answer.close()


def test_code_is_coloured_and_keeps_its_own_line_ends() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=60, color_system="standard")
    lines = rendered("```python\ndef f():\n    return 1\n```", console)
    assert [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines] == ["  def f():", "      return 1"]
    assert any("\x1b[" in line for line in lines)
