"""What the tools read by index is what reading everything gives."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from leporello.lcm.dag import Coverage, roots
from leporello.lcm.node_writer import REMAKE
from leporello.store import FOLD
from leporello.store.sqlite import SQLiteStore
from leporello.summary.blocks import block_tokens

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello import LCMEngine
    from leporello.messages import Message
    from leporello.store import Node

pytestmark = pytest.mark.slow

HUGE: Message = {"role": "user", "content": "\n".join(f"line {n} of a very long file" for n in range(6_000))}


def folded(make_engine: Callable[..., LCMEngine], work: Callable[..., list[Message]], **options: Any) -> LCMEngine:
    """Return an engine after several folds, an edit, an undo, and a message that is longer than a leaf."""
    engine = make_engine(**options)
    system: Message = {"role": "system", "content": "You are careful."}
    messages: list[Message] = [system, HUGE, {"role": "assistant", "content": "I have read it."}]
    for start in range(0, 160, 20):
        messages = [*messages, *work(start, start + 20)]
        if start == 60:
            messages = [*messages[:-4], *work(900, 903)]
        messages = engine.compress(messages, force=True)
    engine.on_turn_complete([*messages, *work(500, 504)])
    return engine


def reference(engine: LCMEngine) -> dict[str, Any]:
    """Work out the status from all nodes, all messages and the whole journal."""
    store, name = engine.store, engine.conversation
    published = store.nodes(name)
    coverage = Coverage(published)
    waiting = [row for row in store.messages(name) if row.seq not in coverage]
    folds = [row for row in store.journal(name) if row.reason == FOLD]
    everything = list(store.messages(name, superseded=True))
    return {
        "messages": sum(not row.superseded for row in everything),
        "superseded": sum(row.superseded for row in everything),
        "nodes": len(published),
        "levels": dict(Counter(str(node.level) for node in published)),
        "blocks": {"count": len(roots(published)), "tokens": sum(map(block_tokens, roots(published)))},
        "unfolded": {"messages": len(waiting), "tokens": sum(row.tokens for row in waiting)},
        "cost_usd": sum(row.cost_usd or 0.0 for row in folds),
        "to_improve": sum(bool(node.meta.get(REMAKE)) for node in published),
        "folds": [row.report["tokens_before"] for row in folds[-5:]],
    }


def told(engine: LCMEngine) -> dict[str, Any]:
    status = json.loads(engine.handle_tool_call("lcm_status", {}))
    return {name: status[name] for name in reference(engine) if name in status} | {
        "to_improve": status["backlog"]["to_improve"],
        "folds": [fold["tokens_before"] for fold in status["last_folds"]],
    }


def test_the_status_is_what_reading_everything_gives(
    make_engine: Callable[..., LCMEngine], work: Callable[..., list[Message]]
) -> None:
    engine = folded(make_engine, work)
    assert reference(engine)["nodes"] > 8
    assert told(engine) == reference(engine)


def test_the_status_before_the_first_fold(
    make_engine: Callable[..., LCMEngine], work: Callable[..., list[Message]]
) -> None:
    engine = make_engine()
    assert told(engine) == reference(engine)
    engine.on_turn_complete(work(0, 3))
    assert told(engine) == reference(engine)


class Miscounting(SQLiteStore):
    """A store with a planted defect: it leaves out the lowest level."""

    def levels(self, *args: Any, **kwargs: Any) -> Any:
        """Leave out the leaves."""
        return super().levels(*args, **kwargs)[1:]


def test_the_comparison_catches_a_store_that_counts_wrong(
    make_engine: Callable[..., LCMEngine], work: Callable[..., list[Message]]
) -> None:
    engine = folded(make_engine, work, store=Miscounting())
    with pytest.raises(AssertionError):
        assert told(engine) == reference(engine)


def originals(engine: LCMEngine, node: Node) -> list[str]:
    """Return the messages under a node in order, by walking the DAG."""
    if node.children:
        children = [engine.store.node(child) for child in node.children]
        ids = [id_ for child in children if child is not None for id_ in originals(engine, child)]
    else:
        rows = engine.store.messages(engine.conversation, superseded=True)
        ids = [row.id for row in rows if any(c.first_seq <= row.seq <= c.last_seq for c in node.covers)]
    return list(dict.fromkeys(ids))


def test_a_node_unfolds_page_by_page_into_all_its_originals(
    make_engine: Callable[..., LCMEngine], work: Callable[..., list[Message]]
) -> None:
    engine = folded(make_engine, work)
    tops = [node for node in roots(engine.store.nodes(engine.conversation)) if node.children]
    assert tops
    for top in tops:
        ids, cursor, texts = [], None, Counter[str]()
        while True:
            arguments = {"id": top.id, "max_tokens": 2_000, **({"cursor": cursor} if cursor else {})}
            page = json.loads(engine.handle_tool_call("lcm_expand", arguments))
            ids += [entry["id"] for entry in page["messages"]]
            texts.update({entry["id"]: len(entry["text"]) for entry in page["messages"] if "from" in entry})
            cursor = page.get("cursor")
            if cursor is None:
                break
        assert list(dict.fromkeys(ids)) == originals(engine, top)
        assert page["of"] == len(set(ids))
        rows = engine.store.get(texts)
        assert all(texts[name] == len(rows[name].message["content"]) for name in texts)


def test_a_cursor_of_another_node_is_refused(
    make_engine: Callable[..., LCMEngine], work: Callable[..., list[Message]]
) -> None:
    engine = folded(make_engine, work)
    first, *_, last = [node for node in engine.store.nodes(engine.conversation) if node.covers]
    page = json.loads(engine.handle_tool_call("lcm_expand", {"id": last.id, "max_tokens": 200}))
    answer = json.loads(engine.handle_tool_call("lcm_expand", {"id": first.id, "cursor": page["cursor"]}))
    assert "another answer" in answer["error"]
