"""`leporello import`: every conversation of another program's database comes in once, whole, and is proven."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import pytest
from tests.fixtures.foreign import START, HermesState, hermes_lcm, lossless_claw, tool_turns

from leporello.messages import violations
from leporello.store import open_store
from leporello.transcripts import Skipped, database

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.fixtures.cli import Leporello

    from leporello.messages import Message

LONG = bool(os.environ.get("LEPORELLO_SOAK"))
MESSAGES = 10_000 if LONG else 400


def bare(messages: list[Message]) -> list[dict[str, Any]]:
    """Return messages without their times."""
    return [{name: value for name, value in message.items() if name != "timestamp"} for message in messages]


def stored(path: Path, key: str) -> list[dict[str, Any]]:
    with closing(open_store(path)) as store:
        return bare([row.message for row in store.messages(key)])


def state_db(path: Path) -> dict[str, list[Message]]:
    """Write a state.db with folds in place and folds into new sessions; returns what was said in each."""
    said = {name: tool_turns(name, MESSAGES // 8) for name in ("in_place", "chained")}
    db = HermesState(path)
    for name, messages in said.items():
        db.begin(name, title=f"About {name}")
        for fold in range(5):
            first, last = fold * len(messages) // 5, (fold + 1) * len(messages) // 5
            db.say(*messages[first:last])
            into = f"{name}_{fold}" if name == "chained" else ""
            db.fold(fold, head=3 if fold == 0 else 0, tail=20, into=into)
    db.close()
    return said


def lcm_db(path: Path) -> dict[str, list[Message]]:
    said = {name: tool_turns(name, MESSAGES // 8) for name in ("first", "second")}
    hermes_lcm(path, said)
    return said


def claw_db(path: Path) -> dict[str, list[Message]]:
    said = {name: tool_turns(name, MESSAGES // 8) for name in ("first", "second")}
    lossless_claw(path, [*said.items()])
    return said


PROGRAMS: dict[str, Callable[[Path], dict[str, list[Message]]]] = {
    "hermes": state_db,
    "hermes-lcm": lcm_db,
    "lossless-claw": claw_db,
}


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_database_comes_in_whole_and_a_second_time_adds_nothing(
    leporello: Leporello, tmp_path: Path, program: str
) -> None:
    said = PROGRAMS[program](tmp_path / "their.db")
    before = (tmp_path / "their.db").read_bytes()
    at = ("--store", tmp_path / "s.db", "--json")
    done = leporello("import", tmp_path / "their.db", *at)
    assert done.code == 0
    assert {one["id"]: (one["status"], one["messages"]) for one in done.json["conversations"]} == {
        name: ("imported", len(messages)) for name, messages in said.items()
    }
    assert {one["format"] for one in done.json["conversations"]} == {program}
    for name, messages in said.items():
        assert stored(tmp_path / "s.db", name) == messages
    again = leporello("import", tmp_path / "their.db", *at).json["conversations"]
    assert {(one["status"], one["added"]) for one in again} == {("unchanged", 0)}
    assert leporello("verify", "--store", tmp_path / "s.db").code == 0
    assert (tmp_path / "their.db").read_bytes() == before, "it is only read"


@pytest.mark.slow
def test_a_message_that_was_lost_on_the_way_is_noticed(leporello: Leporello, tmp_path: Path) -> None:
    said = lcm_db(tmp_path / "their.db")
    with closing(sqlite3.connect(tmp_path / "their.db")) as db, db:
        db.execute("DELETE FROM messages WHERE store_id = 7")
    leporello("import", tmp_path / "their.db", "--store", tmp_path / "s.db")
    assert stored(tmp_path / "s.db", "first") != said["first"]


@pytest.fixture
def hermes(tmp_path: Path) -> Iterator[HermesState]:
    state = HermesState(tmp_path / "state.db")
    yield state
    state.close()


def imported(leporello: Leporello, tmp_path: Path) -> list[dict[str, Any]]:
    done = leporello("import", tmp_path / "state.db", "--store", tmp_path / "s.db", "--json")
    return list(done.json["conversations"])


def test_every_row_is_a_message_a_copy_a_summary_or_taken_back(
    leporello: Leporello, tmp_path: Path, hermes: HermesState
) -> None:
    hermes.begin("s1")
    hermes.say(*tool_turns("s1", 12))
    hermes.take_back(2)
    hermes.fold(1, head=3, tail=6)
    hermes.say({"role": "user", "content": "Go on."}, {"role": "assistant", "content": "Yes."})
    (one,) = imported(leporello, tmp_path)
    counts = {"copies that a compaction made": 9, "summaries": 1, "taken back by the user": 2}
    assert (one["messages"], one["left_out"]) == (48, counts)
    assert one["messages"] + sum(counts.values()) == hermes.rows()


def test_plain_talk_that_repeats_itself_is_no_copy(leporello: Leporello, tmp_path: Path, hermes: HermesState) -> None:
    hermes.begin("s1")
    talk: list[Message] = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello."}] * 6
    hermes.say(*talk)
    hermes.fold(1, head=2, tail=2)
    hermes.say({"role": "user", "content": "hi"})
    (one,) = imported(leporello, tmp_path)
    assert (one["messages"], one["left_out"]["copies that a compaction made"]) == (13, 4)


def test_parts_and_thinking_come_in_and_a_conversation_can_be_gone_on_with(
    leporello: Leporello, tmp_path: Path, hermes: HermesState
) -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    hermes.begin("s1")
    hermes.say({"role": "user", "content": [{"type": "text", "text": "What is this?"}, picture]})
    hermes.say({"role": "assistant", "content": "A crane."}, *tool_turns("s1", 2))
    imported(leporello, tmp_path)
    messages = stored(tmp_path / "s.db", "s1")
    assert messages[0]["content"][1] == picture
    with closing(open_store(tmp_path / "s.db")) as store:
        assert store.info("s1").meta["imported"]["format"] == "hermes"  # type: ignore[union-attr]
        assert next(row.time for row in store.messages("s1")) > START
    assert violations(messages, "openai") == []


def test_what_was_said_since_is_added(leporello: Leporello, tmp_path: Path, hermes: HermesState) -> None:
    hermes.begin("s1")
    hermes.say(*tool_turns("s1", 3))
    assert [(one["status"], one["added"]) for one in imported(leporello, tmp_path)] == [("imported", 12)]
    hermes.fold(1, head=3, tail=4)
    hermes.say({"role": "user", "content": "Go on."})
    assert [(one["status"], one["added"]) for one in imported(leporello, tmp_path)] == [("extended", 1)]
    assert [(one["status"], one["added"]) for one in imported(leporello, tmp_path)] == [("unchanged", 0)]


def test_what_went_on_in_both_places_becomes_a_branch(
    leporello: Leporello, tmp_path: Path, hermes: HermesState
) -> None:
    hermes.begin("s1")
    hermes.say(*tool_turns("s1", 2))
    imported(leporello, tmp_path)
    with closing(open_store(tmp_path / "s.db")) as store:
        store.append("s1", [{"role": "user", "content": "Here."}, {"role": "assistant", "content": "Here it is."}])
    assert [one["status"] for one in imported(leporello, tmp_path)] == ["unchanged"]
    hermes.say({"role": "user", "content": "There."})
    assert [(one["status"], one["added"]) for one in imported(leporello, tmp_path)] == [("branched", 1)]
    assert [one["status"] for one in imported(leporello, tmp_path)] == ["unchanged"]
    with closing(open_store(tmp_path / "s.db")) as store:
        tips = [[*store.messages("s1", branch=one.id)][-1].message["content"] for one in store.branches("s1")]
    assert sorted(tips) == ["Here it is.", "There."]
    assert leporello("verify", "--store", tmp_path / "s.db").code == 0


def test_another_conversation_of_the_name_is_left_out(leporello: Leporello, tmp_path: Path) -> None:
    hermes_lcm(tmp_path / "a.db", {"s1": tool_turns("one", 2), "s2": tool_turns("two", 2)})
    with closing(open_store(tmp_path / "s.db")) as store:
        store.append("s1", [{"role": "user", "content": "Something else."}])
    done = leporello("import", tmp_path / "a.db", "--store", tmp_path / "s.db")
    assert (done.code, "left out s1: there is a conversation of that name already" in done.out) == (1, True)
    assert "imported s2: 8 messages" in done.out
    assert len(stored(tmp_path / "s.db", "s1")) == 1
    assert leporello("import", tmp_path / "a.db", "--as", "old-", "--store", tmp_path / "s.db").code == 0


def test_an_older_hermes_lcm_and_structured_content_are_read(leporello: Leporello, tmp_path: Path) -> None:
    parts = [{"type": "text", "text": "naïve"}, {"type": "image_url", "image_url": {"url": "x"}}]
    talk: list[Message] = [{"role": "user", "content": parts}, {"role": "assistant", "content": '[{"a": 1}]'}]
    hermes_lcm(tmp_path / "a.db", {"s1": talk}, conversations=False)
    assert leporello("import", tmp_path / "a.db", "--store", tmp_path / "s.db").code == 0
    assert stored(tmp_path / "s.db", "s1") == talk


def test_a_session_of_lossless_claw_that_was_begun_again_is_two_conversations(
    leporello: Leporello, tmp_path: Path
) -> None:
    lossless_claw(tmp_path / "a.db", [("s1", tool_turns("one", 1)), ("s1", tool_turns("two", 1))])
    leporello("import", tmp_path / "a.db", "--store", tmp_path / "s.db")
    assert stored(tmp_path / "s.db", "s1-1") == tool_turns("one", 1)
    assert stored(tmp_path / "s.db", "s1-2") == tool_turns("two", 1)


def test_a_folder_is_read_and_what_is_none_of_it_is_told(leporello: Leporello, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    folder.mkdir()
    lossless_claw(folder / "claw.db", [("s1", tool_turns("one", 1))])
    shutil.copy(folder / "claw.db", tmp_path / "copy.db")
    with closing(sqlite3.connect(folder / "other.db")) as db:
        db.execute("CREATE TABLE shopping (item TEXT)")
    (folder / "talk.jsonl").write_text(json.dumps({"role": "user", "content": "hello"}) + "\n")
    (folder / "broken.json").write_text("{")
    done = leporello("import", folder, "--store", tmp_path / "s.db", "--json")
    assert {one["id"]: one["format"] for one in done.json["conversations"]} == {
        "s1": "lossless-claw",
        "talk": "openai",
    }
    assert sorted(skip["file"].rpartition("/")[2] for skip in done.json["skipped"]) == ["broken.json", "other.db"]


def test_a_database_that_is_none_is_one_line(leporello: Leporello, tmp_path: Path) -> None:
    (tmp_path / "cut.db").write_bytes(b"SQLite format 3\x00" + b"\x00" * 50)
    done = leporello("import", tmp_path / "cut.db", "--store", tmp_path / "s.db")
    assert (done.code, done.err.count("\n"), "cannot be read" in done.err) == (2, 1, True)


ODD_ROWS: dict[str, tuple[dict[str, Any], str]] = {
    "a role that is none": ({"role": "wizard"}, "'wizard' is no role"),
    "a number that is not finite": ({"tool_calls": '[{"id": "a", "function": {"arguments": NaN}}]'}, "nan is not JSON"),
    "bytes": ({"content": b"\xff\x00"}, "a value of type bytes is not JSON"),
    "a time that is none": ({"timestamp": float("inf")}, ""),
    "a time before all times": ({"timestamp": -(10.0**300)}, ""),
    "calls too deep": ({"tool_calls": '[{"x": ' + "[" * 300 + "]" * 300 + "}]"}, "nested more than 200 levels deep"),
    "calls that are none": ({"tool_calls": '[1, null, {"function": 3}, {}]'}, ""),
    "JSON without an end": ({"content": '[{"type": "text", "text":' + "[" * 50_000, "tool_calls": "[" * 50_000}, ""),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ODD_ROWS)
@pytest.mark.parametrize("program", ["hermes", "hermes-lcm"])
def test_an_odd_row_costs_itself_only(leporello: Leporello, tmp_path: Path, program: str, name: str) -> None:
    fields, told = ODD_ROWS[name]
    row = {"session_id": "s1", "role": "assistant", "content": "Hm.", "timestamp": START + 50, **fields}
    path = tmp_path / "their.db"
    if program == "hermes-lcm":
        hermes_lcm(path, {"s1": tool_turns("one", 2)})
    else:
        state = HermesState(path)
        state.begin("s1")
        state.say(*tool_turns("one", 2))
        state.close()
    with closing(sqlite3.connect(path)) as db, db:
        marks = ", ".join("?" * len(row))
        db.execute(f"INSERT INTO messages ({', '.join(row)}) VALUES ({marks})", [*row.values()])  # noqa: S608
    done = leporello("import", path, "--store", tmp_path / "s.db")
    assert (done.code, told in done.err) == (0, True), done.err
    assert stored(tmp_path / "s.db", "s1")[:8] == tool_turns("one", 2)
    assert len(stored(tmp_path / "s.db", "s1")) == (8 if told else 9)
    assert leporello("verify", "--store", tmp_path / "s.db").code == 0


def test_a_table_of_an_extension_that_is_not_here_is_not_looked_at(leporello: Leporello, tmp_path: Path) -> None:
    hermes_lcm(tmp_path / "a.db", {"s1": tool_turns("one", 2)})
    with closing(sqlite3.connect(tmp_path / "a.db")) as db, db:
        db.execute("CREATE VIRTUAL TABLE vectors USING fts5(x)")
        db.execute("PRAGMA writable_schema = ON")
        db.execute("UPDATE sqlite_master SET sql = 'CREATE VIRTUAL TABLE vectors USING vec0(x)' WHERE name = 'vectors'")
    assert leporello("import", tmp_path / "a.db", "--store", tmp_path / "s.db").out == "imported s1: 8 messages\n"


def test_a_name_is_one_line_and_no_statement(leporello: Leporello, tmp_path: Path) -> None:
    name = "x'; DROP TABLE messages; --\nimported s2: 9 messages"
    hermes_lcm(tmp_path / "a.db", {name: tool_turns("one", 2)})
    done = leporello("import", tmp_path / "a.db", "--store", tmp_path / "s.db")
    assert (done.code, done.out.count("\n")) == (0, 1)
    assert stored(tmp_path / "s.db", name) == tool_turns("one", 2)
    assert leporello("verify", "--store", tmp_path / "s.db").out.count("\n") == 1


def test_a_store_of_ours_is_known_as_one(leporello: Leporello, tmp_path: Path) -> None:
    hermes_lcm(tmp_path / "a.db", {"s1": tool_turns("one", 2)})
    leporello("import", tmp_path / "a.db", "--store", tmp_path / "s.db")
    done = leporello("import", tmp_path / "s.db", "--store", tmp_path / "t.db")
    assert (done.code, "this is a store of leporello. Name it with --store" in done.err) == (2, True)


def test_a_database_is_read_while_its_program_writes_to_it(leporello: Leporello, tmp_path: Path) -> None:
    hermes_lcm(tmp_path / "a.db", {"s1": tool_turns("one", 2)})
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as db:
        db.execute("PRAGMA journal_mode = WAL")
        row = "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('s1', 'user', ?, 1)"
        db.execute(row, ("What was said last.",))
        db.execute("BEGIN IMMEDIATE")
        db.execute(row, ("Half a sentence",))
        assert leporello("import", tmp_path / "a.db", "--store", tmp_path / "s.db").code == 0
    assert [one["content"] for one in stored(tmp_path / "s.db", "s1")][8:] == ["What was said last."]


@pytest.mark.parametrize("in_use", [False, True])
def test_beside_a_database_nothing_is_left(leporello: Leporello, tmp_path: Path, in_use: bool) -> None:
    """SQLite makes two files to read one that has a write-ahead log; those of a program that uses it stay."""
    folder = tmp_path / "theirs"
    folder.mkdir()
    hermes_lcm(folder / "a.db", {"s1": tool_turns("one", 2)})
    with closing(sqlite3.connect(folder / "a.db")) as db:
        db.execute("PRAGMA journal_mode = WAL")
    with ExitStack() as stack:
        if in_use:
            user = stack.enter_context(closing(sqlite3.connect(folder / "a.db")))
            user.execute("SELECT count(*) FROM messages").fetchone()
        before = {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in folder.glob("a.db")}
        names = sorted(file.name for file in folder.iterdir())
        assert len(names) == (3 if in_use else 1)
        assert leporello("import", folder / "a.db", "--store", tmp_path / "s.db").code == 0
        assert sorted(file.name for file in folder.iterdir()) == names
        assert {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in folder.glob("a.db")} == before


@pytest.mark.slow
def test_one_that_is_locked_is_not_read_half(leporello: Leporello, tmp_path: Path) -> None:
    hermes_lcm(tmp_path / "a.db", {"s1": tool_turns("one", 2)})
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as db:
        db.execute("BEGIN EXCLUSIVE")
        done = leporello("import", tmp_path / "a.db", "--store", tmp_path / "s.db")
        assert (done.code, "database is locked" in done.err) == (2, True)
    assert leporello("import", tmp_path / "a.db", "--store", tmp_path / "s.db").code == 0


def test_what_cannot_be_read_of_the_newest_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A write-ahead log in a folder that is read-only, where SQLite cannot open it."""
    hermes_lcm(tmp_path / "a.db", {"s1": tool_turns("one", 2)})
    began = database._began

    def read_only(address: str) -> sqlite3.Connection:
        if "immutable" in address:
            return began(address)
        error = sqlite3.OperationalError("unable to open database file")
        error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
        raise error

    monkeypatch.setattr(database, "_began", read_only)
    told: list[Skipped] = []
    assert [len(one.messages) for one in database.read(tmp_path / "a.db", told.append)] == [8]
    assert told == [], "without a log everything was read"
    (tmp_path / "a.db-wal").write_bytes(b"newer")
    assert [len(one.messages) for one in database.read(tmp_path / "a.db", told.append)] == [8]
    assert ["what is newest was not read" in one.reason for one in told] == [True]


