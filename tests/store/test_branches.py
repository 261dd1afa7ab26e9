"""A conversation is a tree: nothing is copied, a branch sees its path as it was, and every check stays clean."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from leporello.errors import StoreError
from leporello.lcm import verify
from leporello.store import JournalRow, SearchFilter, StoredWindow, WindowItem, open_store
from leporello.store.relational import branches, retention, revision, rows as row_values
from leporello.store.relational.deletion import hide_range
from leporello.store.search import search
from leporello.store.sqlite import SQLiteStore

if TYPE_CHECKING:
    from pathlib import Path

    from leporello.messages import Message
    from leporello.store import Store
    from leporello.store.relational.dialect import Connection

DATABASES = True

MANY = 10_000 if os.environ.get("LEPORELLO_SOAK") else 1_000  # side branches


def said(*texts: str) -> list[Message]:
    """Return messages of user and assistant in turn."""
    return [{"role": "user" if n % 2 == 0 else "assistant", "content": text} for n, text in enumerate(texts)]


def texts(store: Store, branch: int | None = None) -> list[str]:
    """Return what the path of a branch says."""
    return [row.message["content"] for row in store.messages("c", branch=branch)]


@pytest.fixture
def store() -> SQLiteStore:
    store = SQLiteStore()
    store.append("c", said("a", "b", "c", "d"))
    return store


def rows(store: SQLiteStore) -> int:
    with store._db.read() as connection:
        return int(connection.execute("SELECT count(*) FROM messages").fetchone()[0])


def test_a_fork_shares_what_stands_before_it_and_copies_nothing(store: SQLiteStore) -> None:
    branch = store.fork("c", before="m4")
    assert (texts(store), texts(store, 1)) == (["a", "b", "c"], ["a", "b", "c", "d"])
    store.append("c", said("x")[:1], branch=branch)
    assert texts(store, branch) == ["a", "b", "c", "x"]
    assert rows(store) == 5
    one, two = store.branches("c")
    assert (one.parent, one.fork, one.tip, one.head, one.messages) == (None, None, "m4", False, 4)
    assert (two.parent, two.fork, two.tip, two.head, two.messages) == (1, "m3", "m5", True, 4)


def test_a_fork_of_a_fork_shares_with_both(store: SQLiteStore) -> None:
    store.fork("c", before="m4")
    store.append("c", [{"role": "assistant", "content": "D"}, *said("e", "f")])
    third = store.fork("c", before="m7")
    assert texts(store, third) == ["a", "b", "c", "D", "e"]
    fourth = store.fork("c", before="m2", branch=third)
    assert texts(store, fourth) == ["a"]
    assert store.branches("c")[-1].parent == 1  # what it shares is the root's


def test_an_edit_on_the_trunk_changes_no_other_branch(store: SQLiteStore) -> None:
    before = store.fork("c", before="m4", head=False)
    store.ingest("c", said("a", "b", "c", "d"))
    store.ingest("c", said("a", "B", "c", "d"))
    after = store.fork("c", before="m4", head=False)
    assert texts(store, 1) == ["a", "B", "c", "d"]
    assert (texts(store, before), texts(store, after)) == (["a", "b", "c"], ["a", "B", "c"])
    assert store.check_file() == []


def test_a_change_in_what_is_shared_stores_what_follows_on_a_fork(store: SQLiteStore) -> None:
    store.fork("c", before="m4")
    store.append("c", [{"role": "assistant", "content": "D"}])
    store.ingest("c", said("a", "b", "c", "D"))
    done = store.ingest("c", said("a", "B", "c", "D"))
    assert done.branch == 3
    assert (texts(store), texts(store, 2), texts(store, 1)) == (list("aBcD"), list("abcD"), list("abcd"))
    assert store.check_file() == []


def test_a_list_that_goes_on_from_another_branch_is_recognised(store: SQLiteStore) -> None:
    """A side question, then the conversation again: it goes on where it was, and nothing is stored twice."""
    long = "an answer that nobody gives twice by chance, because it is as long as a paragraph of some length"
    talk = said("a", long, "c", "d")
    store = SQLiteStore()
    store.ingest("c", talk)
    aside = store.ingest("c", [*talk[:2], {"role": "user", "content": "suggest a title"}])
    assert (aside.branch, rows(store)) == (2, 5)
    on = store.ingest("c", [*talk, {"role": "user", "content": "e"}])
    assert (on.branch, rows(store), store.head("c")) == (1, 6, 1)
    assert texts(store) == ["a", long, "c", "d", "e"]


def test_two_requests_at_the_same_tip(store: SQLiteStore) -> None:
    first, second = (store.fork("c", head=False) for _ in range(2))
    for branch, text in ((first, "x"), (second, "y"), (first, "x2")):
        store.append("c", [{"role": "user", "content": text}], branch=branch)
    assert (texts(store, first)[4:], texts(store, second)[4:], texts(store, 1)[4:]) == (["x", "x2"], ["y"], [])


def test_a_branch_becomes_the_head_when_a_user_goes_on_behind_its_answer(store: SQLiteStore) -> None:
    branch = store.fork("c", head=False)
    store.append("c", said("suggest a title", "Harbour"), branch=branch)
    assert store.head("c") == 1
    store.append("c", said("shorter"), branch=branch)
    assert store.head("c") == branch


def test_a_fork_leaves_the_branch_of_another_session_as_it_was(store: SQLiteStore) -> None:
    """Two sessions stand on a branch on which nothing was said yet; one goes back further."""
    assert [store.fork("c", before=id_) for id_ in ("m4", "m3")] == [2, 3]
    assert (texts(store, 2), texts(store, 3)) == (["a", "b", "c"], ["a", "b"])
    store.append("c", [{"role": "user", "content": "other"}], branch=2)
    assert (texts(store, 2), texts(store)) == (["a", "b", "c", "other"], ["a", "b"])
    assert store.check_file() == []


def test_what_is_not_there_cannot_be_forked_or_pinned(store: SQLiteStore) -> None:
    store.fork("c", before="m4")
    with pytest.raises(StoreError, match="m4 is not on this branch"):
        store.fork("c", before="m4")
    with pytest.raises(StoreError, match="no branch 7"):
        store.append("c", said("x"), branch=7)
    with pytest.raises(StoreError, match="no message m99"):
        store.pin("c", "m99")


def test_repeated_call_ids_identify_nothing_across_branches() -> None:
    def call(text: str) -> Message:
        calls = [{"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
        return {"role": "assistant", "content": text, "tool_calls": calls}

    def result(text: str) -> Message:
        return {"role": "tool", "tool_call_id": "call_1", "content": text}

    store = SQLiteStore()
    talk = [*said("a"), call("first"), result("one"), *said("b"), call("second"), result("two"), *said("c")]
    store.ingest("c", talk)
    store.fork("c", before="m7")
    store.append("c", [call("third"), result("three")])
    assert texts(store) == ["a", "first", "one", "b", "second", "two", "third", "three"]
    store.ingest("c", [*talk[:6], call("third"), result("three"), *said("d")])
    assert texts(store)[-3:] == ["third", "three", "d"]
    assert rows(store) == 10


# windows


def folded(store: Store, *items: Any, branch: int | None = None) -> None:
    window = store.window("c", branch=branch)
    store.save_window(
        "c", StoredWindow(version=window.version, items=items), JournalRow(reason="fold", keep=0, added=())
    )


SUMMARY = {"t": "what was said", "role": "user"}


def asked(store: Store, *ids: str) -> None:
    """Note a request that added these messages to the window."""
    keep = len(store.window("c").items)
    store.record_request("c", JournalRow(reason="turn", keep=keep, added=tuple({"m": id_} for id_ in ids)))


def test_a_fork_right_after_a_fold_has_its_window_and_one_before_it_the_one_before() -> None:
    store = SQLiteStore()
    store.append("c", said(*"abcdefgh"))
    asked(store, *(f"m{n}" for n in range(1, 9)))
    folded(store, SUMMARY, {"m": "m5"}, {"m": "m6"}, {"m": "m7"}, {"m": "m8"})
    after = store.fork("c", before="m8", head=False)
    at = store.fork("c", before="m5", head=False)
    before = store.fork("c", before="m4", head=False)
    assert store.window("c", branch=after).items == (SUMMARY, {"m": "m5"}, {"m": "m6"}, {"m": "m7"})
    assert store.window("c", branch=at).items == (SUMMARY,)
    assert store.window("c", branch=before).items == ({"m": "m1"}, {"m": "m2"}, {"m": "m3"})


def test_the_window_of_a_fork_stays_when_its_parent_folds_later() -> None:
    store = SQLiteStore()
    store.append("c", said(*"abcdef"))
    asked(store, *(f"m{n}" for n in range(1, 7)))
    aside = store.fork("c", head=False)
    folded(store, SUMMARY, {"m": "m5"}, {"m": "m6"})
    assert store.window("c", branch=aside).items == tuple({"m": f"m{n}"} for n in range(1, 7))
    store.record_request("c", JournalRow(reason="turn", keep=6, added=({"m": "m9"},)), branch=aside)
    assert len(store.window("c", branch=aside).items) == 7
    assert store.window("c").items == (SUMMARY, {"m": "m5"}, {"m": "m6"})


def test_two_branches_fold_each_for_itself() -> None:
    store = SQLiteStore()
    store.append("c", said(*"abcd"))
    asked(store, *(f"m{n}" for n in range(1, 5)))
    branch = store.fork("c", head=False)
    folded(store, SUMMARY, {"m": "m4"})
    other: WindowItem = {"t": "told otherwise", "role": "user"}
    window = store.window("c", branch=branch)
    saved = StoredWindow(version=window.version, items=(other, {"m": "m3"}, {"m": "m4"}))
    store.save_window("c", saved, JournalRow(reason="fold", keep=0, added=()), branch=branch)
    assert store.window("c").items == (SUMMARY, {"m": "m4"})
    assert store.window("c", branch=branch).items == (other, {"m": "m3"}, {"m": "m4"})
    assert store.acquire("c", "me", seconds=9)
    assert store.acquire("c", "you", seconds=9, branch=branch)
    assert not store.acquire("c", "you", seconds=9)


def test_the_window_of_a_fork_survives_a_deletion() -> None:
    store = SQLiteStore()
    store.append("c", said(*(f"t{n}" for n in range(1, 41))))
    asked(store, *(f"m{n}" for n in range(1, 16)))
    for last in (10, 20, 30):
        shown = ({"m": f"m{n}"} for n in range(last + 1, last + 6))
        folded(store, {"t": f"1 to {last}", "role": "user"}, *shown)
        asked(store, *(f"m{n}" for n in range(last + 6, last + 11)))
    branch = store.fork("c", before="m16", head=False)
    before = store.window("c", branch=branch).items
    assert before[0]["t"] == "1 to 10"
    store.delete("c", first=1, last=3)
    assert store.window("c", branch=branch).items == before


def test_what_was_edited_after_a_fork_is_not_told_by_a_fork_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fork of the fork, at a place that it shares with the trunk, has the words from before the edit."""

    def window_of_a_second_fork() -> list[Any]:
        store = SQLiteStore()
        talk = said("t1", f"t2 {LONG}", "t3", f"t4 {LONG}", "t5", f"t6 {LONG}")
        store.ingest("c", talk)
        asked(store, *(f"m{n}" for n in range(1, 7)))
        first = store.fork("c", before="m6", head=False)
        store.ingest("c", [{"role": "user", "content": "edited"}, *talk[1:]], full=True, branch=1)
        shown = [{"m": row.id} for row in store.messages("c", branch=1)][2:]
        folded(store, {"t": "about edited and t2", "role": "user"}, *shown)
        second = store.fork("c", before="m5", branch=first, head=False)
        assert texts(store, second) == ["t1", f"t2 {LONG}", "t3", f"t4 {LONG}"]
        return list(store.window("c", branch=second).items)

    assert window_of_a_second_fork() == [{"m": f"m{n}"} for n in range(1, 5)]
    monkeypatch.setattr(branches, "_has_changed", lambda *_: False)
    assert window_of_a_second_fork()[0].get("t") == "about edited and t2", "the planted defect"


