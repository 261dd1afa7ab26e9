"""`leporello verify`: what is whole passes, and each planted damage is found and its place named."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from leporello.store import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.cli import Leporello


def damage(store: Path, statement: str) -> None:
    with closing(sqlite3.connect(store)) as connection:
        assert connection.execute(statement).rowcount > 0, "the damage is done"
        connection.commit()


def findings(found: dict[str, Any]) -> list[str]:
    every = [*found["findings"], *(one for verdict in found["conversations"] for one in verdict["findings"])]
    return [f"{one['where']}: {one['problem']}" for one in every]


def test_a_folded_conversation_is_whole(leporello: Leporello, folded: Path) -> None:
    done = leporello("verify", "--store", folded)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("✓ harbour: 90 messages")
    assert done.out.endswith("nothing is lost\n")
    assert leporello("verify", "harbour", "--store", folded, "--json").json["ok"]


@pytest.mark.parametrize(
    ("statement", "place"),
    [
        ("DELETE FROM messages WHERE id = 20", "before m21: 1 messages from seq 20 on are missing"),
        ("DELETE FROM messages WHERE id = 90", "the end of the conversation"),
        ("UPDATE messages SET body = (SELECT body FROM messages WHERE id = 1) WHERE id = 4", "m4: it is not what was"),
        ("DELETE FROM covers WHERE node = 1", "message m1 (seq 1): no leaf covers it"),
        ("DELETE FROM search_docsize WHERE id = 30", "m30: it is not in the search index"),
        ("UPDATE nodes SET messages = 1 WHERE id = 2", "node n2: it claims 1 messages"),
        ("UPDATE messages SET body = x'00ff' WHERE id = 20", "m20: it cannot be read"),
    ],
)
def test_damage_is_found_and_its_place_named(leporello: Leporello, folded: Path, statement: str, place: str) -> None:
    damage(folded, statement)
    done = leporello("verify", "--store", folded, "--json")
    assert done.code == 1
    assert not done.json["ok"]
    assert any(place in one for one in findings(done.json)), findings(done.json)
    shown = leporello("verify", "harbour", "--store", folded)
    assert shown.code == 1
    assert place in shown.out


def test_an_index_that_lacks_a_message_can_be_made_anew(leporello: Leporello, folded: Path) -> None:
    damage(folded, "DELETE FROM search_docsize WHERE id = 30")
    assert leporello("verify", "--store", folded).code == 1
    assert leporello("verify", "--rebuild-index", "--store", folded).code == 0


def test_damage_elsewhere_does_not_concern_a_named_conversation(leporello: Leporello, folded: Path) -> None:
    store = open_store(folded)
    store.append("yard", [{"role": "user", "content": "hello"}])
    store.close()
    damage(folded, "DELETE FROM messages WHERE id = 20")
    assert leporello("verify", "yard", "--store", folded).code == 0
    assert leporello("verify", "yard", "harbour", "--store", folded).code == 1


def test_a_file_that_is_no_store_any_more_is_a_finding(leporello: Leporello, tmp_path: Path) -> None:
    file = tmp_path / "broken.db"
    file.write_bytes(b"not a database at all " * 400)
    done = leporello("verify", "--store", file)
    assert done.code == 1
    assert "the file is not a SQLite database" in done.out


def test_a_deletion_on_purpose_is_no_finding(leporello: Leporello, folded: Path) -> None:
    assert leporello("sessions", "delete", "harbour", "--yes", "--store", folded).code == 0
    done = leporello("verify", "--store", folded)
    assert done.code == 0
    assert "no conversations" in done.out


def test_an_unknown_conversation(leporello: Leporello, folded: Path) -> None:
    done = leporello("verify", "nobody", "--store", folded)
    assert (done.code, "there is no conversation 'nobody'" in done.err) == (1, True)
