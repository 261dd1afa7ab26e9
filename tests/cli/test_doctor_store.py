"""`leporello doctor`: the store, looked at without changing it."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.cli import Leporello


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir(mode=0o700)
    return tmp_path / "home"


def looked_at(leporello: Leporello) -> dict[str, tuple[str, str]]:
    found = leporello("doctor", "--json").json["findings"]
    return {one["subject"]: (one["status"], one["detail"]) for one in found if one["section"] == "store"}


def test_a_store_in_use_is_described(leporello: Leporello, folded: Path, home: Path) -> None:
    shutil.copy(folded, home / "leporello.db")
    (home / "leporello.db").chmod(0o600)
    found = looked_at(leporello)
    assert {status for status, _ in found.values()} == {"ok"}
    assert found["schema"][1].isdecimal()
    assert found["conversations"][1] == "1, with 90 messages"
    assert "the file is whole" in found["integrity"][1]
    assert found[str(home / "leporello.db")][1].endswith("mode 0600")


def test_a_store_that_is_not_there_yet_is_fine(leporello: Leporello, tmp_path: Path) -> None:
    [(status, detail)] = looked_at(leporello).values()
    assert (status, "does not exist yet" in detail) == ("ok", True)
    assert not (tmp_path / "home").exists()


@pytest.mark.parametrize(
    ("statement", "subject", "status"),
    [
        ("PRAGMA user_version = 0", "schema", "note"),
        ("PRAGMA user_version = 9999", "leporello.db", "problem"),
        ("DELETE FROM payloads", "integrity", "problem"),
    ],
)
def test_what_is_wrong_with_it_is_a_finding(
    leporello: Leporello, folded: Path, home: Path, statement: str, subject: str, status: str
) -> None:
    file = home / "leporello.db"
    shutil.copy(folded, file)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute(statement)
        connection.commit()
    before = file.read_bytes()
    found = looked_at(leporello)
    assert found[str(file) if subject == file.name else subject][0] == status
    assert file.read_bytes() == before, "looking changes nothing"


def test_a_file_that_is_no_store(leporello: Leporello, home: Path) -> None:
    (home / "leporello.db").write_text("hello " * 1000)
    assert leporello("doctor").code == 1
    assert looked_at(leporello)[str(home / "leporello.db")][0] == "problem"


def test_a_file_that_others_can_read_is_a_warning(leporello: Leporello, folded: Path, home: Path) -> None:
    shutil.copy(folded, home / "leporello.db")
    (home / "leporello.db").chmod(0o644)
    status, detail = looked_at(leporello)[str(home / "leporello.db")]
    assert (status, "chmod 600" in detail) == ("warning", True)


@pytest.mark.parametrize("url", ["mysql://host/db", "postgresql://me:secret@host/db"])
def test_an_address_that_cannot_be_used_is_a_problem(leporello: Leporello, home: Path, url: str) -> None:
    (home / "config.yaml").write_text(f"store:\n  url: {url}\n")
    done = leporello("doctor")
    assert done.code == 1
    assert "secret" not in done.out


def test_the_engines_own_store_is_looked_at_too(leporello: Leporello, folded: Path, home: Path) -> None:
    (home / "config.yaml").write_text(f"lcm:\n  store: {folded}\n")
    assert str(folded) in looked_at(leporello)
