"""What the chat writes: safe on a terminal whatever a model says, and whole whatever pieces it comes in."""

from __future__ import annotations

import io
import re
import threading
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput
from rich.cells import cell_len
from rich.console import Console

from leporello.agent import Retrying
from leporello.cli.chat.asking import agrees, ask, ask_why
from leporello.cli.chat.pace import known_pace
from leporello.cli.chat.screen import Screen, is_cut
from leporello.cli.chat.view import ChatView
from leporello.cli.format import wrapped
from leporello.events import CompactionFinished, CompactionStarted, Notice
from leporello.messages.visible import visible
from leporello.store import FOLD, JournalRow, open_store

if TYPE_CHECKING:
    from collections.abc import Sequence

OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def written(pieces: Sequence[str], *, raw: bool = False) -> str:
    """Return what a terminal is sent for the pieces of an answer; `raw` is a screen that passes everything on."""
    out = io.StringIO()
    screen = Screen(Console(file=out, highlight=False, markup=False, emoji=False, color_system=None, width=80))
    for piece in pieces:
        screen.say(piece) if not raw else screen.console.file.write(piece)
    screen.end_of_answer()
    return out.getvalue()


HOSTILE = [
    "\x1b]0;owned\x07",
    "\x1b[2J",
    "ok\x9b31m",
    "rubout\x7f\x08\x08",
    "\u202etxt.exe",
    "a\rb",
    "[bold]no markup[/]",
]


@given(st.lists(st.one_of(st.text(), st.sampled_from(HOSTILE))))
def test_nothing_that_a_model_says_is_obeyed_by_the_terminal(pieces: list[str]) -> None:
    assert not OBEYED.search(written(pieces))


def test_a_screen_that_passes_everything_on_is_caught() -> None:
    assert OBEYED.search(written(HOSTILE, raw=True))


@given(st.text("ab \r\n\t[]:smile_", max_size=30), st.lists(st.integers(0, 30), max_size=5))
def test_an_answer_is_the_same_in_whatever_pieces_it_comes(text: str, cuts: list[int]) -> None:
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces = [text[start:end] for start, end in pairwise(places)]
    assert written(pieces) == written([text])


def test_text_that_looks_like_markup_is_shown_as_it_is() -> None:
    assert written(["[bold]x[/bold] :smile: ", "http://a.b/c"]) == "[bold]x[/bold] :smile: http://a.b/c\n"


def test_long_lines_are_left_to_the_terminal() -> None:
    assert written(["x" * 200]) == "x" * 200 + "\n"


def test_what_is_under_way_is_shown_with_its_reason_and_the_time_it_takes() -> None:
    out, now = io.StringIO(), [100.0]
    screen = Screen(Console(file=out, force_terminal=True, width=80), clock=lambda: now[0])
    screen.busy("folding 90 messages")
    now[0] = 107.4
    assert screen._live is not None
    screen._live.refresh()
    screen.line("done")
    assert "folding 90 messages · 0 s" in out.getvalue()
    assert "folding 90 messages · 7 s" in out.getvalue()


def test_a_second_fold_is_shown_with_an_estimate() -> None:
    """The first one that asked a model tells how long its tokens take."""
    out, now = io.StringIO(), [100.0]
    view = ChatView(Screen(Console(file=out, force_terminal=True, width=100), clock=lambda: now[0]))
    started = CompactionStarted(reason="asked for", messages=40, tokens=10_000, prompt_tokens=12_000)
    finished = CompactionFinished(
        status="folded",
        reason="",
        messages_before=40,
        messages_after=5,
        tokens_before=10_000,
        tokens_after=2_000,
        seconds=8.0,
        model_calls=2,
        cost_usd=None,
        prompt_tokens_before=12_000,
        prompt_tokens_after=4_000,
    )
    view.take(started)
    assert "of about" not in out.getvalue()
    view.take(finished)
    assert "folded: 40 → 5 messages, 12,000 → 4,000 tokens" in out.getvalue()
    view.take(started)
    assert "folding 40 messages, 12,000 tokens (asked for) · 0 s of about 8 s" in out.getvalue()
    view.take(finished)


