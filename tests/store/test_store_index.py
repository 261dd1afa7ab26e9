"""The index is kept with the messages, bounded for common words, and made anew when the text preparation changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from leporello.store import SearchFilter
from leporello.store.relational import matching
from leporello.store.search.prepare import stemmed_terms
from leporello.store.sqlite import SQLiteStore, index

if TYPE_CHECKING:
    from leporello.messages import Message

DATABASES = True

ALL = SearchFilter()


def said(*texts: str, **fields: Any) -> list[Message]:
    return [cast("Message", {"role": "user", "content": text, **fields}) for text in texts]


def terms(text: str) -> str:
    return " ".join(f'"{term}"' for term in stemmed_terms(text))


def found(store: SQLiteStore, match: str, **fields: Any) -> list[str]:
    hits = store.candidates(terms(match), filter=SearchFilter(**fields), limit=20, newest_first=True)
    return [hit.text for hit in hits.found]


@pytest.fixture
def store() -> SQLiteStore:
    return SQLiteStore()


def test_hits_come_newest_first_or_by_score(store: SQLiteStore) -> None:
    store.append("c", said("apple", "apple apple apple", "apple and very much else beside it"))
    assert found(store, "apple")[0] == "apple and very much else beside it"
    best = store.candidates(terms("apple"), filter=ALL, limit=2, newest_first=False).found
    assert [hit.text for hit in best] == ["apple apple apple", "apple"]
    assert best[0].score > best[1].score


def test_filters_narrow_a_search(store: SQLiteStore) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"at": "apple"}'}}
    store.append("c", said("apple one", name="Ann", timestamp="2026-01-01"))
    store.append("c", [{"role": "assistant", "content": "apple two", "tool_calls": [call], "timestamp": "2026-02-01"}])
    store.append("c", [{"role": "tool", "tool_call_id": "1", "content": "apple three", "timestamp": "2026-03-01"}])
    store.append("other", said("apple four"))
    store.append("c", said("apple five"), owner="somebody")
    assert found(store, "apple", conversation="c", role="user") == ["apple one"]
    assert found(store, "apple", conversation="c", name="ann") == ["apple one"]
    assert len(found(store, "apple", conversation="c", tool="look")) == 2
    assert found(store, "apple", conversation="c", since=1772300000.0) == ["apple three"]
    assert found(store, "apple", conversation="c", until=1768000000.0) == ["apple one"]
    assert found(store, "apple", conversation="nothing") == []
    assert found(store, "apple", owner="somebody") == ["apple five"]
    assert len(found(store, "apple")) == 4


def test_replaced_messages_are_found_when_asked_for(store: SQLiteStore) -> None:
    store.ingest("c", said("apple", "pear", "quince"))
    store.ingest("c", said("apple", "plum", "quince"), full=True)
    assert found(store, "pear") == []
    assert found(store, "pear", superseded=True) == ["pear"]


def test_what_was_said_on_another_branch_is_found(store: SQLiteStore) -> None:
    store.ingest("c", said("apple", "pear"))
    store.ingest("c", said("apple", "plum"), full=True)
    assert [row.message["content"] for row in store.messages("c")] == ["apple", "plum"]
    assert found(store, "pear") == ["pear"]


def test_system_messages_are_not_searched(store: SQLiteStore) -> None:
    store.append("c", [{"role": "system", "content": "apple"}])
    assert found(store, "apple") == []


def test_secrets_are_stored_but_not_indexed(store: SQLiteStore) -> None:
    secret = "sk-ant-api03-" + "abcdefghij" * 9
    (id_,) = store.append("c", said(f"the key is {secret} as ever"))
    assert store.get([id_])[id_].message["content"].split()[3] == secret
    assert found(store, "api03") == []
    assert found(store, "ever") != []


@pytest.mark.slow
def test_one_conversation_does_not_hide_another(store: SQLiteStore) -> None:
    """A word that fills the newest rows of a busy conversation is found in a quiet one all the same."""
    store.append("quiet", said("apple"))
    for start in range(0, matching.SCANNED + 100, 900):
        store.append("busy", said(*(f"apple {start + n}" for n in range(900))))
    assert found(store, "apple", conversation="quiet") == ["apple"]


@pytest.mark.slow
def test_counts_are_exact_for_rare_terms_and_estimated_for_common_ones(store: SQLiteStore) -> None:
    count = matching.COUNTED * 2
    for start in range(0, count, 1000):
        store.append("c", said(*(f"common {'rare' if n % 500 == 0 else 'odd'}" for n in range(start, start + 1000))))
    total, counts = store.term_counts(["common", "rare", "never", 'quo"te'])
    assert total == count
    assert counts["rare"] == count // 500
    assert counts["never"] == counts['quo"te'] == 0
    assert abs(counts["common"] - count) < count / 10


def outdated(store: SQLiteStore, count: int) -> None:
    """Give a store an index of another version: nothing in it can be used."""
    store.append("c", said(*(f"word{n} apple" for n in range(count))))
    with store._db.write() as connection:
        connection.execute("UPDATE settings SET value = '0' WHERE key = 'prepare_version'")


def test_an_index_of_another_version_is_brought_up_to_date_little_by_little(store: SQLiteStore) -> None:
    outdated(store, 3 * index.CATCH_UP)
    assert store.index_backlog() == 3 * index.CATCH_UP
    assert "brought up to date" in store.check_index()[0].problem
    for n in range(5):
        store.append("c", said(f"new{n}"))
    assert store.index_backlog() == 0
    assert store.check_index() == store.check_index("c") == []
    assert found(store, "word0") == ["word0 apple"]
    assert found(store, "new0") == ["new0"]


def test_an_index_of_another_version_can_be_made_anew_at_once(store: SQLiteStore) -> None:
    outdated(store, 40)
    store.rebuild_index()
    assert (store.index_backlog(), store.check_index(), store.check_index("c")) == (0, [], [])
    assert len(found(store, "apple")) == 20


def test_messages_are_deleted_from_an_index_that_is_not_complete_yet(store: SQLiteStore) -> None:
    outdated(store, 3 * index.CATCH_UP)
    store.append("c", said("new"))
    store.delete("c", first=1, last=120)
    store.rebuild_index()
    assert store.check_index() == []
    assert found(store, "word3") == []
