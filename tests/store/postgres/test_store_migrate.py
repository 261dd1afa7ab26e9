"""Copying a store to another database and back: every row, every id, proven; cut off anywhere, it goes on."""

# ruff: noqa: S608 - statements are put together from constants

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from tests.fixtures.databases import SOAK

from leporello.cli import doctor
from leporello.cli.main import commands
from leporello.errors import StoreError
from leporello.store import JournalRow, Node, StoredWindow
from leporello.store.records import Artifact, Cover
from leporello.store.relational import copying
from leporello.store.relational.rows import Hidden
from leporello.store.sqlite import SQLiteStore

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.databases import Schemas

    from leporello.store.relational.store import RelationalStore


def filled(store: Any, conversations: int = 4) -> None:
    for n in range(conversations):
        key, owner = f"c{n}", "ann" if n % 2 else ""
        store.append(
            key,
            [{"role": "system", "content": "Be kind."}, {"role": "user", "content": f"word{n} \0 \ud800"}],
            owner=owner,
        )
        ids = store.append(
            key,
            [{"role": "assistant", "content": "long " * 900}, {"role": "user", "content": "again " * 800}],
            owner=owner,
            known={0: [b"h" * 16 + bytes([n])]},
        )
        leaves = [
            Node(
                level=level,
                text=f"leaf {n} \ud800",
                tokens=3,
                source_tokens=30,
                made_by="extract",
                covers=(Cover(first_seq=2, last_seq=3),),
                children=children,
                first_seq=2,
                last_seq=3,
                messages=2,
                time_from=0.0,
                time_to=1.0,
            )
            for level, children in ((0, ()),)
        ]
        (leaf,) = store.add_nodes(key, leaves, owner=owner)
        store.save_window(
            key,
            StoredWindow(items=({"n": leaf.id}, {"m": ids[1]})),
            JournalRow(reason="compaction", keep=0, added=(), cost_usd=0.25),
            owner=owner,
            used=[leaf.id],
        )
        store.fork(key, behind=ids[0], owner=owner)
        store.append(key, [{"role": "user", "content": f"on a branch {n}"}], owner=owner)
        store.pin(key, ids[0], owner=owner)
        store.add_artifacts(key, [Artifact(kind="file", value="src/a.py", message=ids[0])], owner=owner)
        store.add_job(key, "fold", "1", {"n": n}, owner=owner)
        store.handed_out(key, [({"role": "user", "content": "summary"}, [])], owner=owner)
    store.delete("c0", first=2, last=2)


def rows(store: RelationalStore) -> dict[str, list[tuple[Any, ...]]]:
    """Return all that is copied, in a fixed order."""
    tables = {"conversations": copying._CONVERSATION, "messages": f"conversation, {copying._MESSAGE}"}
    tables |= {table: f"conversation, {columns}" for table, columns in copying._TABLES.items()}
    with store._db.read() as connection:
        shown = connection.dialect.shown
        found = {
            table: sorted(
                map(
                    tuple,
                    connection.execute(
                        f"SELECT {columns} FROM {table} c" + (f" WHERE {shown}" if table == "conversations" else "")
                    ),
                ),
                key=repr,
            )
            for table, columns in tables.items()
        }
        found["payloads"] = sorted({(key,) for _, key, _ in connection.dialect.payload_uses(connection)})
        ids = [row[0] for row in found["conversations"]]
        found["children"] = [row for id_ in ids for row in connection.dialect.children(connection, id_)]
        return found


def answers(store: Any) -> list[Any]:
    return [
        [(hit.id, hit.snippet) for hit in store.search(text, owner=owner).hits]
        for text in ("again", "word1", "branch", "long")
        for owner in ("", "ann")
    ]


def healthy(store: Any) -> bool:
    infos = list(store.conversations())
    return not [
        *store.check_file(),
        *store.check_index(),
        *(f for i in infos for f in store.check_chain(i.key, owner=i.owner)),
    ]


def test_a_store_is_copied_both_ways_with_every_row(schemas: Schemas, tmp_path: Path) -> None:
    with SQLiteStore(tmp_path / "a.db") as source:
        filled(source)
        before, found = rows(source), answers(source)
    there = schemas.url("copy")
    back = tmp_path / "b.db"
    for source_url, target_url in ((str(tmp_path / "a.db"), there), (there, str(back))):
        result = CliRunner().invoke(commands, ["store", "migrate", source_url, target_url, "--json"])
        assert result.exit_code == 0, result.output
        assert '"copied": 4' in result.output
    for store in (schemas.open("copy"), SQLiteStore(back)):
        assert rows(store) == before
        assert answers(store) == found
        assert healthy(store)
        (new,) = store.append("c1", [{"role": "user", "content": "goes on"}], owner="ann")
        assert int(new[1:]) > max(row[1] for row in before["messages"])
        store.close()