def test_a_fork_without_a_window_that_fits_shows_nothing_of_what_follows() -> None:
    """As in a file of an earlier schema, which kept the newest window alone."""
    store = SQLiteStore()
    store.append("c", said(*(f"t{n}" for n in range(1, 31))))
    asked(store, *(f"m{n}" for n in range(1, 16)))
    for last in (10, 20):
        folded(store, {"t": f"1 to {last}", "role": "user"}, *({"m": f"m{n}"} for n in range(last + 1, last + 6)))
    with store._db.write() as connection:
        connection.execute("DELETE FROM windows WHERE version = 1")
        connection.execute("UPDATE windows SET folded_to = NULL")
    branch = store.fork("c", before="m8", head=False)
    assert store.window("c", branch=branch).items == tuple({"m": f"m{n}"} for n in range(1, 8))


# foreign lists

LONG = "an answer that nobody gives twice by chance, because it is as long as a paragraph of some length"


def test_a_folded_list_goes_on_where_it_was_and_not_on_an_older_branch() -> None:
    questions: list[Message] = [{"role": "user", "content": f"question {n}"} for n in range(7)]
    answers: list[Message] = [{"role": "assistant", "content": f"answer {n} {LONG}"} for n in range(7)]
    store = SQLiteStore()
    rejected: Message = {"role": "assistant", "content": f"rejected {LONG}"}
    store.ingest("c", [questions[1], answers[1], questions[2], rejected])
    talk = [questions[1], answers[1], questions[2], answers[2]]
    store.ingest("c", talk)
    for number in (3, 4, 5, 6):
        talk += [questions[number], answers[number]]
        store.ingest("c", talk)
    ids = {row.message["content"]: row.id for row in store.messages("c")}
    summary: Message = {"role": "user", "content": "SUMMARY of 1 to 4"}
    kept = talk[-4:]
    store.handed_out("c", [(summary, ()), *((m, (ids[m["content"]],)) for m in kept)])
    store.ingest("c", [summary, *kept])
    done = store.ingest("c", [summary, *kept[:3], {"role": "assistant", "content": f"another {LONG}"}])
    assert len(done.added) == 1
    assert texts(store)[:-1] == [m["content"] for m in talk[:-1]]