def test_a_log_of_claude_code_comes_in_with_its_subagents(leporello: Leporello, tmp_path: Path) -> None:
    def record(number: int, kind: str, content: Any, **fields: Any) -> str:
        own = {"type": kind, "uuid": f"u{number}", "sessionId": "port", "message": {"role": kind, "content": content}}
        return (
            json.dumps({**own, "isSidechain": False, "timestamp": f"2026-03-01T10:00:{number:02d}Z", **fields}) + "\n"
        )

    log = tmp_path / "port.jsonl"
    log.write_text(record(1, "user", "Look.") + record(2, "assistant", [{"type": "text", "text": "I look."}]))
    agents = tmp_path / "port" / "subagents"
    agents.mkdir(parents=True)
    (agents / "agent-1.jsonl").write_text(record(3, "user", "Look deeper.", isSidechain=True, agentId="1"))
    at = ("--store", tmp_path / "s.db")
    assert leporello("import", log, *at).code == 0
    with log.open("a") as file:
        file.write(record(4, "user", "Go on."))
    found = leporello("import", log, *at, "--json").json["conversations"]
    assert {one["id"]: one["status"] for one in found} == {"port": "extended", "agent-1": "unchanged"}
    with closing(open_store(tmp_path / "s.db")) as store:
        assert store.info("agent-1").meta["imported"]["parent"] == "port"  # type: ignore[union-attr]
