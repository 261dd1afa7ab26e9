"""`store.search` is the one way to search: of one conversation or of all, with every filter."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from leporello.errors import QueryError
from leporello.store import SearchFilter, Store, open_store
from leporello.store.search import search
from leporello.store.sqlite import SQLiteStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leporello.store import SearchResult

DATABASES = True

PAGE = Path(__file__).parents[3] / "docs" / "reference" / "search.md"
LATER = 2_000_000_000.0


@pytest.fixture
def store() -> Iterator[Store]:
    store = open_store(":memory:", clock=lambda: 1_000_000_000.0)
    store.append("port", [{"role": "user", "content": "berth three", "name": "Ann"}])
    store.append("port", [{"role": "assistant", "content": "berth four", "timestamp": LATER}])
    store.append("yard", [{"role": "user", "content": "berth five"}])
    store.append("port", [{"role": "user", "content": "berth six"}], owner="ben")
    yield store
    store.close()


def check(find: Callable[..., SearchResult]) -> None:
    """Require that every filter is used."""
    assert texts(find("berth")) == {"berth three", "berth four", "berth five"}
    assert texts(find("berth", conversation="port")) == {"berth three", "berth four"}
    assert texts(find("berth", owner="ben")) == {"berth six"}
    assert texts(find("berth", role="assistant")) == {"berth four"}
    assert texts(find("berth", name="Ann")) == {"berth three"}
    assert texts(find("berth", since=LATER)) == {"berth four"}
    assert texts(find("berth", until=LATER - 1)) == {"berth three", "berth five"}
    assert texts(find("berth", tool="look")) == set()
    assert texts(find("b.rth f", regex=True)) == {"berth four", "berth five"}
    first = find("berth", limit=1, sort="recency")
    assert len(first.hits) == 1
    rest = find("berth", limit=5, sort="recency", cursor=first.cursor)
    assert texts(rest) == {"berth three", "berth four", "berth five"} - texts(first)
    assert texts(find("berth", without=[first.hits[0].id])) == texts(rest)
    with pytest.raises(QueryError):
        find("berth", limit=0)


def texts(found: SearchResult) -> set[str]:
    return {hit.snippet for hit in found.hits}


def test_every_filter_is_used(store: Store) -> None:
    check(store.search)


@pytest.mark.parametrize(
    "lost", ["conversation", "owner", "role", "name", "since", "until", "tool", "regex", "without"]
)
def test_planted_a_filter_that_is_lost_is_noticed(store: Store, lost: str) -> None:
    def forgetful(text: str, **options: Any) -> SearchResult:
        options.pop(lost, None)
        return store.search(text, **options)

    with pytest.raises(AssertionError):
        check(forgetful)


@pytest.mark.sqlite_only
def test_it_takes_every_filter_and_every_option_of_the_search() -> None:
    taken = set(inspect.signature(Store.search).parameters) - {"self"}
    options = set(inspect.signature(search).parameters) - {"store", "filter", "seconds", "now", "clock"}
    assert taken == options | {field.name for field in fields(SearchFilter)} - {"superseded"}
    assert inspect.signature(SQLiteStore.search) == inspect.signature(Store.search)


def test_the_page_names_every_argument() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert {name for name in inspect.signature(Store.search).parameters if not re.search(rf"\b{name}\b", page)} <= {
        "self"
    }