def test_equal_words_on_another_branch_are_not_taken_for_the_users() -> None:
    talk = said("a", LONG, "c", "d")
    store = SQLiteStore()
    store.ingest("c", talk)
    branch = store.fork("c", head=False)
    store.append("c", said("yes"), branch=branch)
    assert len(store.ingest("c", [*talk, *said("yes")]).added) == 1
    assert texts(store, 1) == ["a", LONG, "c", "d", "yes"]


def test_places_are_numbered_anew_also_on_a_branch_from_the_very_beginning(store: SQLiteStore) -> None:
    store.fork("c", before="m1")
    talk = said("x", f"y {LONG}", "z", f"w {LONG}")
    store.ingest("c", talk)
    for number in range(60):
        talk.insert(2, {"role": "user", "content": f"inserted {number}"})
        store.ingest("c", talk, full=True)
    assert texts(store) == [message["content"] for message in talk]
    assert store.check_file() == []


@pytest.mark.slow
@pytest.mark.postgresql_soak
def test_deep_forks_stay_readable() -> None:
    store = SQLiteStore()
    store.append("c", said("q", "a"))
    for number in range(1_100):
        store.fork("c")
        store.append("c", [{"role": "user", "content": str(number)}])
    store.record_request("c", JournalRow(reason="turn", keep=0, added=({"m": "m1"},)))
    assert store.window("c").items == ({"m": "m1"},)
    assert len(list(store.messages("c", first=3))) == 1_100
    assert store.check_file() == []