def test_a_copy_that_was_cut_off_goes_on(schemas: Schemas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = SQLiteStore(tmp_path / "a.db"), schemas.open("copy")
    filled(source, conversations=12 if SOAK else 5)
    copy_messages, calls = copying._copy_messages, iter(range(100))

    def cut_off(*args: Any) -> None:
        copy_messages(*args)
        if next(calls) in {1, 3, 5}:
            raise KeyboardInterrupt

    monkeypatch.setattr(copying, "_copy_messages", cut_off)
    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            list(copying.copy_store(source, target))
        assert healthy(target)
    list(copying.copy_store(source, target))
    assert rows(target) == rows(source)
    source.append("c1", [{"role": "user", "content": "meanwhile"}], owner="ann")
    assert [each.conversation for each in copying.copy_store(source, target) if each.new] == ["c1"]
    assert rows(target) == rows(source)
    assert healthy(target)
    source.close()


@pytest.mark.parametrize("meanwhile", ["nothing", "said", "purged"])
@pytest.mark.parametrize("back", [False, True])
def test_a_long_conversation_goes_on_where_its_copy_was_cut_off(
    schemas: Schemas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: str, *, back: bool
) -> None:
    """It is not shown before it is complete; one that is no longer a part of what is to be copied is copied anew."""
    stores: tuple[Any, Any] = (SQLiteStore(tmp_path / "a.db"), schemas.open("copy"))
    source, target = reversed(stores) if back else stores
    source.append("long", [{"role": "user", "content": f"message {n}"} for n in range(100)])
    copy_messages, copied = copying._copy_messages, list[int]()

    def cut_off(here: Any, there: Any, found: Any, batch: Any) -> None:
        copy_messages(here, there, found, batch)
        copied.append(len(batch))
        if len(copied) == 5:
            raise KeyboardInterrupt

    monkeypatch.setattr(copying, "_BATCH", 10)
    monkeypatch.setattr(copying, "_copy_messages", cut_off)
    with pytest.raises(KeyboardInterrupt):
        list(copying.copy_store(source, target))
    assert list(target.conversations()) == []
    assert healthy(target)
    assert len(rows(target)["messages"]) == 40
    if meanwhile == "said":
        source.append("long", [{"role": "user", "content": "meanwhile"}])
    if meanwhile == "purged":
        with target._db.read() as connection:
            (number,) = connection.execute("SELECT id FROM conversations").fetchone()
        assert not target.remove_slice(Hidden(number, number, ""))
    list(copying.copy_store(source, target))
    assert sum(copied[5:]) == {"nothing": 60, "said": 101, "purged": 100}[meanwhile]
    assert rows(target) == rows(source)
    assert healthy(target)
    assert target.purge_status().step != "rows"
    source.close()


def test_many_rows_are_written_as_few_are(schemas: Schemas) -> None:
    """COPY and INSERT: whatever a message holds reads the same, and is found by the same words."""
    texts = [f"tab\t back\\slash \\N \\. quote' \" {n} \0 \ud800 naïve 服务器 it''s" for n in range(40)]
    store, one_by_one = schemas.open(), schemas.open()
    store.append("c", [{"role": "user", "content": text, "name": "o'n\teil"} for text in texts])
    for text in texts:
        one_by_one.append("c", [{"role": "user", "content": text, "name": "o'n\teil"}])
    assert [m.message for m in store.messages("c")] == [m.message for m in one_by_one.messages("c")]
    with store._db.read() as here, one_by_one._db.read() as there:
        found = [
            each.execute("SELECT id, length, text, terms::text FROM search ORDER BY id").fetchall()
            for each in (here, there)
        ]
    assert found[0] == found[1]
    assert len(store.search("服务器", limit=50).hits) == 40
    assert healthy(store)


def test_what_was_continued_or_is_of_another_store_is_not_overwritten(schemas: Schemas, tmp_path: Path) -> None:
    source, target = SQLiteStore(tmp_path / "a.db"), schemas.open("copy")
    filled(source, 2)
    list(copying.copy_store(source, target))
    target.append("c1", [{"role": "user", "content": "continued"}], owner="ann")
    with pytest.raises(StoreError, match="was continued there"):
        list(copying.copy_store(source, target))
    other = schemas.open("other")
    other.append("mine", [{"role": "user", "content": "x"}])
    with pytest.raises(StoreError, match="not from the store to copy"):
        list(copying.copy_store(source, other))
    source.close()


def test_a_copy_that_lost_a_row_is_noticed(schemas: Schemas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = SQLiteStore(tmp_path / "a.db"), schemas.open("copy")
    filled(source, 1)
    copy_messages = copying._copy_messages
    monkeypatch.setattr(copying, "_copy_messages", lambda a, b, c, batch: copy_messages(a, b, c, batch[:-1]))
    with pytest.raises(StoreError, match="is not what was copied"):
        list(copying.copy_store(source, target))
    source.close()


def test_the_commands_work_on_a_database(schemas: Schemas) -> None:
    store = schemas.open("here")
    for n in range(3):
        store.append(
            f"c{n}", [{"role": "user", "content": f"again {n}"}, {"role": "assistant", "content": "long " * 900}]
        )
    url = schemas.url("here")
    for arguments, expected in (
        (["sessions", "list", "--store", url], "c2"),
        (["grep", "again", "--store", url], "again"),
        (["verify", "--store", url], ""),
        (["gc", "--older-than", "1d", "--store", url], ""),
    ):
        result = CliRunner().invoke(commands, arguments)
        assert result.exit_code == 0, (arguments, result.output, result.exception)
        assert expected in result.output
    result = CliRunner().invoke(commands, ["backup", "x.db", "--store", url])
    assert isinstance(result.exception, StoreError)
    assert "pg_dump" in str(result.exception)
    assert {found.status for found in doctor._store(url)} == {"ok"}
    missing = schemas.url("nothing")
    assert [found.status for found in doctor._store(missing)] == ["problem"]
