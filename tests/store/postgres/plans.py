"""How PostgreSQL does what is asked of it: the plan of every statement, of a turn and of a fold."""

from __future__ import annotations

import json
from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from leporello.store import JournalRow, Node, StoredWindow
from leporello.store.postgres.connection import PostgresConnection, translated
from leporello.store.records import Cover

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leporello.store.postgres import PostgresStore

Plans = dict[str, list[Any]]
"""Each statement with what EXPLAIN says of it, every time that it is sent."""


@contextmanager
def explained() -> Iterator[Plans]:
    """Explain every statement that is sent until the block ends."""
    found: Plans = defaultdict(list)

    def explain(connection: PostgresConnection, statement: str, parameters: Any, begin: bytes) -> None:
        if statement.lstrip().upper().startswith(("SELECT", "INSERT", "UPDATE", "DELETE", "WITH")):
            plan = connection._raw.execute(begin + translated(statement), parameters).fetchone()
            found[statement].append(json.loads(json.dumps(plan)))

    with pytest.MonkeyPatch.context() as patch:
        for name in ("execute", "walk", "executemany"):
            original: Callable[..., Any] = getattr(PostgresConnection, name)
            begin = b"EXPLAIN (FORMAT JSON) " + (b"DECLARE walked CURSOR FOR " if name == "walk" else b"")

            def run(
                self: PostgresConnection,
                statement: str,
                parameters: Any = (),
                original: Any = original,
                name: str = name,
                begin: bytes = begin,
            ) -> Any:
                rows = list(parameters)
                first = (rows[0] if rows else None) if name == "executemany" else rows
                if first is not None:
                    explain(self, statement, first, begin)
                return original(self, statement, rows)

            patch.setattr(PostgresConnection, name, run)
        yield found


def nodes(plan: Any) -> Iterator[dict[str, Any]]:
    """Yield every step of a plan."""
    if isinstance(plan, dict):
        yield plan
    for each in plan.values() if isinstance(plan, dict) else plan if isinstance(plan, list) else ():
        yield from nodes(each)


def turn(store: PostgresStore, name: str) -> None:
    """Store a question, an answer and a result, and read what a turn reads."""
    (question,) = store.append(name, [{"role": "user", "content": "long " * 900}])
    calls = [{"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
    answer: Any = {"role": "assistant", "content": None, "tool_calls": calls}
    row = JournalRow(reason="request", keep=0, added=({"m": question},))
    store.append(name, [answer], request=row, known={0: [b"h" * 16]})
    store.append(name, [{"role": "tool", "tool_call_id": "call_1", "content": "found"}])
    store.window(name)
    store.newest(name)
    store.known([b"h" * 16])
    assert store.acquire(name, "token", seconds=5)


def fold(store: PostgresStore, name: str) -> None:
    """Commit a fold, and fork."""
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
    (kept,) = store.add_nodes(name, [leaf])
    row = JournalRow(reason="compaction", keep=0, added=())
    window = StoredWindow(version=store.window(name).version, items=({"n": kept.id},))
    store.save_window(name, window, row, used=[kept.id])
    assert [node.id for node in store.nodes(name)] == [kept.id]
    store.fork(name)