def test_the_first_fold_of_a_chat_has_an_estimate_if_an_earlier_one_asked_a_model() -> None:
    """It comes from the journal, of this conversation or of another one; a fold without a model says nothing."""
    report = {"status": "folded", "seconds": 6.0, "tokens_before": 3_000, "model_calls": 1}
    store = open_store(":memory:")
    for name, told in (("old", report), ("mine", report | {"model_calls": 0}), ("odd", {"seconds": "long"})):
        store.append(name, [{"role": "user", "content": "Hello"}])
        store.record_request(name, JournalRow(reason=FOLD, keep=0, added=(), report=told))
    assert known_pace(store, "mine") == 6.0 / 3_000
    store.delete("old")
    assert known_pace(store, "mine") == 0.0

    out = io.StringIO()
    view = ChatView(Screen(Console(file=out, force_terminal=True, width=100)))
    view.known_pace = lambda: 6.0 / 3_000
    view.take(CompactionStarted(reason="asked for", messages=40, tokens=10_000, prompt_tokens=12_000))
    view.catch_up()
    view._screen.rest()
    assert "0 s of about 20 s" in out.getvalue()


@given(st.text(), st.integers(4, 200))
def test_a_wrapped_line_fits_and_loses_no_word(text: str, width: int) -> None:
    line = " ".join(visible(text).split("\n"))
    lines = wrapped(line, width)
    assert "".join("".join(lines).split()) == "".join(line.split())
    assert all(cell_len(one) <= width for one in lines)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("engine   one two three four", ["engine   one two", "         three", "         four"]),
        ("    one two three four five", ["    one two three", "    four five"]),
        ("one two three four five six", ["one two three four", "five six"]),
    ],
)
def test_what_is_continued_stands_below_the_text(text: str, lines: list[str]) -> None:
    assert wrapped(text, 18) == lines


def test_a_pause_before_the_next_attempt_counts_down() -> None:
    out, now = io.StringIO(), [100.0]
    view = ChatView(Screen(Console(file=out, force_terminal=True, width=100), clock=lambda: now[0]))
    view.take(Retrying(error="openai is overloaded.", seconds=4.0, attempt=2, attempts=5))
    now[0] = 103.0
    assert view._screen._live is not None
    view._screen._live.refresh()
    view._screen.rest()
    assert "openai is overloaded · attempt 2 of 5, in 4 s" in out.getvalue()
    assert "openai is overloaded · attempt 2 of 5, in 1 s" in out.getvalue()


def test_no_spinner_where_nobody_looks() -> None:
    out = io.StringIO()
    screen = Screen(Console(file=out, force_terminal=False))
    with screen.while_busy("folding"):
        pass
    assert out.getvalue() == ""


def test_a_long_text_is_cut_and_told_to_be(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(Console(width=80, color_system=None))
    for text in ("\n".join(map(str, range(100))), "x" * 1_000):
        screen.detail(text)
        assert is_cut(text)
        assert "more" in capsys.readouterr().out
        screen.whole(text)
        shown = capsys.readouterr().out
        assert "".join(shown.split()) == text.replace("\n", "")
    assert not is_cut("a short one\nof two lines")


def test_what_comes_from_another_thread_waits_until_nobody_types() -> None:
    out = io.StringIO()
    view = ChatView(Screen(Console(file=out)))
    thread = threading.Thread(target=view.take, args=[Notice(text="the summariser is back")])
    thread.start()
    thread.join()
    assert out.getvalue() == ""
    view.catch_up()
    assert out.getvalue() == "the summariser is back\n"


@pytest.mark.parametrize(
    ("keys", "choice"), [("y", "yes"), ("n", "no"), ("a", "always"), ("t", "tell"), ("\x1b", "no"), ("\r\r xy", "yes")]
)
def test_a_question_is_answered_with_one_key(keys: str, choice: str) -> None:
    with create_pipe_input() as source:
        source.send_text(keys)
        assert ask("Run it?", terminal=(source, DummyOutput())) == choice


@pytest.mark.parametrize(("more", "choice"), [(True, "view"), (False, "yes")])
def test_all_can_be_seen_where_something_was_left_out(more: bool, choice: str) -> None:
    with create_pipe_input() as source:
        source.send_text("vy")
        assert ask("Run it?", more=more, terminal=(source, DummyOutput())) == choice


def test_a_plain_question_takes_yes_and_no_alone() -> None:
    for keys, agreed in (("ay", True), ("tvn", False), ("\x1b", False)):
        with create_pipe_input() as source:
            source.send_text(keys)
            assert agrees("Put the files back as they were?", terminal=(source, DummyOutput())) == agreed


def test_a_line_says_why_not() -> None:
    with create_pipe_input() as source:
        source.send_text("  only look \r")
        assert ask_why("Why not? ", terminal=(source, DummyOutput())) == "only look"


def test_ctrl_c_at_a_question_interrupts() -> None:
    with create_pipe_input() as source:
        source.send_text("\x03")
        with pytest.raises(KeyboardInterrupt):
            ask("Run it?", terminal=(source, DummyOutput()))