# search, pins, copies


def test_search_finds_every_branch_and_says_which_one() -> None:
    store = SQLiteStore()
    store.append("c", said("the harbour", "the crane", "berth seven"))
    store.fork("c", before="m3")
    store.append("c", said("berth eight"))
    hits = {hit.snippet: hit.other_branch for hit in search(store, "berth", filter=SearchFilter(conversation="c")).hits}
    assert hits == {"berth seven": 1, "berth eight": 0}
    walked = search(store, "ber.h", filter=SearchFilter(conversation="c"), regex=True).hits
    assert [(hit.snippet, hit.other_branch) for hit in walked] == [("berth eight", 0), ("berth seven", 1)]


def test_equal_words_of_siblings_are_one_hit() -> None:
    store = SQLiteStore()
    store.append("c", said("where?", "berth seven"))
    for _ in range(3):
        branch = store.fork("c", before="m2", branch=1)
        store.append("c", [{"role": "assistant", "content": "berth seven"}], branch=branch)
    assert len(search(store, "berth seven").hits) == 1


def test_neighbours_stand_on_the_path() -> None:
    store = SQLiteStore()
    store.append("c", said(*"abcd"))
    store.fork("c", before="m3")
    store.append("c", said("C", "D"))
    assert [row.message["content"] for row in store.neighbours(["m2"], before=1, after=2)] == ["a", "b", "C", "D"]
    assert [row.message["content"] for row in store.neighbours(["m3"], before=1, after=2)] == ["b", "c", "d"]


