"""Long JSON is read as `json` reads it, and never for long at a time."""

from __future__ import annotations

import json
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, strategies as st

from leporello.config.model import GatewayLimits
from leporello.gateway import sliced_json
from leporello.gateway.bodies import parsed
from leporello.gateway.errors import Refused
from leporello.gateway.sliced_json import SlicedDecoder

if TYPE_CHECKING:
    from collections.abc import Iterator

MB = 1024 * 1024
WRITTEN = st.sampled_from([r"\n", r"\\", r"\"", r"\u00e9", r"\ud83d", r"\ude00", "a", "é", "😀", "'", "/"])
"""Pieces of a text as it stands in JSON: whole escapes, halves of a character, characters."""
WRONG = st.sampled_from(["\\", r"\u12", r"\x", "\n", '"', '",', "}"])


@pytest.fixture(autouse=True)
def slices_of_a_few_characters() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sliced_json, "_FIRST", 7)
        patch.setattr(sliced_json, "_LONGEST", 16)
        yield


def read(decoder: type[json.JSONDecoder], source: str) -> Any:
    try:
        return decoder().decode(source)
    except json.JSONDecodeError as error:
        return error.msg, error.pos


@given(st.lists(WRITTEN, max_size=60).map("".join))
def test_a_text_is_read_as_json_reads_it(text: str) -> None:
    source = f'["{text}", {{"a": "{text}"}}]'
    assert read(SlicedDecoder, source) == json.loads(source)


@given(st.lists(WRITTEN, max_size=40).map("".join), WRONG, st.lists(WRITTEN, max_size=40).map("".join))
def test_what_is_wrong_is_wrong_in_the_same_way(before: str, wrong: str, behind: str) -> None:
    source = f'["{before}{wrong}{behind}"]'
    assert read(SlicedDecoder, source) == read(json.JSONDecoder, source)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda value: st.lists(value) | st.dictionaries(st.text(), value),
)


@pytest.mark.slow
@given(JSON, st.booleans())
def test_a_value_is_read_as_json_reads_it(value: Any, ascii_only: bool) -> None:
    assert read(SlicedDecoder, json.dumps(value, ensure_ascii=ascii_only)) == value


def cut_anywhere(source: str, start: int, most: int, strict: bool) -> tuple[str, int, bool]:
    """Defect: a slice ends where it ends, also between the two halves of a character."""
    piece, used = scanstring(source[start : start + most] + '"', 0, strict)
    return piece, start + used - (used > most), used <= most


def test_a_character_is_not_cut_in_two(monkeypatch: pytest.MonkeyPatch) -> None:
    source = json.dumps(["x" + "😀" * 9])
    assert read(SlicedDecoder, source) == json.loads(source)
    monkeypatch.setattr(sliced_json, "_slice", cut_anywhere)
    with pytest.raises(AssertionError):
        assert read(SlicedDecoder, source) == json.loads(source)


def longest_at_once(monkeypatch: pytest.MonkeyPatch, content: bytes) -> int:
    """Return how many characters the decoder in C was given at once."""
    seen: list[int] = [0]

    def spy(source: str, start: int, strict: bool = True) -> tuple[str, int]:
        text, end = scanstring(source, start, strict)
        seen.append(end - start)
        return text, end

    monkeypatch.setattr(sliced_json, "scanstring", spy)
    assert parsed(content, GatewayLimits())
    return max(seen)


@pytest.mark.parametrize("text", [r"ab\n", r"\u00e9", r"\ud83d\ude00", r"\"", "a"])
def test_a_long_body_never_takes_long_at_a_time(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sliced_json, "_LONGEST", 256 * 1024)
    content = b'{"a":"' + text.encode() * (5 * MB // len(text)) + b'"}'
    assert 0 < longest_at_once(monkeypatch, content) <= 256 * 1024 + 1
    monkeypatch.setattr(sliced_json, "_FIRST", 8 * MB)  # defect: all at once
    assert longest_at_once(monkeypatch, content) > 4 * MB


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"a":1٢}'.encode(), "another script|delimiter"),
        (b'{"a":1,"a":2}', "stands twice"),
        (b'{"a":NaN}', "no number"),
        (b'{"a":"x', "Unterminated"),
        (b"[]", "a list"),
    ],
)
def test_a_long_body_is_refused_for_the_same_reasons(content: bytes, reason: str) -> None:
    for padding in (b"", b" " * 5 * MB):
        with pytest.raises(Refused, match=reason):
            parsed(padding + content, GatewayLimits())
