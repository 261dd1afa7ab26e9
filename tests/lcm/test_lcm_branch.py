"""The branch as an engine knows it: nodes are read once and never stale, and a proposal is committed as a whole."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leporello import LCMEngine
from leporello.errors import StaleWindowError
from leporello.messages import Message
from leporello.store import Branch, Cover, JournalRow, Node, Proposal, StoredWindow, WindowItem, open_store

Work = Callable[..., list[Message]]
Make = Callable[..., LCMEngine]

ASK: Message = {"role": "user", "content": "And what is next?"}


def check_fresh(branch: Branch) -> None:
    """Check that what is remembered is what the store has."""
    known = branch.nodes(branch.window())
    assert sorted(known, key=lambda node: node.id) == sorted(branch.store.nodes("s"), key=lambda node: node.id)


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


def proposal(branch: Branch, seq: int) -> Proposal:
    """Propose one more leaf, as a fold does."""
    window = branch.window()
    nodes = branch.nodes(window)
    (made,) = branch.store.add_nodes("s", [leaf(seq)])
    shown: list[WindowItem] = [{"n": node.id, "role": "user"} for node in [*nodes, made]]
    items = tuple(shown)
    return Proposal(window=StoredWindow(version=window.version, items=items), nodes=(*nodes, made), used=(made.id,))


def committed(branch: Branch, seq: int) -> None:
    branch.commit(proposal(branch, seq), JournalRow(reason="fold", keep=0, added=()))


def test_folds_of_others_and_own_ones_are_seen(work: Work) -> None:
    store = open_store(":memory:")
    store.append("s", work(0, 4))
    mine, theirs = Branch(store, "s"), Branch(store, "s")
    for seq, who in enumerate((mine, mine, theirs, mine, theirs, theirs), 1):
        committed(who, seq)
        check_fresh(mine)
        check_fresh(theirs)


@pytest.mark.slow
def test_an_engine_folds_on_from_what_another_one_committed(make_engine: Make, work: Work) -> None:
    store = open_store(":memory:")
    first, second, reader = make_engine(store=store), make_engine(store=store), Branch(store, "s")
    window: list[Message] = [*work(0, 40), ASK]
    for number, engine in enumerate((first, second, first, first, second), 1):
        window = engine.compress(window)
        check_fresh(reader)
        window = [*window, {"role": "assistant", "content": "Done."}, *work(100 * number, 100 * number + 30), ASK]


def test_planted_nodes_that_are_remembered_too_long_are_caught(work: Work) -> None:
    store = open_store(":memory:")
    store.append("s", work(0, 4))

    class Stale(Branch):
        def window(self) -> StoredWindow:
            return StoredWindow()

    stale = Stale(store, "s")
    check_fresh(stale)
    committed(Branch(store, "s"), 1)
    with pytest.raises(AssertionError):
        check_fresh(stale)


def test_a_proposal_that_is_not_committed_changes_nothing(work: Work) -> None:
    store = open_store(":memory:")
    store.append("s", work(0, 4))
    branch = Branch(store, "s", number=1)
    before = store.window("s")
    branch.propose(proposal(branch, 1))
    assert branch.take_proposal() is not None
    assert branch.take_proposal() is None, "it is taken once"
    assert (store.window("s"), store.nodes("s"), store.journal("s")) == (before, [], [])


def test_a_proposal_for_a_window_that_was_replaced_is_refused_as_a_whole(work: Work) -> None:
    store = open_store(":memory:")
    store.append("s", work(0, 4))
    mine, theirs = Branch(store, "s", number=1), Branch(store, "s", number=1)
    late = proposal(mine, 1)
    committed(theirs, 2)
    now, nodes, rows = store.window("s"), store.nodes("s"), store.journal("s")
    with pytest.raises(StaleWindowError):
        mine.commit(late, JournalRow(reason="fold", keep=0, added=()))
    assert (store.window("s"), store.nodes("s"), store.journal("s")) == (now, nodes, rows)
    check_fresh(mine)
