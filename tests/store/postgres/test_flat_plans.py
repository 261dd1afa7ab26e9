"""However long a conversation is, PostgreSQL reads no table from end to end for a turn, a fold or a search in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.fixtures.databases import Schemas
from tests.store.postgres.plans import explained, fold, nodes, turn

from leporello.store import JournalRow, StoredWindow
from leporello.store.postgres import expression, index
from leporello.store.relational import recognition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.store.postgres.plans import Plans

    from leporello.messages import Message
    from leporello.store.postgres import PostgresStore

NAME = "long"
GROWING = ("messages", "search", "known")
ROWS = 6_000
BATCH = 20


@pytest.fixture(scope="module")
def store() -> Iterator[PostgresStore]:
    """One conversation that has nearly all that the database holds, folded, and which the planner knows."""
    schemas = Schemas()
    store = schemas.open()
    for start in range(0, ROWS, BATCH):
        roles = ("user", "assistant")
        said: list[Message] = [
            {"role": roles[n % 2], "content": f"message {n} about the harbour, word{n % 50} and word{n}"}
            for n in range(start, start + BATCH)
        ]
        known = {n: [f"{start + n:019}".encode()] for n in range(BATCH)}
        ids = store.append(NAME, said, known=known, request=JournalRow(reason="request", keep=0, added=()))
    store.append("short", [{"role": "user", "content": "one of another conversation"}])
    row = JournalRow(reason="compaction", keep=0, added=())
    store.save_window(NAME, StoredWindow(items=({"t": "summary", "role": "user"}, {"m": ids[-1]})), row)
    store._db.settle((*GROWING, "requests"))
    yield store
    schemas.drop()


def read_whole(plans: Plans) -> dict[str, set[str]]:
    """Return the statements that read a table which grows with a conversation from end to end."""
    found = {
        statement: {
            node["Relation Name"]
            for node in nodes(plan)
            if node.get("Node Type") == "Seq Scan" and node["Relation Name"] in GROWING
        }
        for statement, plan in plans.items()
    }
    return {statement: tables for statement, tables in found.items() if tables}


def walked(plans: Plans) -> set[str]:
    """Return the statements that look for words in one message of the index after the other."""
    return {
        statement
        for statement, plan in plans.items()
        for node in nodes(plan)
        if node.get("Relation Name") == "search" and "terms @@" in node.get("Filter", "")
    }


def test_a_turn_and_a_fold_read_no_table_from_end_to_end(store: PostgresStore) -> None:
    with explained() as plans:
        turn(store, NAME)
        fold(store, NAME)
    assert len(plans) > 25
    assert read_whole(plans) == {}


def test_recognition_reads_no_table_from_end_to_end(store: PostgresStore) -> None:
    (newest,) = store.append(NAME, [{"role": "user", "content": "the newest"}], known={0: [b"newest"]})
    with explained() as plans:
        (tip,) = store.known([b"nothing", b"newest"])
        earlier = [store.known([b"nothing", f"{number:019}".encode()])[0] for number in (0, ROWS // 2, ROWS - 1)]
    assert (tip.id, tip.is_tip) == (newest, True)
    assert [(place.id, place.is_tip) for place in earlier] == [("m1", False), ("m3001", False), (f"m{ROWS}", False)]
    assert read_whole(plans) == {}


def test_planted_a_search_for_any_later_message_is_noticed(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planner takes the first row that it finds for one of very many, and the last rows are at the end."""
    later = "SELECT EXISTS (SELECT 1 FROM messages n WHERE n.conversation = ? AND n.branch = 1 AND n.place > ?)"
    monkeypatch.setattr(recognition, "_places", lambda connection, *_: connection.execute(later, (1, 1.0)).fetchall())
    with explained() as plans:
        assert store.known([f"{0:019}".encode()])
    assert read_whole(plans) == {later: {"messages"}}


@pytest.mark.parametrize("sort", ["relevance", "recency"])
@pytest.mark.parametrize(
    "text",
    ["word7", "word4711", "message", '"about the harbour"', '"harbour about"', "What was said about word7?", "nothing"],
)
def test_a_search_reads_no_table_from_end_to_end(store: PostgresStore, text: str, sort: str) -> None:
    with explained() as plans:
        store.search(text, conversation=NAME, sort=sort)  # type: ignore[arg-type]
        store.search(text, sort=sort)  # type: ignore[arg-type]
    assert read_whole(plans) == {}
    assert walked(plans) == set()


@pytest.mark.parametrize("text", ["old", '"old words"', "old new", "What was old or new?"])
def test_words_that_only_old_messages_have_are_found_by_the_index(
    store: PostgresStore, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for said in ("old words", "new things"):
        store.append("two halves", [{"role": "user", "content": f"{said} {n}"} for n in range(3_000)])
    store._db.settle(("search",))
    with explained() as plans:
        found = store.search(text, sort="recency")
        store.search(text)
    assert walked(plans) == set()
    assert found.hits or text == "old new"
    monkeypatch.setattr(store, "_parted", False)
    monkeypatch.setattr(index, "is_parted", lambda _: False)  # the planted defect: asked at once
    with explained() as plans:
        assert [hit.id for hit in store.search(text, sort="recency").hits] == [hit.id for hit in found.hits]
        store.search(text)
    assert walked(plans)
    store.delete("two halves")


def test_a_phrase_of_words_that_all_messages_have_is_found_by_the_index(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def found(text: str) -> int:
        with store._db.read() as connection:
            query = expression.tsquery(expression.parse(text))
            row = connection.execute("SELECT count(*) FROM search s WHERE s.terms @@ ?::tsquery", (query,)).fetchone()
            return int(row[0])

    assert found('"about the harbour"') == ROWS
    assert found('"harbour about"') == 0
    monkeypatch.setattr(expression, "pairs", lambda _: [])
    assert found('"harbour about"') == ROWS  # the planted defect: the index knows nothing of what stands together


def test_a_phrase_in_a_message_with_too_many_pairs_is_found(store: PostgresStore) -> None:
    words = [f"w{n}" for n in range(25_000)]
    assert len(expression.pairs(words)) == 1
    store.append("huge", [{"role": "user", "content": " ".join(words)}])
    assert store.search('"w7 w8 w9"').hits
    assert store.search('"w24998 w24999"').hits
    assert not store.search('"w9 w8"').hits