def test_export_and_import_keep_the_tree(store: SQLiteStore) -> None:
    store.fork("c", before="m4")
    store.append("c", [{"role": "assistant", "content": "D"}])
    store.fork("c", before="m1", head=False)
    store.pin("c", "m2")
    store.ensure("c", title="The harbour")
    copy = open_store(":memory:")
    copy.import_lines(store.export("c"))
    assert [texts(copy, n) for n in (None, 1, 2, 3)] == [texts(store, n) for n in (None, 1, 2, 3)]
    assert [(b.id, b.parent, b.head, b.messages) for b in copy.branches("c")] == [
        (b.id, b.parent, b.head, b.messages) for b in store.branches("c")
    ]
    assert copy.pins("c") == ("m2",)
    assert [info.title for info in copy.conversations()] == ["The harbour"]
    assert store.ensure("c").title == "The harbour"
    assert [*copy.check_file(), *copy.check_chain("c"), *copy.check_index()] == []


@pytest.mark.parametrize(
    "head",
    [
        {"branches": [{"id": 2, "parent": None}]},
        {"branches": [{"id": 1, "parent": None}, {"id": 2, "parent": 3, "place": 1, "seq": 1}]},
        {"branches": [{"id": 1, "parent": None}], "head": 2},
        {"branches": [{"id": 1, "parent": None}, {"id": 2, "parent": 1, "place": "x", "seq": 1}]},
        {"branches": "all", "head": 1},
        {"pins": [0]},
        {"head": [1]},
        {"branches": [{"id": 1, "parent": None}, {"id": 2, "parent": [1], "place": 1, "seq": 1}]},
    ],
)
def test_an_export_with_a_broken_tree_is_refused(head: dict[str, Any]) -> None:
    store = open_store(":memory:")
    with pytest.raises(StoreError, match="wrong"):
        store.import_lines([json.dumps({"leporello": 2, "conversation": "c", **head})])
    assert list(store.conversations()) == []


def test_idle_side_branches_go_first() -> None:
    now = 1_000.0
    store = SQLiteStore(clock=lambda: now)
    store.append("c", said("a", "b", "c", "d"))
    store.record_request("c", JournalRow(reason="turn", keep=0, added=tuple({"m": f"m{n}"} for n in range(1, 5))))
    idle, above = store.fork("c", head=False), store.fork("c", head=False)
    for branch in (idle, above):
        store.append("c", said("an old word aside"), branch=branch)
    now = 5_000.0
    below = store.fork("c", branch=above, head=False)
    store.append("c", said("a new word aside"), branch=below)
    store.append("c", said("e"))
    assert [gone.messages for gone in store.gc(older_than=1_000, dry_run=True)] == [1]
    assert [(gone.messages, gone.whole) for gone in store.gc(older_than=1_000)] == [(1, False)]
    assert [branch.id for branch in store.branches("c")] == [1, above, below]
    assert texts(store, below) == ["a", "b", "c", "d", "an old word aside", "a new word aside"]
    assert texts(store) == ["a", "b", "c", "d", "e"]
    assert [*store.check_file(), *store.check_chain("c"), *store.check_index()] == []


