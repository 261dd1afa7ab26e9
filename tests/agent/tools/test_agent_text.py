"""What tools show is safe and bounded: nothing that a terminal obeys, head and tail kept, and what is missing said."""

import re
from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st
from inline_snapshot import snapshot

from leporello.agent.tools.text import Clip, Limits, one_line, printed
from leporello.messages.visible import visible

OBEYED = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    r"\ud800-\udfff\U000e0000-\U000e00ff\U000e01f0-\U000e0fff]|[\U000e0100-\U000e01ef]{2}"
)
SELECTORS = "".join(map(chr, range(0xE0100, 0xE01F0)))
HOSTILE = st.text(
    st.one_of(
        st.characters(codec=None),
        st.sampled_from(
            list("\x1b\x07\x08\r\n\x00\x9b\x9d[]m;0PX^_\\H\u202e\u200b\u2028\U000e0041\U000e0101\u6f22\ud800")
        ),
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


ORDINARY = st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs", "Mn"], exclude_characters=SELECTORS)


@given(st.text(ORDINARY, max_size=60))
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert visible(text) == printed(text) == text


def test_control_characters_stay_recognisable() -> None:
    assert visible("a\x00b\x1b[31m\x7f\x85\u202egnp.exe\tend\r\nnext\rlast") == snapshot(
        "a␀b␛[31m␡<U+0085><U+202E>gnp.exe\tend\nnext␍last"
    )


@pytest.mark.parametrize("mark", list("\u061c\u200b\u200e\u200f\u2028\u2029\u2060\u2064\ufeff\U000e0041\U000e0101"))
def test_what_has_no_width_is_seen(mark: str) -> None:
    """A command that is confirmed must not hold anything that a terminal leaves out."""
    assert visible(f"echo safe{mark}; rm -r x") == f"echo safe<U+{ord(mark):04X}>; rm -r x"


@pytest.mark.parametrize(
    "text",
    ["\U0001f468\u200d\U0001f469\u200d\U0001f467 \u2764\ufe0f", "\u0645\u06cc\u200c\u062e", "\u845b\U000e0100\u98fe"],
)
def test_joiners_and_forms_that_scripts_need_stay(text: str) -> None:
    assert visible(text) == text


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


@pytest.mark.slow
def test_cleaning_takes_time_in_proportion_to_the_length() -> None:
    """Nothing here backtracks: a megabyte of the worst beginnings is done at once."""
    for start in ("\x1b[", "\x1b]", "\x1bP", "\x1b", "\r", "\x08", "\x1b[0"):
        printed(start * 300_000)
    for text in ("a" * 300_000 + "\r", "a" * 300_000 + "\x1b[0", "a\x08" * 300_000):
        printed(text)


def test_the_last_state_of_a_line_is_kept() -> None:
    assert printed("10 %\r50 %\r100 %\r\nnext\r") == snapshot("100 %\nnext")
