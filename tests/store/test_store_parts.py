"""Conversations, windows and journal, nodes, leases, jobs and artifacts: one claim per test, on a store in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings, strategies as st

from leporello.errors import StaleWindowError, StoreError
from leporello.store import Artifact, Cover, JournalRow, Node, Store, StoredWindow, WindowItem, open_store

if TYPE_CHECKING:
    from leporello.messages import Message

DATABASES = True


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> Store:
    return open_store(":memory:", clock=clock)


def said(*texts: str) -> list[Message]:
    return [{"role": "user", "content": text} for text in texts]


def leaf(first: int, last: int, **fields: Any) -> Node:
    defaults: dict[str, Any] = {
        "level": 0,
        "text": f"messages {first} to {last}",
        "tokens": 5,
        "source_tokens": 50,
        "made_by": "extract",
        "covers": (Cover(first_seq=first, last_seq=last),),
        "first_seq": first,
        "last_seq": last,
        "messages": last - first + 1,
        "time_from": 1.0,
        "time_to": 2.0,
    }
    return Node(**(defaults | fields))


def request(**fields: Any) -> JournalRow:
    defaults: dict[str, Any] = {"reason": "turn", "keep": 0, "added": ()}
    return JournalRow(**(defaults | fields))


# conversations


def test_owners_do_not_see_each_other(store: Store) -> None:
    ids = store.append("c", said("mine"), owner="a")
    assert store.get(ids, owner="b") == {}
    assert store.info("c", owner="b") is None
    assert [info.owner for info in store.conversations(owner="a")] == ["a"]
    assert list(store.messages("c", owner="b")) == []
    assert store.neighbours([ids[0]], before=1, after=1, owner="b") == []


def test_conversations_are_listed_newest_first(store: Store, clock: Clock) -> None:
    for key in ("one", "two", "three"):
        clock.now += 1
        store.append(key, said(key))
    clock.now += 1
    store.append("one", said("again"))
    assert [info.key for info in store.conversations()] == ["one", "three", "two"]


def test_storing_to_an_ended_conversation_resumes_it(store: Store) -> None:
    store.append("c", said("hello"))
    store.end("c")
    assert store.ensure("c").ended is not None
    store.ingest("c", said("hello"))
    assert store.ensure("c").ended is None


def test_notes_about_a_conversation_add_up(store: Store) -> None:
    store.ensure("c", meta={"model": "a", "title": "t"})
    assert store.ensure("c", meta={"model": "b"}).meta == {"model": "b", "title": "t"}


def test_a_name_that_no_database_can_hold_is_refused(store: Store) -> None:
    with pytest.raises(StoreError, match="half of a character"):
        store.append("\ud800", said("x"))
    with pytest.raises(StoreError, match="half of a character"):
        store.search("x", owner="\ud800")


# messages


def test_time_comes_from_the_message_or_from_the_clock(store: Store, clock: Clock) -> None:
    stamps = [
        "2026-03-28T10:00:00Z",
        "2026-03-28T11:00:00+01:00",
        "2026-03-28T10:00:00",
        1774692000,
        "soon",
        None,
        True,
    ]
    said: list[Any] = [{"role": "user", "content": "x", "timestamp": stamp} for stamp in stamps]
    ids = store.append("c", said)
    found = store.get(ids)
    assert [found[id_].time for id_ in ids] == [1774692000.0] * 4 + [clock.now] * 3


def test_a_tool_result_knows_its_tool(store: Store) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": "{}"}}
    asked: Message = {"role": "assistant", "content": None, "tool_calls": [call]}
    (first,) = store.append("c", [asked])
    (second,) = store.append("c", [{"role": "tool", "tool_call_id": "c1", "content": "found"}])
    found = store.get([first, second])
    assert [found[first].tool, found[second].tool] == ["search", "search"]


def test_neighbours_stand_in_live_order(store: Store) -> None:
    ids = store.append("c", said(*"abcdefg"))
    assert [m.message["content"] for m in store.neighbours([ids[3]], before=2, after=1)] == ["b", "c", "d", "e"]
    assert [m.message["content"] for m in store.neighbours([ids[0]], before=2, after=1)] == ["a", "b"]
    assert store.neighbours(["m999"], before=1, after=1) == []


def test_replaced_messages_are_out_of_the_way_but_there(store: Store) -> None:
    ids = store.ingest("c", said(*"abc")).added
    store.ingest("c", said(*"aBc"))
    assert [m.message["content"] for m in store.messages("c")] == ["a", "B", "c"]
    assert [m.message["content"] for m in store.messages("c", superseded=True)] == ["a", "b", "B", "c"]
    assert [m.message["content"] for m in store.neighbours([ids[0]], before=0, after=1)] == ["a", "B"]
    assert [branch.id for branch in store.branches("c")] == [1]


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 600), st.integers(0, 700), st.integers(0, 700), st.booleans())
def test_messages_are_read_by_range_in_either_direction(count: int, first: int, last: int, newest_first: bool) -> None:
    store = open_store(":memory:")
    store.append("c", said(*map(str, range(1, count + 1))))
    expected = [str(n) for n in range(1, count + 1) if first <= n <= last]
    found = [m.message["content"] for m in store.messages("c", first=first, last=last, newest_first=newest_first)]
    assert found == (expected[::-1] if newest_first else expected)
    everything = [m.seq for m in store.messages("c", newest_first=newest_first)]
    assert everything == sorted(range(1, count + 1), reverse=newest_first)


# nodes


def test_nodes_come_back_as_they_were_made(store: Store) -> None:
    store.append("c", said(*"abcdef"))
    one, two = store.add_nodes("c", [leaf(1, 2, meta={"k": [1]}), leaf(3, 4, text="half \ud800")])
    (top,) = store.add_nodes("c", [leaf(1, 4, level=1, covers=(), children=(one.id, two.id))])
    assert store.prepared_nodes("c") == [one, top, two]
    assert store.nodes("c") == []
    assert store.node(top.id) == top
    assert (one.covers, one.meta) == ((Cover(first_seq=1, last_seq=2),), {"k": [1]})
    assert two.text == "half \ud800"
    assert store.node(top.id, owner="other") is None


def test_messages_know_the_leaf_in_the_window_that_covers_them(store: Store) -> None:
    ids = store.append("c", said(*"abcdef"))
    one, two, other = store.add_nodes("c", [leaf(1, 2), leaf(3, 4), leaf(3, 4)])
    shown: tuple[WindowItem, ...] = ({"n": one.id}, {"n": two.id})
    store.save_window("c", StoredWindow(items=shown), request(), used=[one.id, two.id])
    assert store.covering(ids) == {ids[0]: one.id, ids[1]: one.id, ids[2]: two.id, ids[3]: two.id}
    (top,) = store.add_nodes("c", [leaf(1, 4, level=1, covers=(), children=(one.id, other.id))])
    store.save_window("c", StoredWindow(version=1, items=({"n": top.id},)), request(), used=[top.id, other.id])
    assert store.covering(ids)[ids[3]] == other.id
    assert [node.id for node in store.nodes("c")] == [one.id, top.id, other.id]
    assert store.covering(ids, owner="other") == {}


# windows and the journal


def test_the_window_of_any_request_can_be_shown(store: Store) -> None:
    store.record_request("c", request(keep=0, added=({"m": "m1"}, {"m": "m2"})))
    store.record_request("c", request(keep=2, added=({"m": "m3"},)))
    folded: tuple[WindowItem, ...] = ({"n": "n1"}, {"m": "m3"})
    saved = store.save_window("c", StoredWindow(version=0, items=folded), request(reason="fold"))
    store.record_request("c", request(keep=2, added=({"m": "m4"},)))
    assert saved == StoredWindow(version=1, items=folded)
    assert store.window("c") == StoredWindow(version=1, items=(*folded, {"m": "m4"}))
    shown = [[next(iter(item.values())) for item in store.window_at("c", n)] for n in (0, 1, 2, 3, 4)]
    assert shown == [[], ["m1", "m2"], ["m1", "m2", "m3"], ["n1", "m3"], ["n1", "m3", "m4"]]
    assert [(r.number, r.reason, r.keep) for r in store.journal("c")] == [
        (1, "turn", 0),
        (2, "turn", 2),
        (3, "fold", 0),
        (4, "turn", 2),
    ]
    assert [r.number for r in store.journal("c", last=2)] == [3, 4]


def test_a_part_of_the_journal_is_read_and_each_row_knows_its_branch(store: Store) -> None:
    (first, _) = store.append("c", said("a", "b"))
    store.record_request("c", request())
    store.record_request("c", request(reason="fold"))
    aside = store.fork("c", behind=first, head=False)
    store.record_request("c", request(), branch=aside)
    assert [(row.number, row.branch) for row in store.journal("c")] == [(1, 1), (2, 1), (3, aside)]
    assert [row.number for row in store.journal("c", upto=2)] == [1, 2]
    assert [row.number for row in store.journal("c", after=1, upto=2)] == [2]
    assert [row.number for row in store.journal("c", upto=2, last=1, reason="turn")] == [1]
    assert [row.number for row in store.journal("c", upto=2, branch=aside)] == []


def test_who_comes_second_is_refused_and_changes_nothing(store: Store) -> None:
    store.append("c", said("a"))
    (node,) = store.add_nodes("c", [leaf(1, 1)])
    store.save_window("c", StoredWindow(items=({"m": "m1"},)), request())
    with pytest.raises(StaleWindowError, match="version 1, not 0"):
        store.save_window("c", StoredWindow(items=({"n": node.id},)), request(), used=[node.id])
    assert store.window("c").items == ({"m": "m1"},)
    assert store.nodes("c") == []
    assert len(store.journal("c")) == 1


def test_a_window_with_an_unknown_node_is_not_saved(store: Store) -> None:
    with pytest.raises(StoreError, match="no node n7"):
        store.save_window("c", StoredWindow(items=({"n": "n7"},)), request(), used=["n7"])
    assert store.window("c") == StoredWindow()


# artifacts


def test_equal_artifacts_of_one_message_are_one(store: Store) -> None:
    read = Artifact(kind="file", value="src/app.py", note="read", message="m1")
    store.add_artifacts("c", [read, read])
    store.add_artifacts("c", [read, Artifact(kind="file", value="src/app.py", note="read", message="m2")])
    assert [a.message for _, a in store.artifacts("c")] == ["m2", "m1"]


def test_artifacts_are_found_and_continued(store: Store) -> None:
    store.add_artifacts("c", [Artifact(kind="file", value=f"src/{n}.py", message=f"m{n}") for n in range(1, 8)])
    store.add_artifacts("c", [Artifact(kind="command", value="pytest", message="m9")])
    page = store.artifacts("c", kind="file", limit=3)
    rest = store.artifacts("c", kind="file", limit=10, before=page[-1][0])
    assert [a.value for _, a in page + rest] == [f"src/{n}.py" for n in range(7, 0, -1)]
    assert [a.value for _, a in store.artifacts("c", query="PYT")] == ["pytest"]
    assert store.artifacts("c", owner="other") == []


# leases and jobs


def test_a_lease_has_one_holder_until_it_expires(store: Store, clock: Clock) -> None:
    assert store.acquire("c", "a", seconds=30)
    assert not store.acquire("c", "b", seconds=30)
    assert store.acquire("c", "a", seconds=30)
    clock.now += 30
    assert store.acquire("c", "b", seconds=30)
    store.release("c", "a")
    assert not store.acquire("c", "a", seconds=30)
    store.release("c", "b")
    assert store.acquire("c", "a", seconds=30)


@pytest.mark.parametrize("jump", [31.0, 3_600.0, 900.0])
def test_a_clock_that_went_backwards_locks_nothing_for_ever(store: Store, clock: Clock, jump: float) -> None:
    store.acquire("c", "a", seconds=30)
    store.add_job("c", "fold", "1", {}, delay=20)
    clock.now += 20
    assert store.claim_job("w", seconds=25)
    clock.now -= jump
    assert store.acquire("c", "b", seconds=30)
    assert store.claim_job("v", seconds=25)


def test_a_job_is_claimed_once_and_comes_back_when_its_worker_dies(store: Store, clock: Clock) -> None:
    store.add_job("c", "fold", "1-20", {"first": 1}, owner="me")
    store.add_job("c", "fold", "1-20", {"first": 2}, owner="me")
    job = store.claim_job("a", seconds=60)
    assert job is not None
    assert (job.conversation, job.owner, job.payload, job.attempts) == ("c", "me", {"first": 1}, 1)
    assert store.claim_job("b", seconds=60) is None
    clock.now += 60
    again = store.claim_job("b", seconds=60)
    assert again is not None
    assert again.attempts == 2
    store.finish_job(job)  # too late: somebody else has it
    clock.now += 60
    assert store.claim_job("c", seconds=60) is not None


def test_a_job_is_put_back_for_later_or_removed(store: Store, clock: Clock) -> None:
    store.add_job("c", "fold", "1", {}, delay=5)
    assert store.claim_job("a", seconds=60) is None
    clock.now += 5
    job = store.claim_job("a", seconds=60, conversation="c")
    assert job is not None
    store.finish_job(job, retry_in=100)
    assert store.claim_job("a", seconds=60) is None
    clock.now += 100
    job = store.claim_job("a", seconds=60)
    assert job is not None
    store.finish_job(job)
    clock.now += 1_000
    assert store.claim_job("a", seconds=60) is None
