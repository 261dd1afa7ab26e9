"""With tables that are hash-partitioned by conversation, a turn, a fold and a search touch one partition of each."""

from __future__ import annotations

import json
import re
import threading
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from tests.fixtures.databases import server

from leporello import Session
from leporello.lcm.job_worker import JobWorker
from leporello.lcm.settings import LCMSettings
from leporello.llm import ScriptedLLM
from leporello.store import FOLD, JournalRow, Node, StoredWindow
from leporello.store.postgres import migrations
from leporello.store.postgres.connection import PostgresConnection, translated
from leporello.store.records import Cover
from leporello.tokens import count_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.fixtures.databases import Schemas

    from leporello.messages import Message
    from leporello.store.postgres import PostgresStore

WHOLE = {"settings", "conversations", "jobs", "known", "purges"}
PARTITIONS = 4
LOOK_UPS = ("FROM known", "WHERE c.owner = ? AND c.key = ?")


def partitioned(script: str) -> str:
    """Return the schema with tables that are partitioned by their conversation."""

    def table(match: re.Match[str]) -> str:
        name, columns = match[1], match[2]
        if name in WHOLE:
            return match[0]
        parts = "".join(
            f"\nCREATE TABLE {name}_p{n} PARTITION OF {name} FOR VALUES WITH (MODULUS {PARTITIONS}, REMAINDER {n});"
            for n in range(PARTITIONS)
        )
        return f"CREATE TABLE {name} ({columns}\n) PARTITION BY HASH (conversation);{parts}"

    return re.sub(r"CREATE TABLE (\w+) \((.*?)\n\)(?: WITH \([^)]*\))?;", table, script, flags=re.DOTALL)


@pytest.fixture
def store(schemas: Schemas, monkeypatch: pytest.MonkeyPatch) -> PostgresStore:
    with psycopg.connect(server()) as connection:
        if connection.info.server_version < 170000:
            pytest.skip("identity columns of partitioned tables came with PostgreSQL 17")
    scripts = {number: partitioned(script) for number, script in migrations.versions().items()}
    monkeypatch.setattr(migrations, "versions", lambda: scripts)
    store = schemas.open("parts")
    for n in range(12):
        store.append(f"c{n}", [{"role": "user", "content": f"question {n}"}, {"role": "assistant", "content": "yes"}])
    return store


@pytest.fixture
def touched(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, set[str]]]:
    """Explain every statement, and note for each the partitions that it reads or writes."""
    found: dict[str, set[str]] = {}

    def explain(connection: PostgresConnection, statement: str, parameters: Any) -> None:
        if statement.lstrip().upper().startswith(("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")):
            plan = connection._raw.execute(b"EXPLAIN (FORMAT JSON) " + translated(statement), parameters).fetchone()
            found.setdefault(statement, set()).update(_partitions(json.loads(json.dumps(plan))))

    for name in ("execute", "walk", "executemany"):
        original: Callable[..., Any] = getattr(PostgresConnection, name)

        def explained(
            self: PostgresConnection, statement: str, parameters: Any = (), original: Any = original, name: str = name
        ) -> Any:
            rows = list(parameters)
            first = (rows[0] if rows else None) if name == "executemany" else rows
            if first is not None:
                explain(self, statement, first)
            return original(self, statement, rows)

        monkeypatch.setattr(PostgresConnection, name, explained)
    yield found
    monkeypatch.undo()


def _partitions(plan: Any) -> set[str]:
    if isinstance(plan, dict):
        own = {plan["Relation Name"]} if re.search(r"_p\d$", plan.get("Relation Name", "")) else set()
        return own.union(*map(_partitions, plan.values()))
    return set[str]().union(*map(_partitions, plan)) if isinstance(plan, list) else set()


def spread(touched: dict[str, set[str]]) -> dict[str, list[str]]:
    """Return the statements that touch several partitions of one table.

    Two are pruned only while they run, because they look the conversation up themselves: the one that asks which
    conversation a history belongs to, and the one that describes the conversation of a name.
    """
    wide = {}
    for statement, names in touched.items():
        tables = [name.rpartition("_p")[0] for name in names]
        if len(set(tables)) < len(tables) and not any(each in statement for each in LOOK_UPS):
            wide[statement] = sorted(names)
    return wide


