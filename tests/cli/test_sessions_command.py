"""`leporello sessions`: what is stored is listed, and comes out and in again with every field."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from leporello.store import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.cli import Leporello

    from leporello.messages import Message

ODD: list[Any] = [
    {"role": "system", "content": "Be brief."},
    {"content": [{"type": "text", "text": "naïve 日本 \u2028 line"}], "role": "user", "x_unknown": {"b": 1, "a": None}},
    {"role": "assistant", "content": "NUL \x00, half \ud83d, done", "reasoning_content": "hm"},
    {"role": "user", "content": "yes"},
    {"role": "user", "content": "yes"},
]


def lines(text: str) -> list[Message]:
    return [json.loads(line) for line in text.splitlines()]


def keep(path: Path, key: str, messages: list[Message], owner: str = "") -> None:
    store = open_store(path)
    store.append(key, messages, owner=owner)
    store.close()


def test_the_list_is_for_people_and_programs(leporello: Leporello, folded: Path) -> None:
    keep(folded, "yard", ODD[1:2])
    found = leporello("sessions", "list", "--store", folded, "--json").json
    assert [(info["id"], info["messages"], bool(info["ended"])) for info in found] == [
        ("yard", 1, False),
        ("harbour", 90, True),
    ]
    shown = leporello("sessions", "list", "--store", folded).out
    rows = [re.split(r" {2,}", line)[:3] for line in shown.splitlines()[1:]]
    assert [(key, messages) for key, _, messages in rows] == [("yard", "1"), ("harbour", "90")]
    assert [title for _, title, _ in rows] == [info["title"] for info in found]
    assert rows[1][1] == "Please look at src/harbour/part_00.py."


def test_an_empty_store_lists_nothing(leporello: Leporello, folded: Path) -> None:
    leporello("sessions", "delete", "harbour", "--yes", "--store", folded)
    done = leporello("sessions", "list", "--store", folded, "--json")
    assert (done.code, done.json) == (1, [])


def test_one_conversation_is_shown_with_its_window(leporello: Leporello, folded: Path, talk: list[Message]) -> None:
    found = leporello("sessions", "show", "harbour", "--last", "2", "--store", folded, "--json").json
    assert found["messages"] == 90
    assert found["nodes"] >= len(found["window_nodes"]) > 0
    assert found["compactions"] > 0
    assert [row["message"] for row in found["newest"]] == talk[-2:]
    shown = leporello("sessions", "show", "harbour", "--store", folded).out
    assert "m88 user: Please look at src/harbour/part_29.py." in shown
    lines = [" ".join(line.split()) for line in shown.splitlines()]
    assert {
        f"messages {found['messages']}",
        f"window {found['window_messages']} messages, {found['window_tokens']:,} tokens",
        f"nodes in it {', '.join(found['window_nodes'])}",
        f"compactions {found['compactions']}",
    } <= set(lines)
    assert "superseded" not in shown


def test_an_export_is_every_message_in_order_word_for_word(
    leporello: Leporello, folded: Path, talk: list[Message]
) -> None:
    done = leporello("sessions", "export", "harbour", "--store", folded)
    assert done.code == 0
    assert lines(done.out) == talk
    assert [list(message) for message in lines(done.out)] == [list(message) for message in talk]


def test_odd_messages_survive_an_export(leporello: Leporello, folded: Path, tmp_path: Path) -> None:
    keep(folded, "odd", ODD)
    file = tmp_path / "odd.jsonl"
    done = leporello("sessions", "export", "odd", "--output", file, "--store", folded)
    assert (done.code, done.out) == (0, "")
    assert lines(file.read_text()) == ODD
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("options", [[], ["--bundle"]])
def test_what_was_exported_can_be_imported(
    leporello: Leporello, folded: Path, tmp_path: Path, options: list[str]
) -> None:
    keep(folded, "odd", ODD)
    file, other = tmp_path / "odd.jsonl", tmp_path / "other.db"
    leporello("sessions", "export", "odd", "--output", file, "--store", folded, *options)
    assert leporello("import", file, "--store", other).code == 0
    again = leporello("import", file, "--as", "twice", "--store", other, "--json")
    assert [(info["id"], info["messages"]) for info in again.json["conversations"]] == [("twice", 4)]
    for key in ("odd", "twice"):
        assert lines(leporello("sessions", "export", key, "--store", other).out) == ODD
    assert leporello("verify", "--store", other).code == 0
    assert leporello("grep", "日本", "--store", other).code == 0


@pytest.mark.parametrize("options", [[], ["--bundle"]])
def test_an_import_never_changes_an_existing_conversation(
    leporello: Leporello, folded: Path, tmp_path: Path, options: list[str]
) -> None:
    file = tmp_path / "harbour.jsonl"
    leporello("sessions", "export", "harbour", "--output", file, "--store", folded, *options)
    done = leporello("import", file, "--store", folded)
    assert (done.code, done.out) == (0, "unchanged harbour: 90 messages\n")
    other = tmp_path / "other.db"
    keep(other, "harbour", ODD[1:3])
    done = leporello("import", file, "--store", other)
    assert (done.code, "already" in done.out + done.err) == (2 if options else 1, True)
    shown = leporello("sessions", "show", "harbour", "--store", other, "--json")
    assert shown.json["messages"] == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "there is nothing in it"),
        ('{"role": "user", "content": "a"}\nnot json\n', "line 2: not JSON"),
        ('{"role": "user", "content": "a"}\n[1]\n', "line 2: not a JSON object"),
        ('{"role": "user", "content": "a"}\n{"content": "b"}\n', "line 2: this is not a message"),
        ('{"leporello": 1, "conversation": "cut"}\n', "incomplete or was changed"),
        ('{"leporello": 99}\n', "not an export"),
    ],
)
def test_a_file_that_cannot_be_imported_is_told_with_its_line_and_leaves_nothing(
    leporello: Leporello, folded: Path, tmp_path: Path, text: str, told: str
) -> None:
    file = tmp_path / "bad.jsonl"
    file.write_text(text)
    done = leporello("import", file, "--store", folded)
    assert (done.code, done.out) == (2, "")
    assert told in done.err
    assert [info["id"] for info in leporello("sessions", "list", "--store", folded, "--json").json] == ["harbour"]


def test_an_export_that_was_changed_is_refused(leporello: Leporello, folded: Path, tmp_path: Path) -> None:
    whole = leporello("sessions", "export", "harbour", "--bundle", "--store", folded).out
    for number, text in enumerate(
        (whole.replace("PORT-2291", "PORT-2292"), "".join(whole.splitlines(keepends=True)[:-3]))
    ):
        file = tmp_path / f"changed{number}.jsonl"
        file.write_text(text)
        assert leporello("import", file, "--as", "changed", "--store", folded).code == 2
        assert leporello("sessions", "show", "changed", "--store", folded).code == 1


def test_binary_and_missing_files_are_told(leporello: Leporello, folded: Path, tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for file in (tmp_path / "binary", tmp_path / "missing.jsonl", tmp_path):
        done = leporello("import", file, "--store", folded)
        assert (done.code, len(done.err.splitlines())) == (2, 1)


def test_an_export_never_overwrites_a_file(leporello: Leporello, folded: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    done = leporello("sessions", "export", "harbour", "--output", tmp_path / "mine.txt", "--store", folded)
    assert done.code == 2
    assert (tmp_path / "mine.txt").read_text() == "mine"
    assert sorted(file.name for file in tmp_path.glob("*.part")) == []


def test_deleting_shows_first(leporello: Leporello, folded: Path) -> None:
    done = leporello("sessions", "delete", "harbour", "--store", folded)
    assert (done.code, "would delete harbour: 90 messages" in done.out) == (0, True)
    assert leporello("grep", "PORT-2291", "--store", folded).code == 0
    done = leporello("sessions", "delete", "harbour", "--yes", "--store", folded, "--json")
    assert (done.json["deleted"], done.json["messages"], done.json["whole"]) == (True, 90, True)
    assert leporello("grep", "PORT-2291", "--store", folded).code == 1
    assert leporello("sessions", "show", "harbour", "--store", folded).code == 1


def test_a_name_that_two_owners_have_needs_the_owner(leporello: Leporello, folded: Path) -> None:
    for owner in ("ana", "ben"):
        keep(folded, "shared", [{"role": "user", "content": f"of {owner}"}], owner=owner)
    done = leporello("sessions", "export", "shared", "--store", folded)
    assert (done.code, "several owners have a conversation 'shared': ana, ben" in done.err) == (2, True)
    done = leporello("sessions", "export", "shared", "--owner", "ben", "--store", folded)
    assert lines(done.out) == [{"role": "user", "content": "of ben"}]


@pytest.mark.slow
def test_real_processes_hand_a_conversation_through_a_pipe(folded: Path, tmp_path: Path) -> None:
    run = [sys.executable, "-c", "from leporello.cli import main; main()", "sessions"]
    environment = {**os.environ, "LEPORELLO_HOME": str(tmp_path / "home")}
    out = subprocess.run([*run, "export", "harbour", "--store", folded], capture_output=True, check=True)
    done = subprocess.run(
        [*run[:-1], "import", "-", "--as", "piped"], input=out.stdout, env=environment, capture_output=True, check=True
    )
    assert done.stdout == b"imported piped: 90 messages\n"
    home = tmp_path / "home"
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert stat.S_IMODE((home / "leporello.db").stat().st_mode) == 0o600