def test_an_idle_branch_that_becomes_the_head_meanwhile_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    store = SQLiteStore(clock=lambda: now)
    store.append("c", said("a", "b"))
    store.record_request("c", JournalRow(reason="turn", keep=0, added=({"m": "m1"},)))  # which the window shows
    aside = store.fork("c", head=False)
    store.append("c", said("aside"), branch=aside)
    now = 5_000.0
    store.append("c", said("e"))
    hide = retention._hide_branches

    def hidden(connection: Any, found: Any, *arguments: Any) -> Any:
        return hide(connection, found._replace(head=aside), *arguments)

    monkeypatch.setattr(retention, "_hide_branches", hidden)
    store.gc(older_than=1_000)
    assert [branch.id for branch in store.branches("c")] == [1, aside]
    assert texts(store, aside) == ["a", "b", "aside"]
    assert [*store.check_file(), *store.check_chain("c"), *store.check_index()] == []


def test_a_long_idle_branch_goes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """A database takes so many values in one statement, and no more."""
    now = 1_000.0
    store = SQLiteStore(clock=lambda: now)
    store.append("c", said("a", "b"))
    store.record_request("c", JournalRow(reason="turn", keep=0, added=({"m": "m1"},)))
    store.append("c", said(*(f"aside {n}" for n in range(25))), branch=store.fork("c", head=False))
    now = 5_000.0
    store.append("c", said("e"))
    pieces: list[int] = []

    def hidden(connection: Any, found: Any, numbers: Any, *arguments: Any) -> Any:
        pieces.append(len(numbers))
        return hide_range(connection, found, numbers, *arguments)

    monkeypatch.setattr(retention, "hide_range", hidden)
    monkeypatch.setattr(row_values, "CHUNK", 10)
    assert [gone.messages for gone in store.gc(older_than=1_000)] == [25]
    assert pieces == [10, 10, 5]
    assert texts(store) == ["a", "b", "e"]
    assert [*store.check_file(), *store.check_chain("c"), *store.check_index()] == []
    assert not store.search("aside").hits


@pytest.mark.slow
@pytest.mark.postgresql_soak
def test_many_side_branches_are_checked_and_kept_within_bounds(tmp_path: Path) -> None:
    """A branch is one row; ten thousand of them in the long form: nothing is copied, every check passes."""
    now = 1_000.0
    store = SQLiteStore(tmp_path / "s.db", clock=lambda: now)
    store.append("c", said(*map(str, range(200))))
    for number in range(MANY):
        branch = store.fork("c", head=False)
        store.append("c", [{"role": "user", "content": f"aside {number}"}], branch=branch)
    store.record_request("c", JournalRow(reason="turn", keep=0, added=({"m": "m1"},)))  # the window shows the first one
    assert rows(store) == 200 + MANY
    assert len(store.branches("c")) == 1 + MANY
    assert [*verify(store, "c"), *store.check_file()] == []
    now = 5_000.0
    store.append("c", said("new"))
    (gone,) = store.gc(older_than=1_000)
    assert (gone.messages, rows(store)) == (MANY, 201)
    assert [branch.id for branch in store.branches("c")] == [1]
    assert [*verify(store, "c"), *store.check_file()] == []


@pytest.mark.parametrize(("gone", "problem"), [(3, "stand on branch 3"), (2, "goes on from branch 2")])
def test_what_stands_on_a_branch_that_is_gone_is_found(gone: int, problem: str) -> None:
    store = SQLiteStore()
    store.append("c", said("a", "b"))
    store.append("c", said("aside"), branch=store.fork("c", head=False))
    store.append("c", said("further"), branch=store.fork("c", branch=2, head=False))
    assert store.check_file() == []
    with store._db.write() as connection:
        connection.execute("DELETE FROM branches WHERE id = ?", (gone,))
    assert any(problem in finding.problem for finding in store.check_file())


