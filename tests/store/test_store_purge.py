"""Deleted means deleted: hidden at once, and after a purge no word of it is in the file, its index or its log."""

from __future__ import annotations

import random
import sqlite3
import subprocess
import sys
import zlib
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from leporello.store import Artifact, Cover, JournalRow, Node, PurgeStatus, SearchFilter, StoredWindow, WindowItem
from leporello.store.codec import LONG
from leporello.store.relational.deletion import Deletions
from leporello.store.sqlite import SQLiteStore, purging

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from leporello.store.relational.rows import Hidden

pytestmark = pytest.mark.slow

SHARED = " ".join(f"shared{n}" for n in range(LONG // 4))
COMPLETE = PurgeStatus()


def words_of(conversation: int, choose: random.Random, count: int) -> str:
    """Return words that no other conversation says."""
    return " ".join(f"w{conversation}x{choose.randrange(16**8):08x}" for _ in range(count))


def fill(store: SQLiteStore, choose: random.Random, *, conversations: range, turns: int) -> dict[int, list[bytes]]:
    """Store conversations that grow side by side, with everything that is kept beside their messages.

    Return the long texts of each as they are packed in the file.
    """
    packed: dict[int, list[bytes]] = {number: [] for number in conversations}
    for turn in range(turns):
        number = conversations[turn] if turn < len(conversations) else choose.choice(conversations)
        key = name_of(number)

        def words(count: int, number: int = number) -> str:
            return words_of(number, choose, count)

        text = words(choose.choice([3, 40, 90, 500]))
        packed[number] += [zlib.compress(text.encode(), 1)] if len(text) >= LONG else []
        call: dict[str, Any] = {
            "id": words(1),
            "type": "function",
            "function": {"name": "run", "arguments": f'{{"a": "{words(2)}"}}'},
        }
        first, *_ = store.append(
            key,
            [
                {"role": "user", "content": text, "name": words(1)},
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": call["id"], "content": SHARED if turn % 9 == 0 else words(9)},
            ],
        )
        store.add_artifacts(key, [Artifact(kind="file", value=words(3), note=words(2), message=first)])
        added: tuple[WindowItem, ...] = ({"m": first}, {"t": words(choose.randrange(1, 60)), "role": "user"})
        store.record_request(key, JournalRow(reason="turn", keep=0, added=added, report={"why": words(2)}))
        if turn % 5 == 0:
            (node,) = store.add_nodes(key, [leaf(words(30))])
            window = StoredWindow(
                version=store.window(key).version, items=({"n": node.id}, {"t": words(9), "role": "user"})
            )
            store.save_window(key, window, JournalRow(reason="fold", keep=0, added=()), used=[node.id])
            store.ensure(key, meta={"title": words(choose.randrange(1, 30))})
    return packed


def name_of(number: int) -> str:
    return f"name-w{number}x"


def leaf(text: str) -> Node:
    return Node(
        level=0, text=text, tokens=2, source_tokens=9, made_by="extract", covers=(Cover(first_seq=1, last_seq=2),),
        first_seq=1, last_seq=2, messages=2, time_from=0.0, time_to=1.0,
    )  # fmt: skip


def remains(file: Path, *marks: str | bytes) -> list[str]:
    """Search the raw bytes of a store, its log and its shared memory."""
    files = [file.with_name(file.name + suffix) for suffix in ("", "-wal", "-shm")]
    raw = {one.name: one.read_bytes() for one in files if one.exists()}
    wanted = [mark.encode() if isinstance(mark, str) else mark for mark in marks]
    return [f"{mark[:20]!r} in {name}" for name, data in raw.items() for mark in wanted if mark in data]


def left_after(file: Path, seed: int) -> list[str]:
    """Delete and purge conversations of a store, a few at a time, and return what is left of any of them."""
    choose = random.Random(seed)
    with SQLiteStore(file) as store:
        packed = fill(store, choose, conversations=range(40), turns=400)
        gone: list[str | bytes] = []
        for start in range(0, 24, 4):
            for number in range(start, start + 4):
                store.delete(name_of(number))
                gone += [f"w{number}x", *packed[number]]
            store.purge()
            fill(store, choose, conversations=range(30, 40), turns=5)
        assert problems(store) == []
        assert store.candidates("shared7", filter=SearchFilter(), limit=9, newest_first=True).found
        return remains(file, *gone)


def problems(store: SQLiteStore) -> list[str]:
    findings = [*store.check_index(), *store.check_file()]
    for info in store.conversations():
        findings += [*store.check_chain(info.key), *store.check_index(info.key)]
    with store._db.write() as connection:
        connection.execute("INSERT INTO search (search) VALUES ('integrity-check')")
    return [f"{finding.where}: {finding.problem}" for finding in findings]


@pytest.mark.parametrize("seed", range(2))
def test_after_a_purge_the_raw_bytes_hold_no_word_of_what_was_deleted(tmp_path: Path, seed: int) -> None:
    assert left_after(tmp_path / "s.db", seed) == []


def merge_nothing(connection: sqlite3.Connection) -> None:
    """Plant a defect: note that the index was merged, and leave its segments as they are."""
    removed = connection.execute("SELECT value FROM settings WHERE key = 'removed'").fetchone()[0]
    connection.execute("INSERT OR REPLACE INTO settings (key, value) VALUES ('merged', ?)", (removed,))


DEFECTS: dict[str, tuple[str, Callable[..., object]]] = {
    "the index is not merged": ("leporello.store.sqlite.purging._merge_some", merge_nothing),
    "pages are not cleaned": ("leporello.store.sqlite.purging.pages_with_remains", lambda *_: []),
    "the log is not emptied": ("leporello.store.sqlite.connection.Database.empty_log", lambda _: True),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_the_search_of_the_raw_bytes_finds_a_purge_that_leaves_something_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, defect: str
) -> None:
    monkeypatch.setattr(*DEFECTS[defect])
    assert any(left_after(tmp_path / f"{seed}.db", seed) for seed in range(2))


def test_a_range_that_was_deleted_is_purged_and_the_rest_stays(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    with SQLiteStore(file) as store:
        texts = [f"{'past' if n < 60 else 'kept'}{n} {SHARED if n % 30 == 0 else 'word ' * n}" for n in range(120)]
        ids = store.append("c", [{"role": "user", "content": text} for text in texts])
        store.delete("c", first=1, last=60)
        assert store.purge() == COMPLETE
        assert remains(file, "past") == []
        assert [row.message["content"] for row in store.messages("c")] == texts[60:]
        assert store.get(ids[60:61])[ids[60]].message["content"].endswith(SHARED)
        assert problems(store) == []


class CutOffError(Exception):
    """The process that deletes is killed."""


@pytest.fixture
def cut_off(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let every removal fail before it begins."""

    def fail(_store: Deletions, _hidden: Hidden) -> bool:
        raise CutOffError

    with monkeypatch.context() as patch:
        patch.setattr(Deletions, "remove_slice", fail)
        yield


@pytest.mark.usefixtures("cut_off")
@pytest.mark.parametrize("whole", [True, False])
def test_what_is_deleted_is_hidden_before_anything_is_removed(tmp_path: Path, whole: bool) -> None:
    store = SQLiteStore(tmp_path / "s.db")
    ids = store.append("c", [{"role": "user", "content": f"secret{n}"} for n in range(3)], owner="me")
    store.add_artifacts("c", [Artifact(kind="file", value="secret", message=ids[0])], owner="me")
    (node,) = store.add_nodes("c", [leaf("secret summary")], owner="me")
    store.add_job("c", "fold", "1", {"why": "secret"}, owner="me")
    with pytest.raises(CutOffError):
        store.delete("c", owner="me", first=None if whole else 1, last=None if whole else 3)
    assert "secret" not in str(read_everything(store, ids, node.id if whole else "", whole=whole))


def read_everything(store: SQLiteStore, ids: tuple[str, ...], node: str, *, whole: bool) -> list[Any]:
    who: Any = {"owner": "me"}
    read: list[Any] = [
        list(store.messages("c", **who, superseded=True, system=True)),
        store.get(ids, **who),
        store.neighbours([ids[1]], before=3, after=3, **who),
        store.artifacts("c", **who),
        list(store.export("c", **who)),
        store.covering(ids, **who),
        store.candidates("secret0", filter=SearchFilter(**who), limit=9, newest_first=True),
        store.candidates("secret0", filter=SearchFilter(conversation="c", **who), limit=9, newest_first=False),
        list(store.conversations()),
    ]
    if whole:
        nodes = [*store.nodes("c", **who), *store.prepared_nodes("c", **who)]
        read += [store.node(node, **who), nodes, store.claim_job("w", seconds=1), store.info("c", **who)]
    return read


def test_a_removal_that_was_cut_off_is_finished_by_a_purge(tmp_path: Path, cut_off: None) -> None:
    del cut_off
    file = tmp_path / "s.db"
    store = SQLiteStore(file)
    store.append("c", [{"role": "user", "content": f"secret{n} {SHARED}"} for n in range(99)])
    with pytest.raises(CutOffError):
        store.delete("c")
    store.append("c", [{"role": "user", "content": "another conversation of that name"}])
    assert store.purge_status() == PurgeStatus(step="rows", messages=99)
    code = f"from leporello.store import open_store; assert open_store({str(file)!r}).purge().complete"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert store.purge_status() == COMPLETE
    assert remains(file, "secret") == []
    assert [row.message["content"] for row in store.messages("c")] == ["another conversation of that name"]
    assert problems(store) == []


def test_the_name_of_a_deleted_conversation_goes_with_the_purge(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    with SQLiteStore(file) as store:
        store.append("my-secret-plan", [{"role": "user", "content": "hello"}], owner="somebody")
        store.delete("my-secret-plan", owner="somebody")
        assert store.purge() == COMPLETE
        assert remains(file, "my-secret-plan") == remains(file, "somebody") == []


def test_an_import_that_was_cut_off_is_not_seen_and_removed_after_a_day(tmp_path: Path) -> None:
    moment = [1e9]
    file = tmp_path / "s.db"
    store = SQLiteStore(file, clock=lambda: moment[0])
    store.append("c", [{"role": "user", "content": f"imported{n}"} for n in range(600)])
    lines = list(store.export("c"))
    store.delete("c")
    store.purge()
    code = (
        "import os, sys\nfrom leporello.store import open_store\n"
        "def lines():\n  for n, line in enumerate(sys.stdin):\n    yield line\n    if n == 400: os._exit(9)\n"
        f"open_store({str(file)!r}, clock=lambda: {moment[0]}).import_lines(lines())"
    )
    done = subprocess.run([sys.executable, "-c", code], input="\n".join(lines), text=True, check=False)
    assert done.returncode == 9
    assert remains(file, "imported")
    assert store.candidates("imported5", filter=SearchFilter(), limit=9, newest_first=True).found == ()
    assert store.purge() == COMPLETE
    assert remains(file, "imported"), "it may still be under way"
    moment[0] += 90_000
    assert store.purge() == COMPLETE
    assert remains(file, "imported") == []
    assert problems(store) == []


def test_others_write_while_a_purge_is_under_way(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    store = SQLiteStore(file)
    fill(store, random.Random(9), conversations=range(4), turns=200)
    writer = (
        "import sys\nfrom leporello.store import open_store\n"
        f"store = open_store({str(file)!r})\nprint('ready', flush=True)\n"
        "for n in range(150): store.append('busy', [{'role': 'user', 'content': f'said{n} ' * 30}])"
    )
    with subprocess.Popen([sys.executable, "-c", writer], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        store.delete(name_of(2))
        store.purge()
    assert process.returncode == 0
    assert store.purge() == COMPLETE
    assert remains(file, "w2x") == []
    assert len(list(store.messages("busy"))) == 150
    assert problems(store) == []


def test_any_number_of_purges_leaves_a_sound_index(tmp_path: Path) -> None:
    with SQLiteStore(tmp_path / "s.db") as store:
        for number in range(80):
            store.append("c", [{"role": "user", "content": f"stays{number}"}])
            store.append(f"d{number}", [{"role": "user", "content": f"goes{number}"}])
            store.delete(f"d{number}")
            store._purge_slice(store.purge_status())
            while store.purge_status().step == "index":
                store._purge_slice(store.purge_status())
        assert store.purge() == COMPLETE
        assert problems(store) == []
        found = store.candidates("stays3", filter=SearchFilter(), limit=9, newest_first=True).found
        assert [one.text for one in found] == ["stays3"]


def test_a_purge_says_that_it_is_not_complete_while_a_reader_needs_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purging, "ATTEMPTS", 1)
    file = tmp_path / "s.db"
    with SQLiteStore(file) as store, closing(sqlite3.connect(file, isolation_level=None)) as reader:
        store.append("c", [{"role": "user", "content": "secret"}])
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM messages").fetchone()
        store.delete("c")
        status = store.purge()
        assert not status.complete
        assert status.step in ("pages", "log")
        reader.execute("ROLLBACK")
        assert store.purge() == COMPLETE
        assert remains(file, "secret") == []


def test_a_store_without_deletions_needs_no_purge(tmp_path: Path) -> None:
    assert SQLiteStore(tmp_path / "none.db").purge() == COMPLETE
    assert not (tmp_path / "none.db").exists()
    with SQLiteStore() as store:
        store.append("c", [{"role": "user", "content": "hello"}])
        assert store.purge_status() == COMPLETE
        store.delete("c")
        assert store.purge() == COMPLETE


def test_a_damaged_message_can_be_deleted_and_purged(tmp_path: Path) -> None:
    file = tmp_path / "s.db"
    with SQLiteStore(file) as store:
        store.append("c", [{"role": "user", "content": f"secret{n}"} for n in range(5)])
        store.append("other", [{"role": "user", "content": "stays"}])
        with store._db.write() as connection:
            connection.execute("UPDATE messages SET body = x'7b22' WHERE seq = 3")
        store.delete("c")
        store.rebuild_index()
        assert store.purge() == COMPLETE
        assert remains(file, "secret") == []
        assert problems(store) == []
