"""Checks that find damage, deletion with tombstones, retention, export, import and backup."""

from __future__ import annotations

import json
import sqlite3
import stat
from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given, settings, strategies as st
from tests.fixtures.databases import SOAK

from leporello.errors import StoreError
from leporello.store import Artifact, Cover, JournalRow, Node, SearchFilter, StoredWindow, WindowItem
from leporello.store.codec import LONG
from leporello.store.sqlite import SQLiteStore
from leporello.testing.conversations import conversation

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from leporello.messages import Message

DATABASES = SOAK

DAY = 86_400.0


def said(*texts: str, **fields: Any) -> list[Message]:
    return [cast("Message", {"role": "user", "content": text, **fields}) for text in texts]


def filled(count: int = 30) -> SQLiteStore:
    store = SQLiteStore()
    store.append("c", [{"role": "system", "content": "Be kind."}, *said(*(f"word{n} " * 9 for n in range(count)))])
    store.append("c", said("long " * LONG))
    return store


def problems(store: SQLiteStore) -> list[str]:
    findings = [*store.check_chain("c"), *store.check_index(), *store.check_index("c"), *store.check_file()]
    return [f"{finding.where}: {finding.problem}" for finding in findings]


# checks, with a planted defect for each


def test_a_healthy_store_has_no_findings() -> None:
    assert problems(filled()) == []


DEFECTS: dict[str, Callable[[sqlite3.Connection], object]] = {
    "a dropped row": lambda c: c.execute("DELETE FROM messages WHERE seq = 7"),
    "the last row dropped": lambda c: c.execute("DELETE FROM messages WHERE seq = 32"),
    "the first row dropped": lambda c: c.execute("DELETE FROM messages WHERE seq = 1"),
    "a changed byte": lambda c: c.execute(
        "UPDATE messages SET body = CAST(replace(body, 'word4', 'word5') AS BLOB) WHERE seq = 6"
    ),
    "a body that is no JSON": lambda c: c.execute("UPDATE messages SET body = x'7b22' WHERE seq = 6"),
    "a doubled row": lambda c: c.execute(
        "INSERT INTO messages (conversation, branch, seq, place, time, tokens, size, role, name, tool, fingerprint,"
        " chain, body) SELECT conversation, branch, 33, 33, time, tokens, size, role, name, tool, fingerprint, chain,"
        " body FROM messages WHERE seq = 9"
    ),
    "two rows swapped": lambda c: c.executescript(
        "UPDATE messages SET seq = -1 WHERE seq = 4; UPDATE messages SET seq = 4 WHERE seq = 5;"
        "UPDATE messages SET seq = 5 WHERE seq = -1;"
    ),
    "a lost payload": lambda c: c.execute("DELETE FROM payloads"),
    "a changed payload": lambda c: c.execute(
        "UPDATE payloads SET data = CAST(substr(data, 1, length(data) - 1) || x'00' AS BLOB)"
    ),
    "a miscounted payload": lambda c: c.execute("UPDATE payloads SET uses = 2"),
    "a message that is not in the index": lambda c: c.execute("DELETE FROM search_docsize WHERE id = 5"),
    "a stray entry in the index": lambda c: c.execute("INSERT INTO search (rowid, text) VALUES (999, 'stray')"),
    "another text in the index": lambda c: c.execute("UPDATE search_docsize SET sz = x'02' WHERE id = 5"),
    "a reference to nothing": lambda c: c.executescript(
        "PRAGMA foreign_keys = OFF; INSERT INTO children VALUES (77, 0, 78);"
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("defect", DEFECTS)
@pytest.mark.sqlite_only
def test_damage_is_found(defect: str) -> None:
    store = filled()
    with store._db.plain() as connection:
        DEFECTS[defect](connection)
    assert problems(store)


@pytest.mark.sqlite_only
def test_a_finding_names_the_place() -> None:
    store = filled()
    with store._db.plain() as connection:
        connection.execute("DELETE FROM messages WHERE seq IN (7, 8)")
    (finding,) = store.check_chain("c")
    assert (finding.where, finding.problem) == ("before m9", "2 messages from seq 7 on are missing")


# deletion


def test_a_deleted_range_leaves_a_tombstone_that_carries_the_chain() -> None:
    store = filled()
    planned = store.delete("c", first=5, last=9, dry_run=True)
    assert len(list(store.messages("c"))) == 31
    done = store.delete("c", first=5, last=9)
    assert (done, done.messages, done.first_seq, done.last_seq) == (planned, 5, 5, 9)
    assert [m.seq for m in store.messages("c", first=1, last=12)] == [2, 3, 4, 10, 11, 12]
    assert problems(store) == []
    assert store.candidates("word5", filter=SearchFilter(), limit=9, newest_first=True).found == ()


@pytest.mark.sqlite_only
def test_the_chain_across_a_deletion_still_finds_damage() -> None:
    store = filled()
    store.delete("c", first=5, last=9)
    with store._db.plain() as connection:
        connection.execute("UPDATE tombstones SET last_seq = 10, chain_after = x'00'")
    assert problems(store)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 34), st.integers(0, 12)), max_size=5), st.booleans())