class Tree(RuleBasedStateMachine):
    """A store beside a plain dictionary of lists."""

    def __init__(self) -> None:
        super().__init__()
        self.store = SQLiteStore()
        self.paths: dict[int, list[tuple[str, str]]] = {1: []}
        self.count = 0

    def _branch(self, share: float) -> int:
        return sorted(self.paths)[int(share * (len(self.paths) - 1))]

    @rule(share=st.floats(0, 1), number=st.integers(1, 4))
    def append(self, share: float, number: int) -> None:
        branch = self._branch(share)
        new = [f"text {self.count + n}" for n in range(number)]
        self.count += number
        ids = self.store.append("c", said(*new), branch=branch)
        self.paths[branch] += zip(ids, new, strict=True)

    @rule(share=st.floats(0, 1), place=st.floats(0, 1), head=st.booleans())
    def fork(self, share: float, place: float, head: bool) -> None:
        branch = self._branch(share)
        path = self.paths[branch]
        if not path:
            return
        at = int(place * len(path))
        made = self.store.fork("c", before=path[at][0] if at < len(path) else None, branch=branch, head=head)
        self.paths[made] = path[:at]

    @rule(share=st.floats(0, 1), start=st.floats(0, 1), length=st.integers(1, 3))
    def move(self, share: float, start: float, length: int) -> None:
        """Put some messages behind the others, if no other branch has one of them."""
        branch = self._branch(share)
        path = self.paths[branch]
        if not path:
            return
        at = int(start * (len(path) - 1))
        moved, rest = path[at : at + length], path[:at] + path[at + length :]
        elsewhere = [one for other, theirs in self.paths.items() if other != branch for one in theirs]
        ids = [id_ for id_, _ in moved]
        assert not self.store.move("c", ids, behind="m0", branch=branch)  # another process went on meanwhile
        is_moved = self.store.move("c", ids, behind=path[-1][0], branch=branch)
        assert is_moved is not any(one in elsewhere for one in moved)
        if is_moved:
            self.paths[branch] = rest + moved

    @rule(share=st.floats(0, 1))
    def copy(self, share: float) -> None:
        """Go on with the export of everything."""
        if not self.count:
            return
        copy = SQLiteStore()
        copy.import_lines(self.store.export("c"))
        ids = {row.seq: row.id for row in copy.messages("c", superseded=True)}
        seqs = {row.id: row.seq for row in self.store.messages("c", superseded=True)}
        self.paths = {n: [(ids[seqs[id_]], text) for id_, text in path] for n, path in self.paths.items()}
        self.store = copy
        assert self._branch(share) in self.paths

    @invariant()
    def every_path_is_what_was_said(self) -> None:
        for branch, path in self.paths.items():
            found = self.store.messages("c", branch=branch)
            assert [(row.id, row.message["content"]) for row in found] == path
            back = self.store.messages("c", branch=branch, newest_first=True)
            assert [row.id for row in back] == [id_ for id_, _ in reversed(path)]

    @invariant()
    def nothing_was_copied_and_every_check_is_clean(self) -> None:
        assert len(list(self.store.messages("c", superseded=True))) == self.count
        assert [*self.store.check_file(), *self.store.check_chain("c"), *self.store.check_index()] == []


Tree.TestCase.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)
TestTree = pytest.mark.slow(Tree.TestCase)
SOON = settings(Tree.TestCase.settings, max_examples=300, database=None, phases=[Phase.generate])
"""To notice what is planted, whatever the chance, and not to look for its shortest example."""


@pytest.mark.slow
@pytest.mark.sqlite_only
def test_the_tree_catches_a_move_that_breaks_the_path_of_a_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: what an older fork shares is moved too."""
    monkeypatch.setattr(revision, "_is_shared", lambda *_: False)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Tree, settings=SOON)


@pytest.mark.slow
@pytest.mark.sqlite_only  # the stores of failing examples stay open, more than a server has connections for
def test_the_tree_catches_a_fork_that_keeps_one_message_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = branches._place_before

    def careless(connection: Connection, *args: Any) -> float:
        return whole(connection, *args) + 1

    monkeypatch.setattr(branches, "_place_before", careless)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Tree, settings=SOON)
