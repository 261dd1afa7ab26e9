"""Words that stand together are found before the same words scattered over a file, and the snippet shows that place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st
from tests.fixtures.databases import SOAK

from leporello.store import SearchFilter, open_store
from leporello.store.search import rank, search
from leporello.store.search.prepare import stemmed_terms
from leporello.store.search.proximity import STRETCH, closest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leporello.messages import Message
    from leporello.store import Store

DATABASES = SOAK

TALK = "talk"
FAR = "\n".join(f"line {number} of a long listing" for number in range(40))
SCATTERED = f"handle the first\n{FAR}\nthe event came late\n{FAR}\nsocket closed\nhandle handle handle socket socket"
LINE = f'{FAR}\ndef handle_event("close_pane", _params, socket) do\n{FAR}\n{FAR}'
WORDS = ("handl", "event", "socket")


@pytest.fixture
def store() -> Iterator[Store]:
    store = open_store(":memory:")
    store.ensure(TALK)
    store.append(TALK, [{"role": "tool", "tool_call_id": "c", "content": text} for text in (LINE, SCATTERED)])
    yield store
    store.close()


def found(store: Store, query: str) -> list[str]:
    return [hit.snippet for hit in search(store, query, filter=SearchFilter(conversation=TALK)).hits]


def test_a_line_that_has_all_words_comes_first_and_is_shown(store: Store) -> None:
    hits = found(store, "handle event socket")
    assert len(hits) == 2
    assert "close_pane" in hits[0]


def test_without_looking_at_what_stands_together_the_newest_comes_first(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted defect: words count wherever they stand."""
    monkeypatch.setattr(rank, "closest", lambda _terms, _text: (0, 0))
    assert "close_pane" not in found(store, "handle event socket")[0]


def test_a_message_with_more_of_the_words_comes_before_one_that_says_a_few_often(store: Store) -> None:
    rare: list[Message] = [
        {"role": "user", "content": "zebra " * 8},
        {"role": "user", "content": f"{FAR} zebra apple pear {FAR}"},
    ]
    store.append(TALK, rare)
    hits = found(store, "zebra apple pear quince")
    assert len(hits) == 2
    assert "zebra apple pear" in hits[0]


def test_the_densest_stretch_begins_at_its_first_word() -> None:
    start, words = closest(WORDS, LINE)
    assert (LINE[start:].startswith("handle_event"), words) == (True, 3)
    assert closest(WORDS, SCATTERED)[1] == 2
    assert closest(WORDS, "nothing of it") == (0, 0)
    assert closest((), LINE) == (0, 0)


@given(
    st.lists(st.sampled_from(["red", "blue", "green", "-" * 50, "\n", "greens"]), max_size=60).map(" ".join),
    st.lists(st.sampled_from(["red", "blue", "green"]), unique=True),
)
def test_it_finds_what_trying_every_stretch_finds(text: str, terms: list[str]) -> None:
    def words(start: int) -> int:
        # A word counts that begins within the stretch.
        return sum(any(stemmed_terms(word) == [term] for word in _beginning_within(text, start)) for term in terms)

    start, count = closest(terms, text)
    assert count == max(map(words, range(len(text))), default=0)
    assert not count or words(start) == count


def _beginning_within(text: str, start: int) -> list[str]:
    stretch = text[start : start + STRETCH]
    whole = text[start:].split()
    inside = len(stretch.split())
    begins = start == 0 or text[start - 1].isspace() or text[start].isspace()
    return whole[:inside] if begins else whole[1:inside]