def turn(store: PostgresStore) -> None:
    (question,) = store.append("c5", [{"role": "user", "content": "long " * 900}])
    calls = [{"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
    answer: Any = {"role": "assistant", "content": None, "tool_calls": calls}
    row = JournalRow(reason="request", keep=0, added=({"m": question},))
    store.append("c5", [answer], request=row, known={0: [b"h" * 16]})
    store.append("c5", [{"role": "tool", "tool_call_id": "call_1", "content": "found"}])
    store.window("c5")
    store.newest("c5")
    list(store.messages("c5"))
    store.known([b"h" * 16])
    assert store.acquire("c5", "token", seconds=5)


def fold(store: PostgresStore) -> None:
    leaf = Node(
        level=0,
        text="leaf",
        tokens=1,
        source_tokens=9,
        made_by="extract",
        covers=(Cover(first_seq=1, last_seq=2),),
        first_seq=1,
        last_seq=2,
        messages=2,
        time_from=0.0,
        time_to=1.0,
    )
    (kept,) = store.add_nodes("c5", [leaf])
    row = JournalRow(reason="compaction", keep=0, added=())
    store.save_window("c5", StoredWindow(items=({"n": kept.id},)), row, used=[kept.id])
    assert [node.id for node in store.nodes("c5")] == [kept.id]
    store.fork("c5")


def test_a_turn_and_a_fold_touch_one_partition(store: PostgresStore, touched: dict[str, set[str]]) -> None:
    turn(store)
    fold(store)
    assert len(touched) > 25
    assert {name.rpartition("_p")[0] for names in touched.values() for name in names} >= {
        "messages",
        "nodes",
        "windows",
    }
    assert spread(touched) == {}


def test_a_statement_without_its_conversation_would_be_noticed(
    store: PostgresStore, touched: dict[str, set[str]]
) -> None:
    store.get(["m1"])
    assert len(spread(touched)) == 1


STATISTICS = (
    "SELECT coalesce(max(id), 0) FROM search",
    "SELECT count(*), min(id) FROM (SELECT s.id FROM search s WHERE s.terms",
    "SELECT count(*) FROM (SELECT 1 FROM search s WHERE s.terms",
)
"""What a search asks of all conversations: how rare a word is, and the newest number."""


def test_a_search_of_a_conversation_finds_its_hits_in_one_partition(
    store: PostgresStore, touched: dict[str, set[str]]
) -> None:
    """How rare its words are is asked of all conversations, so that a hit has the same score wherever it is found."""
    assert store.search("question", conversation="c5").hits
    assert store.search("what was the question 5 about?", conversation="c5").hits
    assert store.search("question", conversation="c5", sort="recency").hits
    assert store.search("quest.*", conversation="c5", regex=True).hits
    wide = spread(touched)
    assert [statement for statement in wide if not statement.startswith(STATISTICS)] == []
    hits = [names for statement, names in touched.items() if "s.terms @@" in statement and statement not in wide]
    assert any({name.rpartition("_p")[0] for name in names} >= {"search", "messages"} for names in hits)
    touched.clear()
    assert store.search("question").hits
    assert any(statement.startswith("SELECT s.id FROM search s WHERE s.terms") for statement in spread(touched))


def test_a_session_with_the_lossless_engine_touches_one_partition(
    store: PostgresStore, touched: dict[str, set[str]], work: Callable[..., list[Message]]
) -> None:
    """Turns, the summaries that a worker writes, and the folds that use them."""
    llm = ScriptedLLM("## Goal\nFix it.\n\n## Progress\n### Done\n- Read src/app.py.", context_length=64_000)
    config: dict[str, Any] = {
        "context": {"engine": "lcm"},
        "lcm": {"background": "workers", "leaf_tokens": 500, "threshold": 0.4},
    }
    with Session.open("c5", model="m", context_length=8_000, store=store, llm=llm, config=config) as session:
        for turn in range(12):
            for message in work(turn, turn + 1, 400):
                if message["role"] == "assistant":
                    usage = {"prompt_tokens": count_messages(session.request()["messages"]), "completion_tokens": 9}
                    session.record({"choices": [{"message": message}], "usage": usage})
                else:
                    session.add(message)
            JobWorker(store, LCMSettings.of(config["lcm"]), lambda _: llm).run(threading.Event(), once=True)
        folds = len([row for row in store.journal("c5") if row.reason == FOLD])
        nodes = store.nodes("c5")
    assert folds
    assert any(node.made_by == "model" for node in nodes)
    assert spread(touched) == {}