def test_any_deletions_in_any_order_leave_a_proven_rest(ranges: list[tuple[int, int]], more: bool) -> None:
    store = filled()
    gone: set[int] = set()
    for first, length in ranges:
        store.delete("c", first=first, last=first + length, reason=f"reason {first % 2}")
        gone |= set(range(first, first + length + 1))
    if more:
        store.append("c", said("and on it goes"))
    assert problems(store) == []
    assert [m.seq for m in store.messages("c")] == [n for n in range(2, 33 + more) if n not in gone or n > 32]


def test_a_deleted_conversation_is_gone_with_everything_and_its_numbers_are_not_used_again() -> None:
    store = filled()
    (node,) = store.add_nodes("c", [a_leaf(2, 5)])
    store.add_artifacts("c", [Artifact(kind="file", value="x", message="m2")])
    store.save_window(
        "c", StoredWindow(items=({"n": node.id},)), JournalRow(reason="fold", keep=0, added=()), used=[node.id]
    )
    store.acquire("c", "me", seconds=60)
    store.add_job("c", "fold", "1", {})
    assert store.delete("c").whole
    assert store.info("c") is None
    assert list(store.conversations()) == []
    assert (list(store.messages("c", system=True)), store.nodes("c"), store.artifacts("c")) == ([], [], [])
    assert store.window("c") == StoredWindow()
    assert store.claim_job("w", seconds=1) is None
    with store._db.read() as connection:
        assert connection.execute("SELECT count(*) FROM payloads").fetchone() == (0,)
    (again,) = store.append("c", said("back"))
    assert store.get([again])[again].seq == 33
    assert problems(store) == []


def test_a_text_that_others_still_use_survives_a_deletion() -> None:
    store = SQLiteStore()
    store.append("a", said("shared " * LONG))
    ids = store.append("b", said("shared " * LONG))
    store.delete("a")
    assert store.get(ids)[ids[0]].message["content"] == "shared " * LONG
    assert store.check_file() == []


@pytest.mark.parametrize("first", [1, 11, 25])
def test_a_host_that_still_has_deleted_messages_does_not_bring_them_back(first: int) -> None:
    store = SQLiteStore()
    messages = said(*(f"message {n}" for n in range(40)))
    store.ingest("c", messages)
    store.delete("c", first=first, last=first + 9)
    done = store.ingest("c", [*messages, *said("new")], full=True)
    assert (len(done.added), done.superseded) == (1, ())
    assert done.ids[first - 1 : first + 9] == (None,) * 10
    assert store.check_chain("c") == []


def test_what_is_new_in_front_of_a_deleted_head_is_stored() -> None:
    store = SQLiteStore()
    messages = said(*(f"message {n}" for n in range(40)))
    store.ingest("c", messages)
    store.delete("c", first=1, last=10)
    assert len(store.ingest("c", [*said("something new"), *messages[5:]], full=True).added) == 1


def test_a_new_message_that_equals_a_deleted_one_is_stored() -> None:
    store = SQLiteStore()
    messages = said("yes", "no", "perhaps")
    store.ingest("c", messages)
    store.delete("c", first=1, last=1)
    assert len(store.ingest("c", [*messages[1:], *said("yes")], full=True).added) == 1


def test_deleting_what_does_not_exist_says_so() -> None:
    with pytest.raises(StoreError, match="no conversation 'nothing'"):
        SQLiteStore().delete("nothing")


def a_leaf(first: int, last: int) -> Node:
    return Node(
        level=0,
        text="a summary",
        tokens=2,
        source_tokens=9,
        made_by="extract",
        covers=(Cover(first_seq=first, last_seq=last),),
        first_seq=first,
        last_seq=last,
        messages=last - first + 1,
        time_from=0.0,
        time_to=1.0,
    )


def test_retention_takes_old_conversations_and_old_heads_but_nothing_that_is_shown() -> None:
    now = 1_000 * DAY
    moment = [now - 200 * DAY]
    store = SQLiteStore(clock=lambda: moment[0])
    store.append("old", said("a", "b"))
    store.append("long", [{"role": "system", "content": "s"}, *said(*map(str, range(5)))])
    shown = store.append("shown", said("still", "in", "the window"))
    moment[0] = now
    store.append("long", said("young"))
    store.append("shown", said("young"))
    items: tuple[WindowItem, ...] = tuple({"m": id_} for id_ in shown[1:])
    store.save_window("shown", StoredWindow(items=items), JournalRow(reason="fold", keep=0, added=()))
    planned = store.gc(older_than=90 * DAY, dry_run=True)
    assert [(d.conversation, d.messages, d.whole) for d in planned] == [
        ("old", 2, True),
        ("long", 5, False),
        ("shown", 1, False),
    ]
    assert store.info("old") is not None
    assert store.gc(older_than=90 * DAY) == planned
    assert store.gc(older_than=90 * DAY) == []
    assert [m.message["content"] for m in store.messages("long", system=True)] == ["s", "young"]
    assert [m.message["content"] for m in store.messages("shown")] == ["in", "the window", "young"]
    assert [finding for key in ("old", "long", "shown") for finding in store.check_chain(key)] == []


