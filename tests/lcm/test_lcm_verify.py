"""The proof that nothing is lost, and every defect that it must find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from leporello import LCMEngine
from leporello.lcm import verify
from leporello.messages import Message
from leporello.messages.fixed import CLEARED_OUTPUT
from leporello.store import Cover, Node, StoredWindow

if TYPE_CHECKING:
    from leporello.store.records import WindowItem

pytestmark = pytest.mark.slow

Work = Callable[..., list[Message]]
Make = Callable[..., LCMEngine]

ASK: Message = {"role": "user", "content": "And what is next?"}


class Tampered:
    """A store whose answers were changed on the way."""

    def __init__(self, store: Any, **changes: Callable[[Any], Any]) -> None:
        self._store = store
        self._changes = changes

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._store, name)
        change = self._changes.get(name)
        return real if change is None else lambda *args, **kwargs: change(real(*args, **kwargs))


@pytest.fixture
def engine(make_engine: Make, work: Work) -> LCMEngine:
    """A conversation with leaves, parts of a long message, condensed nodes and a tail."""
    engine = make_engine(16_000)
    long: Message = {"role": "user", "content": "".join(f"a long paste, line {n}\n" for n in range(4_000))}
    answer: Message = {"role": "assistant", "content": "I have read it."}
    engine.compress([{"role": "system", "content": "s"}, long, answer, *work(0, 60), ASK])
    return engine


def first_leaf(nodes: list[Node]) -> Node:
    return next(node for node in nodes if node.covers and node.covers[0].start is None)


def swapped(nodes: list[Node], new: Node) -> list[Node]:
    return [new if node.id == new.id else node for node in nodes]


def leaf_lost(nodes: list[Node]) -> list[Node]:
    return [node for node in nodes if node.id != first_leaf(nodes).id]


def leaf_doubled(nodes: list[Node]) -> list[Node]:
    leaf = first_leaf(nodes)
    return [*nodes, replace(leaf, id="n999999")]


def part_lost(nodes: list[Node]) -> list[Node]:
    part = next(node for node in nodes if node.covers and node.covers[0].start)
    return [node for node in nodes if node.id != part.id]


def part_shortened(nodes: list[Node]) -> list[Node]:
    part = next(node for node in nodes if node.covers and node.covers[0].start)
    cover = part.covers[0]
    assert cover.stop is not None
    return swapped(nodes, replace(part, covers=(replace(cover, stop=cover.stop - 1),)))


def range_shrunk(nodes: list[Node]) -> list[Node]:
    leaf = max((node for node in nodes if node.covers), key=lambda node: node.covers[0].last_seq - node.first_seq)
    first = leaf.covers[0]
    return swapped(nodes, replace(leaf, covers=(Cover(first_seq=first.first_seq, last_seq=first.last_seq - 1),)))


def range_beyond_the_stored(nodes: list[Node]) -> list[Node]:
    leaf = max((node for node in nodes if node.covers), key=lambda node: node.last_seq)
    cover = replace(leaf.covers[-1], last_seq=10**6)
    return swapped(nodes, replace(leaf, covers=(*leaf.covers[:-1], cover), last_seq=10**6))


def child_of_two(nodes: list[Node]) -> list[Node]:
    parent = next(node for node in nodes if node.children)
    return [*nodes, replace(parent, id="n999998")]


def claims_more(nodes: list[Node]) -> list[Node]:
    return swapped(nodes, replace(first_leaf(nodes), messages=77))


def claims_other_messages(nodes: list[Node]) -> list[Node]:
    leaf = first_leaf(nodes)
    return swapped(nodes, replace(leaf, last_seq=leaf.last_seq + 1))


def covers_nothing(nodes: list[Node]) -> list[Node]:
    return swapped(nodes, replace(first_leaf(nodes), covers=()))


def test_the_example_has_everything(engine: LCMEngine) -> None:
    nodes = engine.store.nodes("s")
    assert any(node.children for node in nodes)
    assert any(node.covers and node.covers[0].start for node in nodes)
    assert verify(engine.store, "s") == []


@pytest.mark.parametrize(
    "defect",
    [
        leaf_lost,
        leaf_doubled,
        part_lost,
        part_shortened,
        range_shrunk,
        range_beyond_the_stored,
        child_of_two,
        claims_more,
        claims_other_messages,
        covers_nothing,
    ],
)
def test_a_planted_defect_of_the_dag_is_found(engine: LCMEngine, defect: Callable[[list[Node]], list[Node]]) -> None:
    tampered: Any = Tampered(engine.store, nodes=defect)
    findings = verify(tampered, "s")
    assert findings
    assert all(finding.where and finding.problem for finding in findings)


def test_a_tail_message_that_fell_out_of_the_window_is_found(engine: LCMEngine) -> None:
    rows = {row.id: row for row in engine.store.messages("s")}

    def without_first_of_tail(window: StoredWindow) -> StoredWindow:
        tail = [item for item in window.items if item.get("m") in rows]
        return replace(window, items=tuple(item for item in window.items if item is not tail[0]))

    tampered: Any = Tampered(engine.store, window=without_first_of_tail)
    (finding,) = verify(tampered, "s")
    assert "not in the window" in finding.problem


def test_a_block_that_fell_out_of_the_window_is_found(engine: LCMEngine) -> None:
    def without_first_block(window: StoredWindow) -> StoredWindow:
        block = next(item for item in window.items if "n" in item)
        return replace(window, items=tuple(item for item in window.items if item is not block))

    tampered: Any = Tampered(engine.store, window=without_first_block)
    (finding,) = verify(tampered, "s")
    assert "0 times" in finding.problem


def another_id(item: WindowItem, others: list[str]) -> WindowItem:
    shown = cast("Message", item["as"])
    return {**item, "as": {**shown, "content": f"{CLEARED_OUTPUT} lcm_expand {others[0]}"}}


def another_message(item: WindowItem, others: list[str]) -> WindowItem:
    return {**item, "m": others[0]}


def no_message(item: WindowItem, _others: list[str]) -> WindowItem:
    return {**item, "m": "m999999"}


@pytest.mark.parametrize(
    ("defect", "problem"),
    [
        (another_id, "its line in the window leads to"),
        (another_message, "it is not the output"),
        (no_message, "it is not stored"),
    ],
)
def test_a_masked_output_that_leads_elsewhere_is_found(
    make_engine: Make, work: Work, defect: Callable[[WindowItem, list[str]], WindowItem], problem: str
) -> None:
    engine = make_engine(32_000, config={"masked_zone": 0.15})
    engine.compress([*work(0, 60), ASK])
    assert verify(engine.store, "s") == []
    said = [row.id for row in engine.store.messages("s") if row.role == "assistant"]

    def changed(window: StoredWindow) -> StoredWindow:
        masked = next(item for item in window.items if "m" in item and "CLEARED" in str(item.get("as")).upper())
        items = tuple(defect(item, said) if item is masked else item for item in window.items)
        return replace(window, items=items)

    tampered: Any = Tampered(engine.store, window=changed)
    assert problem in "\n".join(finding.problem for finding in verify(tampered, "s"))


@pytest.mark.sqlite_only
@pytest.mark.parametrize(
    "body",
    ["CAST(replace(CAST(body AS TEXT), 'Request 3', 'Request 4') AS BLOB)", "'not what it was'"],
    ids=["changed", "unreadable"],
)
def test_a_changed_row_breaks_the_chain(tmp_path: Any, make_engine: Make, work: Work, body: str) -> None:
    import sqlite3

    file = tmp_path / "store.db"
    engine = make_engine(store=file)
    engine.compress([*work(0, 40), ASK])
    assert verify(engine.store, "s") == []
    engine.close()
    with sqlite3.connect(file) as connection:
        connection.execute(f"UPDATE messages SET body = {body} WHERE seq = 13")  # noqa: S608 - a constant
    connection.close()
    again = make_engine(store=file)
    assert verify(again.store, "s")
    again.close()
