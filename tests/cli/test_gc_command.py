"""`leporello gc`: shows first, deletes only what is old, and what it exports can be brought back."""

from __future__ import annotations

import json
import sqlite3
import stat
import time
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from leporello.store import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.cli import Leporello

DAY = 86_400


@pytest.fixture
def aged(tmp_path: Path) -> Path:
    """Return a store with an old conversation, a young one, and one that is both."""
    path = tmp_path / "aged.db"
    for key, age, count in (("old", 100, 3), ("both", 95, 4), ("both", 1, 2), ("young", 1, 5)):
        store = open_store(path, clock=lambda age=age: time.time() - age * DAY)  # type: ignore[misc]
        store.append(key, [{"role": "user", "content": f"{key} {age} {n}"} for n in range(count)])
        store.close()
    return path


def counts(leporello: Leporello, store: Path) -> dict[str, int]:
    found = leporello("sessions", "list", "--store", store, "--json").json
    return {info["id"]: info["messages"] for info in found}


def test_without_yes_nothing_is_changed(leporello: Leporello, aged: Path) -> None:
    before = counts(leporello, aged)
    for options in ([], ["--dry-run"]):
        done = leporello("gc", "--older-than", "90d", "--store", aged, *options)
        assert done.code == 0
        assert "old: the whole conversation, 3 messages" in done.out
        assert "both: seq 1 to 4, 4 messages" in done.out
        assert "would delete 7 messages; nothing was changed" in done.out
    assert counts(leporello, aged) == before == {"old": 3, "both": 6, "young": 5}


def test_with_yes_only_what_is_old_goes_and_the_rest_is_proven(leporello: Leporello, aged: Path) -> None:
    done = leporello("gc", "--older-than", "90d", "--yes", "--store", aged, "--json")
    assert done.json["deleted"]
    assert {one["conversation"]: one["messages"] for one in done.json["conversations"]} == {"old": 3, "both": 4}
    assert counts(leporello, aged) == {"both": 2, "young": 5}
    assert leporello("verify", "--store", aged).code == 0


def test_the_export_holds_what_goes_and_comes_back(leporello: Leporello, aged: Path, tmp_path: Path) -> None:
    bundle, restored = tmp_path / "old.jsonl", tmp_path / "restored.db"
    assert leporello("gc", "--older-than", "90d", "--export", bundle, "--store", aged).code == 0
    assert not bundle.exists(), "a dry run writes nothing"
    done = leporello("gc", "--older-than", "90d", "--export", bundle, "--yes", "--store", aged)
    assert f"they are in {bundle}" in done.out
    assert stat.S_IMODE(bundle.stat().st_mode) == 0o600
    assert leporello("import", bundle, "--store", restored).code == 0
    assert counts(leporello, restored) == {"old": 3, "both": 6}
    exported = leporello("sessions", "export", "old", "--store", restored).out.splitlines()
    assert [json.loads(line)["content"] for line in exported] == ["old 100 0", "old 100 1", "old 100 2"]


def test_an_export_comes_back_beside_what_is_left(leporello: Leporello, aged: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "old.jsonl"
    leporello("gc", "--older-than", "90d", "--export", bundle, "--yes", "--store", aged)
    refused = leporello("import", bundle, "--store", aged)
    assert (refused.code, "already" in refused.err) == (2, True)
    assert leporello("import", bundle, "--as", "restored-", "--store", aged).code == 0
    found = counts(leporello, aged)
    assert (found["restored-both"], found["restored-old"], found["both"]) == (6, 3, 2)


def test_nothing_is_deleted_when_the_export_cannot_be_written(leporello: Leporello, aged: Path, tmp_path: Path) -> None:
    (tmp_path / "taken.jsonl").write_text("mine")
    for file in (tmp_path / "taken.jsonl", tmp_path / "no" / "folder.jsonl"):
        done = leporello("gc", "--older-than", "90d", "--export", file, "--yes", "--store", aged)
        assert done.code == 2
    assert (tmp_path / "taken.jsonl").read_text() == "mine"
    assert counts(leporello, aged) == {"old": 3, "both": 6, "young": 5}


def test_nothing_that_old(leporello: Leporello, aged: Path) -> None:
    done = leporello("gc", "--older-than", "2y", "--yes", "--store", aged)
    assert (done.code, done.out) == (0, "nothing is that old\n")


@pytest.mark.parametrize("age", ["", "90", "soon", "-3d", "0d"])
def test_an_age_that_is_none(leporello: Leporello, aged: Path, age: str) -> None:
    done = leporello("gc", f"--older-than={age}", "--yes", "--store", aged)
    assert (done.code, "not a length of time" in done.err) == (2, True)
    assert counts(leporello, aged) == {"old": 3, "both": 6, "young": 5}


def test_dry_run_and_yes_contradict_each_other(leporello: Leporello, aged: Path) -> None:
    assert leporello("gc", "--older-than", "90d", "--dry-run", "--yes", "--store", aged).code == 2
    assert counts(leporello, aged) == {"old": 3, "both": 6, "young": 5}


def test_a_purge_takes_the_words_out_of_the_file_and_says_so(leporello: Leporello, aged: Path) -> None:
    done = leporello("gc", "--older-than", "90d", "--yes", "--store", aged)
    assert "until `leporello gc --purge`" in done.out
    done = leporello("gc", "--purge", "--store", aged)
    assert (done.code, "purge complete" in done.out) == (0, True)
    assert b"old 100" not in raw(aged)
    assert counts(leporello, aged) == {"both": 2, "young": 5}
    assert leporello("gc", "--purge", "--json", "--store", aged).json["purge"] == {"complete": True, "left_in": None}


def raw(store: Path) -> bytes:
    return b"".join(file.read_bytes() for file in store.parent.glob(f"{store.name}*"))


def test_a_purge_that_is_not_complete_says_so_with_its_exit_code(
    leporello: Leporello, aged: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("leporello.store.sqlite.purging.ATTEMPTS", 1)
    leporello("gc", "--older-than", "90d", "--yes", "--store", aged)
    with closing(sqlite3.connect(aged, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM messages").fetchone()
        done = leporello("gc", "--purge", "--store", aged)
    assert (done.code, "purge not complete" in done.out) == (1, True)


@pytest.mark.parametrize("options", [[], ["--older-than", "90d", "--purge"], ["--yes"]])
def test_options_that_say_too_little_are_refused(leporello: Leporello, aged: Path, options: list[str]) -> None:
    assert leporello("gc", "--store", aged, *options).code == 2
    assert counts(leporello, aged) == {"old": 3, "both": 6, "young": 5}
