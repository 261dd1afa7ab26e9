"""The quick way to cut a text into terms gives exactly what its plain definition gives, for any text."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given, settings, strategies as st

from leporello.store.search import prepare
from leporello.store.search.prepare import folded_terms

ODD = (
    "aZ9_ \t-./:=\u00ad\u0301\u0130ßÄœﬁⅫ²\u1100\u1161\u11a8カ\u3099は漢ก\u0e31नि\u093f😀→€№"
    "\u200d\ufe0f\ud800“”—\u3000\x1c\x85"
)
TEXTS = st.text(max_size=60) | st.text(st.sampled_from(ODD), max_size=60) | st.text("aB1 _-", max_size=400)


def plainly(text: str) -> list[str]:
    """Cut a text as the index defines it, one pattern over the whole text."""
    if text.isascii():
        terms = re.findall("[a-z0-9]+", text.lower())
    else:
        whole = prepare._PIECES.sub(lambda match: unicodedata.normalize("NFC", match[0]), text.casefold())
        found = prepare._TERM.findall(prepare._INVISIBLE.sub("", whole))
        terms = [t if t.isascii() or "\u2e80" <= t[0] <= "\ud7a3" else prepare._folded(t) for t in found]
    return [term[start : start + 128] for term in terms for start in range(0, len(term), 128)]


def assert_same(text: str, terms: list[str]) -> None:
    assert terms == plainly(text)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@given(TEXTS)
def test_the_quick_cut_is_the_plain_one(text: str) -> None:
    assert_same(text, folded_terms(text))


@pytest.mark.parametrize(
    "text", ["x" * 300, f"é{'x' * 300}", f"{'é' * 127}z{'a' * 129}", "a_b", "é_b", "İstanbul ＡＢＣ"]
)
def test_long_and_joined_words_are_cut_alike(text: str) -> None:
    assert_same(text, folded_terms(text))


@pytest.mark.parametrize("text", ["a_b", "soft\u00adhyphen", "漢字"])
def test_the_comparison_catches_another_cut(text: str) -> None:
    """Planted defect: words as spaces part them."""
    with pytest.raises(AssertionError):
        assert_same(text, text.casefold().split())
