"""The engine's side of the store: published nodes are read once, and never stale."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leporello import LCMEngine
from leporello.lcm.keeping import Keeping
from leporello.lcm.settings import Settings
from leporello.messages import Message
from leporello.store import Cover, Node, Store, Window, open_store
from leporello.store.records import Request

Work = Callable[..., list[Message]]
Make = Callable[..., LCMEngine]

ASK: Message = {"role": "user", "content": "And what is next?"}


def keeping_of(store: Store) -> Keeping:
    keeping = Keeping(Settings(), store)
    keeping.open("s", "")
    return keeping


def check_fresh(keeping: Keeping, store: Store) -> None:
    """Check that what is remembered is what the store has."""
    published, prepared = keeping.nodes(keeping.window())
    assert sorted(published, key=lambda node: node.id) == sorted(store.nodes("s"), key=lambda node: node.id)
    assert prepared == store.prepared_nodes("s")


def leaf(seq: int) -> Node:
    return Node(
        level=0,
        text=f"about {seq}",
        tokens=3,
        source_tokens=9,
        made_by="extract",
        covers=(Cover(first_seq=seq, last_seq=seq),),
        first_seq=seq,
        last_seq=seq,
        messages=1,
        time_from=0,
        time_to=0,
    )


def published(keeping: Keeping, store: Store, seq: int) -> None:
    """Publish a leaf as a fold does."""
    window = keeping.window()
    nodes, _ = keeping.nodes(window)
    (made,) = store.add_nodes("s", [leaf(seq)])
    items = (*({"n": node.id, "role": "user"} for node in nodes), {"n": made.id, "role": "user"})
    keeping.save(
        Window(version=window.version, items=items),
        Request(reason="fold", keep=0, added=items),
        nodes=[*nodes, made],
        origins=[],
        used=[made.id],
    )


def test_folds_of_others_and_own_ones_are_seen(work: Work) -> None:
    store = open_store(":memory:")
    store.append("s", work(0, 4))
    mine, theirs = keeping_of(store), keeping_of(store)
    for seq, who in enumerate((mine, mine, theirs, mine, theirs, theirs), 1):
        published(who, store, seq)
        check_fresh(mine, store)
        check_fresh(theirs, store)


def test_an_engine_folds_on_from_what_another_one_published(make_engine: Make, work: Work) -> None:
    store = open_store(":memory:")
    first, second, reader = make_engine(store=store), make_engine(store=store), keeping_of(store)
    window: list[Message] = [*work(0, 40), ASK]
    for number, engine in enumerate((first, second, first, first, second), 1):
        window = engine.compress(window)
        check_fresh(reader, store)
        window = [*window, {"role": "assistant", "content": "Done."}, *work(100 * number, 100 * number + 30), ASK]


def test_planted_nodes_that_are_remembered_too_long_are_caught(work: Work) -> None:
    store = open_store(":memory:")
    store.append("s", work(0, 4))

    class Stale(Keeping):
        def window(self) -> Window:
            return Window()

    stale = Stale(Settings(), store)
    stale.open("s", "")
    check_fresh(stale, store)
    published(keeping_of(store), store, 1)
    with pytest.raises(AssertionError):
        check_fresh(stale, store)