# export and import


def test_an_export_is_read_in_with_everything_in_its_place() -> None:
    store = SQLiteStore()
    messages = conversation(3, turns=20, system=True, payload=300)
    store.ingest("c", messages, owner="me")
    store.ingest("c", [*messages[:-3], *said("another branch")], owner="me")
    store.delete("c", owner="me", first=4, last=6)
    store.ensure("c", owner="me", meta={"title": "t"})
    lines = list(store.export("c", owner="me"))
    other = SQLiteStore()
    assert other.import_lines(lines) == "c"
    assert list(other.export("c", owner="me")) == lines
    assert shape(other) == shape(store)
    assert other.check_chain("c", owner="me") == []
    assert other.check_index("c", owner="me") == []
    assert other.import_lines(lines, conversation="copy", owner="") == "copy"


def shape(store: SQLiteStore) -> list[Any]:
    rows = store.messages("c", owner="me", superseded=True, system=True)
    return [(m.seq, m.place, m.message, m.superseded, m.system, m.tool, m.time) for m in rows]


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda lines: lines[:-1], "incomplete"),
        (lambda lines: [*lines[:5], *lines[6:]], "line 6: seq 6 where 5 was expected"),
        (lambda lines: [*lines[:3], lines[3].replace("word1", "word2"), *lines[4:]], "was changed"),
        (lambda lines: [lines[0], "{", *lines[2:]], "line 2: not JSON"),
        (lambda lines: [lines[0], "[]", *lines[2:]], "line 2: not a JSON object"),
        (lambda lines: [lines[0], '{"seq": 1}', *lines[2:]], "line 2: 'message' is missing"),
        (lambda lines: lines[1:], "not an export"),
        (lambda lines: lines[:0], "not an export"),
    ],
)
def test_a_spoilt_export_imports_nothing(spoil: Callable[[list[str]], list[str]], problem: str) -> None:
    lines = list(filled().export("c"))
    store = SQLiteStore()
    store.append("other", said("hello"))
    with pytest.raises(StoreError, match=problem):
        store.import_lines(spoil(lines))
    assert [info.key for info in store.conversations()] == ["other"]
    with store._db.read() as connection:
        assert connection.execute("SELECT count(*) FROM conversations").fetchone() == (1,)
        assert connection.execute("SELECT count(*) FROM messages").fetchone() == (1,)
    assert store.check_file() == []
    assert store.check_index() == []


def test_an_import_never_writes_to_a_conversation_that_exists() -> None:
    store = filled()
    with pytest.raises(StoreError, match=r"a conversation 'c' already.*another name"):
        store.import_lines(store.export("c"))


def test_what_was_deleted_can_be_imported_again_under_its_name() -> None:
    store = filled()
    lines = list(store.export("c"))
    before = [m.message for m in store.messages("c")]
    store.delete("c")
    assert store.import_lines(lines) == "c"
    assert [m.message for m in store.messages("c")] == before
    assert problems(store) == []


def test_every_exported_line_is_json_that_any_program_can_read() -> None:
    store = SQLiteStore()
    store.append("c", said("half \ud800, NUL \0, 汉字"))
    lines = [json.loads(line) for line in store.export("c")]
    assert [{"conversation", "message", "end"} & line.keys() for line in lines] == [
        {"conversation"},
        {"message"},
        {"end"},
    ]
    assert all(line.isascii() for line in store.export("c"))


# backup


@pytest.mark.sqlite_only
def test_a_backup_is_a_store_of_its_own(tmp_path: Path) -> None:
    with SQLiteStore(tmp_path / "s.db") as store:
        store.append("c", said("before"))
        store.backup(str(tmp_path / "copies" / "b.db"))
        store.append("c", said("after"))
        with pytest.raises(StoreError, match="a file already"):
            store.backup(str(tmp_path / "copies" / "b.db"))
    assert stat.S_IMODE((tmp_path / "copies" / "b.db").stat().st_mode) == 0o600
    assert [file.name for file in (tmp_path / "copies").iterdir()] == ["b.db"]
    with SQLiteStore(tmp_path / "copies" / "b.db") as copy:
        assert [m.message["content"] for m in copy.messages("c")] == ["before"]
        assert problems(copy) == []


@pytest.mark.sqlite_only
def test_a_backup_is_consistent_while_others_write(tmp_path: Path) -> None:
    with SQLiteStore(tmp_path / "s.db") as store, closing(sqlite3.connect(tmp_path / "s.db")) as other:
        store.append("c", said(*map(str, range(50))))
        other.execute("BEGIN IMMEDIATE")
        other.execute("DELETE FROM messages")
        store.backup(str(tmp_path / "b.db"))
        other.execute("ROLLBACK")
    with SQLiteStore(tmp_path / "b.db") as copy:
        assert len(list(copy.messages("c"))) == 50
