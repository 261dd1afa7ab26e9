"""What tools show is safe and bounded: nothing that a terminal obeys, head and tail kept, and what is missing said."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st
from inline_snapshot import snapshot

from leporello.agent.tools.text import Clip, Limits, one_line, printed, visible

OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\U000e0000-\U000e007f\ud800-\udfff]")
HOSTILE = st.text(
    st.one_of(
        st.characters(codec=None),
        st.sampled_from(list("\x1b\x07\x08\r\n\x00\x9b\x9d[]m;0PX^_\\H\u202e\U000e0041\ud800")),
    ),
    max_size=60,
)


def assert_safe(text: str) -> None:
    assert not OBEYED.search(text)


@given(HOSTILE)
def test_nothing_that_is_obeyed_is_left(text: str) -> None:
    assert_safe(visible(text))
    assert_safe(printed(text))


@pytest.mark.parametrize("defect", [str, lambda text: text.replace("\x1b", ""), lambda text: text.encode().decode()])
def test_the_check_catches_a_weaker_cleaning(defect: Callable[[str], str]) -> None:
    with pytest.raises(AssertionError):
        assert_safe(defect("\x1b[2J\x9b2J\x00"))


@given(st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs", "Mn"]), max_size=60))
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert visible(text) == printed(text) == text


def test_control_characters_stay_recognisable() -> None:
    assert visible("a\x00b\x1b[31m\x7f\x85\u202egnp.exe\tend\r\nnext\rlast") == snapshot(
        "a␀b␛[31m␡<U+0085><U+202E>gnp.exe\tend\nnext␍last"
    )


@given(HOSTILE, st.integers(1, 30))
def test_one_line_is_one_safe_line(text: str, length: int) -> None:
    line = one_line(text, length)
    assert_safe(line)
    assert not {"\n", "\t", "\r"} & set(line)
    assert len(text) > length or "…" not in line or "…" in text


def test_output_is_what_a_screen_would_show_at_the_end() -> None:
    raw = "\x1b[1;32mok\x1b[0m \x1b]0;title\x07 10%\r 50%\r100%\nN\x08NA\x08A\n\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\\x1b(B"
    assert printed(raw) == snapshot("100%\nNA\nlink")


def test_unfinished_sequences_do_not_swallow_the_rest() -> None:
    assert printed("before \x1b]0;never ended\nafter \x1b[") == snapshot("""\
before 0;never ended
after \
""")


def clip(data: bytes, piece: int = 7, **limits: int) -> Clip:
    made = Clip(limits=Limits(**limits))
    for start in range(0, len(data), piece):
        made.add(data[start : start + piece])
    return made


LINES = b"".join(b"line %d\n" % number for number in range(1, 1001))
SMALL = {"head_bytes": 30, "tail_bytes": 40, "head_lines": 100, "tail_lines": 100}


def test_head_and_tail_are_kept_and_the_gap_is_said() -> None:
    assert clip(LINES, **SMALL).text("look in the log") == snapshot(
        """\
line 1
line 2
line 3
line 4
li
[… 8,823 bytes, about 991 lines are left out here; look in the log …]
96
line 997
line 998
line 999
line 1000
"""
    )


def test_too_many_lines_are_cut_too() -> None:
    assert clip(LINES, head_lines=2, tail_lines=3).text() == snapshot(
        "line 1\nline 2\n[… 996 lines are left out here …]\nline 999\nline 1000\n"
    )


@given(
    st.binary(max_size=400),
    st.integers(1, 50),
    st.integers(1, 60),
    st.integers(1, 60),
    st.integers(1, 20),
    st.integers(1, 20),
)
def test_a_clip_never_holds_or_shows_more_than_its_limits(
    data: bytes, piece: int, head: int, tail: int, head_lines: int, tail_lines: int
) -> None:
    made = clip(data, piece, head_bytes=head, tail_bytes=tail, head_lines=head_lines, tail_lines=tail_lines)
    assert made.size == len(data)
    assert len(made._head) <= head
    assert made._tail_size < tail + piece
    text = made.text()
    assert_safe(text)
    assert text.count("\n") <= head_lines + tail_lines + 1
    if len(data) <= head + tail and data.count(b"\n") < head_lines + tail_lines:
        assert text == printed(data.decode("utf-8", "replace"))


def test_no_character_is_broken_by_the_cut() -> None:
    for head in range(1, 12):
        assert "\ufffd" not in clip("ä€😀".encode() * 40, head_bytes=head, tail_bytes=head + 3).text()


def test_cleaning_takes_time_in_proportion_to_the_length() -> None:
    """Nothing here backtracks: a megabyte of the worst beginnings is done at once."""
    for start in ("\x1b[", "\x1b]", "\x1bP", "\x1b", "\r", "\x08", "\x1b[0"):
        printed(start * 300_000)
