"""With tables that are hash-partitioned by conversation, a turn, a fold and a search touch one partition of each."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from tests.fixtures.databases import server
from tests.store.postgres.plans import explained, fold, nodes, turn

from leporello import Session
from leporello.lcm.job_worker import JobWorker
from leporello.lcm.settings import LCMSettings
from leporello.llm import ScriptedLLM
from leporello.store import FOLD
from leporello.store.postgres import candidates, migrations
from leporello.tokens import count_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.fixtures.databases import Schemas
    from tests.store.postgres.plans import Plans

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
def plans() -> Iterator[Plans]:
    with explained() as found:
        yield found


def touched(plans: Plans) -> dict[str, set[str]]:
    """Return the partitions that each statement reads or writes."""
    named = {statement: {node.get("Relation Name", "") for node in nodes(plan)} for statement, plan in plans.items()}
    return {statement: {name for name in names if re.search(r"_p\d$", name)} for statement, names in named.items()}


def spread(plans: Plans) -> dict[str, list[str]]:
    """Return the statements that touch several partitions of one table.

    Two are pruned only while they run, because they look the conversation up themselves: the one that asks which
    conversation a history belongs to, and the one that describes the conversation of a name.
    """
    wide = {}
    for statement, names in touched(plans).items():
        tables = [name.rpartition("_p")[0] for name in names]
        if len(set(tables)) < len(tables) and not any(each in statement for each in LOOK_UPS):
            wide[statement] = sorted(names)
    return wide


def test_a_turn_and_a_fold_touch_one_partition(store: PostgresStore, plans: Plans) -> None:
    turn(store, "c5")
    list(store.messages("c5"))
    fold(store, "c5")
    assert len(plans) > 25
    assert {name.rpartition("_p")[0] for names in touched(plans).values() for name in names} >= {
        "messages",
        "nodes",
        "windows",
    }
    assert spread(plans) == {}


def test_a_statement_without_its_conversation_would_be_noticed(store: PostgresStore, plans: Plans) -> None:
    store.get(["m1"])
    assert len(spread(plans)) == 1


STATISTICS = (
    "SELECT coalesce(max(id), 0) FROM search",
    "SELECT count(*), min(id) FROM (SELECT s.* FROM (SELECT string_agg(",
    "SELECT count(*) FROM (SELECT s.* FROM (SELECT string_agg(",
)
"""What a search asks of all conversations: how rare a word is, and the newest number."""


@pytest.mark.parametrize("short", [True, False])
def test_a_search_of_a_conversation_finds_its_hits_in_one_partition(
    store: PostgresStore, plans: Plans, short: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How rare its words are is asked of all conversations, so that a hit has the same score wherever it is found."""
    if not short:
        monkeypatch.setattr(candidates, "_SHORT", 0)
    assert store.search("question", conversation="c5").hits
    assert store.search("what was the question 5 about?", conversation="c5").hits
    assert store.search("question", conversation="c5", sort="recency").hits
    assert store.search("quest.*", conversation="c5", regex=True).hits
    wide = spread(plans)
    assert [statement for statement in wide if not statement.startswith(STATISTICS)] == []
    hits = [names for statement, names in touched(plans).items() if "s.terms @@" in statement and statement not in wide]
    assert any({name.rpartition("_p")[0] for name in names} == {"search"} for names in hits)
    plans.clear()
    assert store.search("question").hits
    assert any("s.terms @@" in each and not each.startswith(STATISTICS) for each in spread(plans))


def test_a_session_with_the_lossless_engine_touches_one_partition(
    store: PostgresStore, plans: Plans, work: Callable[..., list[Message]]
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
    assert spread(plans) == {}
