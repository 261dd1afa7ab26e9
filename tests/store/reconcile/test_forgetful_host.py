"""A host that restarts with an empty list under its old name: a new root, and nothing is taken back."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest
from tests.fixtures.databases import SOAK

from leporello.messages import Message
from leporello.store import JournalRow, SearchFilter, StoredWindow, WindowItem, open_store
from leporello.store.reconcile import full_plan as reconciliation
from leporello.store.relational import (
    branches,
    import_export,
    messages,
    renumber,
    retention,
    rows as table_rows,
    writing,
)
from leporello.store.relational.branch_path import Fork
from leporello.store.search import search
from leporello.store.sqlite import SQLiteStore

if TYPE_CHECKING:
    from pathlib import Path

    from leporello.store.relational.dialect import Connection

DATABASES = SOAK

Messages: TypeAlias = list[Message]
SYSTEM: Message = {"role": "system", "content": "You are the harbour's assistant."}
WELCOME: Message = {"role": "assistant", "content": "Welcome to the harbour. " * 8}
LONG_PROMPT: Message = {"role": "user", "content": "Write the report of today's arrivals and departures. " * 8}


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


HI, HELLO = user("hi"), assistant("Hello!")
HEADS: dict[str, Messages] = {
    "nothing": [],
    "the system prompt": [SYSTEM],
    "the first question": [SYSTEM, HI],
    "the first question and a short answer": [SYSTEM, HI, HELLO],
    "a welcome that the app writes": [SYSTEM, WELCOME],
    "a long question": [SYSTEM, LONG_PROMPT],
}


def turn(run: int, number: int) -> Messages:
    return [user(f"question {run}-{number} about the quay"), assistant(f"answer {run}-{number} about the quay")]


def said(run: int, turns: int) -> Messages:
    return [message for number in range(turns) for message in turn(run, number)]


def talk(path: Path, head: Messages, run: int, turns: int, *, full: bool) -> None:
    """Hand over a list that begins with `head` and grows, message by message, as a host does; then forget it."""
    listed = list(head)
    with open_store(path) as store:  # type: ignore[attr-defined]
        for message in said(run, turns):
            listed.append(message)
            store.ingest("bot", listed)
        store.ingest("bot", listed, full=full)


def check(path: Path, head: Messages, runs: int, turns: int) -> None:
    """Every run is a root of its own, the last one the head, and every turn is stored once and can be found."""
    with open_store(path) as store:  # type: ignore[attr-defined]
        branches = store.branches("bot")
        assert [(branch.id, branch.parent) for branch in branches] == [(run + 1, None) for run in range(runs)]
        assert store.head("bot") == runs
        greeting = [message for message in head if message is not SYSTEM]
        for run, branch in enumerate(branches):
            path_of = [row.message for row in store.messages("bot", branch=branch.id)]
            assert path_of == [*greeting, *said(run, turns)]
            found = search(store, f'"answer {run}-0"', filter=SearchFilter(conversation="bot"), limit=5)
            assert [(hit.role, hit.other_branch) for hit in found.hits] == [
                ("assistant", 0 if branch.head else run + 1)
            ]
        everything = [row.message for row in store.messages("bot", superseded=True)]
        assert everything == [message for run in range(runs) for message in (*greeting, *said(run, turns))]
        assert [*store.check_chain("bot"), *store.check_file(), *store.check_index()] == []


@pytest.mark.slow
@pytest.mark.parametrize("full", [False, True], ids=["quick", "full"])
@pytest.mark.parametrize("turns", [1, 2, 12])
@pytest.mark.parametrize("head", HEADS)
def test_a_host_that_forgot_takes_nothing_back(tmp_path: Path, head: str, turns: int, full: bool) -> None:
    for run in range(4):
        talk(tmp_path / "s.db", HEADS[head], run, turns, full=full)
    check(tmp_path / "s.db", HEADS[head], 4, turns)


@pytest.mark.slow
@pytest.mark.parametrize("head", HEADS)
def test_the_check_catches_a_store_that_takes_everything_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: str
) -> None:
    """Planted defect: what a list lacks counts as undone, whatever it shares with the history."""
    monkeypatch.setattr(reconciliation, "is_same_conversation", lambda *_: True)
    for run in range(2):
        talk(tmp_path / "s.db", HEADS[head], run, 3, full=False)
    with pytest.raises(AssertionError):
        check(tmp_path / "s.db", HEADS[head], 2, 3)


def behind(connection: Connection, found: Any, now: float) -> int:
    """A planted defect: a list of a host that forgot is stored behind what the head has."""
    return int(found.head)


def test_the_check_catches_a_store_that_puts_a_new_root_behind_the_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "begin_root", behind)
    for run in range(2):
        talk(tmp_path / "s.db", [SYSTEM], run, 3, full=False)
    with pytest.raises(AssertionError):
        check(tmp_path / "s.db", [SYSTEM], 2, 3)


def test_the_list_alone_with_a_first_message_that_is_stored_adds_nothing_and_takes_nothing_back() -> None:
    """Perhaps an undo, perhaps a new beginning: what follows decides."""
    store = open_store(":memory:")
    store.ingest("bot", [SYSTEM, HI, HELLO, *said(0, 3)])
    store._readings.clear()  # type: ignore[attr-defined]
    for full in (False, True):
        done = store.ingest("bot", [SYSTEM, HI], full=full)
        assert (done.added, done.superseded) == ((), ())
    done = store.ingest("bot", [SYSTEM, HI, assistant("Hello again!")])
    assert (len(done.added), done.superseded) == (2, ())


@pytest.mark.parametrize("restarts", [False, True])
def test_a_host_that_knows_the_conversation_may_take_back_turns(restarts: bool) -> None:
    """An answer that is not said twice by chance shows it after a restart, and the list before shows it within one."""
    answer = assistant("The quay is free from Monday on. " * (4 if restarts else 1))
    listed = [SYSTEM, HI, answer, *said(0, 3)]
    store = open_store(":memory:")
    store.ingest("bot", listed)
    if restarts:
        store._readings.clear()  # type: ignore[attr-defined]
    done = store.ingest("bot", [*listed[:3], user("and the crane?")])
    assert (len(done.added), len(done.superseded)) == (1, 6)


def test_an_answer_that_is_made_anew_replaces_the_first_one() -> None:
    store = open_store(":memory:")
    store.ingest("bot", [SYSTEM, HI, HELLO])
    store.ingest("bot", [SYSTEM, HI])
    done = store.ingest("bot", [SYSTEM, HI, assistant("Good day.")])
    assert (len(done.added), len(done.superseded)) == (1, 1)


def test_a_host_that_goes_on_after_a_new_beginning_is_recognised(tmp_path: Path) -> None:
    for run in range(2):
        talk(tmp_path / "s.db", [SYSTEM, HI], run, 5, full=False)
    listed = [SYSTEM, HI, *said(1, 5)]
    with open_store(tmp_path / "s.db") as store:  # type: ignore[attr-defined]
        assert store.ingest("bot", listed).added == ()
        assert len(store.ingest("bot", [*listed, *turn(1, 5)], full=True).added) == 2
        assert [row.message for row in store.messages("bot")] == [HI, *said(1, 5), *turn(1, 5)]


# other roots


@pytest.fixture
def store() -> SQLiteStore:
    """A conversation with two roots, of which the second is the head."""
    store = SQLiteStore()
    for run in (0, 1):
        store._readings.clear()
        store.ingest("bot", [SYSTEM, HI, *said(run, 3)])
    assert store.head("bot") == 2
    return store


def row_count(store: SQLiteStore) -> int:
    return len(list(store.messages("bot", superseded=True, system=True)))


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("restarts", [False, True])
def test_a_list_of_an_older_root_goes_on_there(store: SQLiteStore, full: bool, restarts: bool) -> None:
    before = row_count(store)
    if restarts:
        store._readings.clear()
    known = store.ingest("bot", [SYSTEM, HI, *said(0, 3)], full=full)
    assert (known.branch, known.added, store.head("bot")) == (1, (), 2)
    done = store.ingest("bot", [SYSTEM, HI, *said(0, 3), *turn(0, 3)], full=full)
    assert (done.branch, len(done.added), store.head("bot")) == (1, 2, 1)
    back = store.ingest("bot", [SYSTEM, HI, *said(1, 3), *turn(1, 3)], full=full)
    assert (back.branch, len(back.added), store.head("bot")) == (2, 2, 2)
    assert (row_count(store), len(store.branches("bot"))) == (before + 4, 2)


def test_planted_a_store_that_looks_at_the_head_alone_stores_an_older_root_again(
    store: SQLiteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(messages, "newest_branches", lambda *_: [])
    with pytest.raises(AssertionError):
        test_a_list_of_an_older_root_goes_on_there(store, full=False, restarts=True)


def test_a_list_of_an_older_root_that_adds_nothing_moves_nothing_also_when_the_conversation_ended(
    store: SQLiteStore,
) -> None:
    store.end("bot")
    for listed in ([SYSTEM, HI, *said(0, 3)], [SYSTEM, HI], [SYSTEM, *turn(0, 0)]):
        done = store.ingest("bot", listed)
        assert (done.added, done.superseded, store.head("bot")) == ((), (), 2)


def test_a_commonplace_of_an_older_root_is_no_list_of_it(store: SQLiteStore) -> None:
    """A lone "hi" waits for what follows; with an answer that nobody has said before it is a third root."""
    store._readings.clear()
    assert store.ingest("bot", [SYSTEM, HI]).added == ()
    done = store.ingest("bot", [SYSTEM, HI, HELLO])
    assert (done.branch, len(done.added), store.head("bot")) == (3, 2, 3)
    assert [row.message for row in store.messages("bot")] == [HI, HELLO]


def test_an_undo_on_an_older_root_forks_it(store: SQLiteStore) -> None:
    store.ingest("bot", [SYSTEM, HI, *said(0, 3), *(message for n in range(3, 6) for message in turn(0, n))])
    store.ingest("bot", [SYSTEM, HI, *said(1, 3), user("and the crane?")])
    done = store.ingest("bot", [SYSTEM, HI, *said(0, 5), user("and the crane?")])
    forked = store.branches("bot")[-1]
    assert (done.branch, len(done.added), forked.parent, forked.head) == (3, 1, 1, True)
    assert [row.message for row in store.messages("bot")] == [HI, *said(0, 5), user("and the crane?")]


def test_roots_that_a_host_with_two_lists_goes_on_with_are_not_mixed(store: SQLiteStore) -> None:
    """Two hosts under one name, turn by turn: each goes on on its own root, and stores what it says once."""
    lists = [[SYSTEM, HI, *said(run, 3)] for run in (0, 1)]
    for number in range(3, 9):
        for run in (0, 1):
            for message in turn(run, number):
                lists[run].append(message)
                assert store.ingest("bot", lists[run]).branch == run + 1
    for run in (0, 1):
        assert [row.message for row in store.messages("bot", branch=run + 1)] == [HI, *said(run, 9)]
    assert (row_count(store), len(store.branches("bot"))) == (1 + 2 * 19, 2)


def short_roots(*heads: Messages) -> SQLiteStore:
    """Return a store with a root for each of these lists, the last one the head."""
    store = SQLiteStore()
    for listed in heads:
        store._readings.clear()
        store.ingest("bot", [SYSTEM, *listed])
    assert len(store.branches("bot")) == len(heads)
    store._readings.clear()
    return store


def test_a_root_that_has_only_a_commonplace_draws_no_list_of_another() -> None:
    store = short_roots(said(0, 3), [HI])
    done = store.ingest("bot", [SYSTEM, *said(0, 3), HI])
    assert (done.branch, len(done.added), store.head("bot")) == (1, 1, 1)
    store = short_roots([HI], said(1, 3))
    done = store.ingest("bot", [SYSTEM, user("Good morning!"), HELLO, HI, assistant("How can I help?")])
    assert (done.branch, len(done.added), len(store.branches("bot"))) == (3, 4, 3)


@pytest.mark.parametrize("changed", [{"fits": True}, {"sure": True}])
def test_planted_a_store_that_is_content_with_a_commonplace(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]
) -> None:
    full_plan = reconciliation.full_plan

    def content(*args: Any, **more: Any) -> Any:
        return replace(full_plan(*args, **more), **changed)

    monkeypatch.setattr(messages, "full_plan", content)
    with pytest.raises(AssertionError):
        test_a_root_that_has_only_a_commonplace_draws_no_list_of_another()


SUMMARY = user("What was said: the quay is free.")


@pytest.mark.parametrize("kept", [0, 2])
def test_a_list_that_an_engine_handed_out_on_an_older_root_goes_on_there(kept: int) -> None:
    """Also when its host has dropped all of it but the summary."""
    store = SQLiteStore()
    store.ingest("bot", [SYSTEM, *said(0, 3)])
    ids = {row.message["content"]: row.id for row in store.messages("bot")}
    tail = said(0, 3)[-2:]
    store.handed_out("bot", [(SYSTEM, ()), (SUMMARY, ()), *((m, (ids[m["content"]],)) for m in tail)])
    store._readings.clear()
    assert store.ingest("bot", [SYSTEM, *said(1, 3)]).branch == 2
    done = store.ingest("bot", [SYSTEM, SUMMARY, *tail[:kept], *turn(0, 3)])
    assert (done.branch, len(done.added), store.head("bot")) == (1, 2, 1)
    assert [row.message for row in store.messages("bot")] == said(0, 4)
    assert [row.message for row in store.messages("bot", branch=2)] == said(1, 3)


@pytest.mark.parametrize("kept", [0, 2])
def test_planted_a_store_that_takes_a_summary_for_one_of_the_head(monkeypatch: pytest.MonkeyPatch, kept: int) -> None:
    """Planted: a list that holds something an engine made goes on at the head, whatever root it was made of."""
    full_plan = reconciliation.full_plan
    monkeypatch.setattr(messages, "full_plan", lambda *a, **k: replace(full_plan(*a, **k), fits=True))
    with pytest.raises(AssertionError):
        test_a_list_that_an_engine_handed_out_on_an_older_root_goes_on_there(kept)


def test_a_named_branch_is_gone_on_with_whatever_the_list_shares(store: SQLiteStore) -> None:
    """A host that names its branch forks by itself."""
    done = store.ingest("bot", [SYSTEM, *said(2, 1)], branch=1)
    assert (done.branch, len(done.added), store.head("bot")) == (1, 2, 2)
    assert [row.message for row in store.messages("bot", branch=1)] == [HI, *said(0, 3), *said(2, 1)]


# other processes, and a crash


def test_another_process_comes_to_the_same_decision(tmp_path: Path) -> None:
    talk(tmp_path / "s.db", [SYSTEM, HI], 0, 3, full=False)
    one, other = (SQLiteStore(tmp_path / "s.db") for _ in range(2))
    listed = [SYSTEM, HI, *turn(1, 0)]
    assert (one.ingest("bot", listed).branch, len(one.branches("bot"))) == (2, 2)
    assert (other.ingest("bot", listed).added, other.head("bot")) == ((), 2)
    assert len(other.ingest("bot", [*listed, *turn(1, 1)]).added) == 2
    assert one.ingest("bot", [*listed, *turn(1, 1)], full=True).added == ()
    for store in (one, other):
        store.close()


def test_a_decision_that_another_process_has_made_meanwhile_is_found_under_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes of a host that forgot hand over the same list at once: one root, and one copy."""
    talk(tmp_path / "s.db", [SYSTEM, HI], 0, 3, full=False)
    one, other = (SQLiteStore(tmp_path / "s.db") for _ in range(2))
    listed = [SYSTEM, HI, *turn(1, 0)]
    prepared = messages._prepared

    def meanwhile(*args: Any) -> Any:
        monkeypatch.setattr(messages, "_prepared", prepared)
        assert other.ingest("bot", listed).branch == 2
        return prepared(*args)

    monkeypatch.setattr(messages, "_prepared", meanwhile)
    done = one.ingest("bot", listed)
    assert (done.branch, done.added, len(one.branches("bot"))) == (2, (), 2)
    for store in (one, other):
        store.close()


def test_planted_a_plan_that_is_not_made_again_under_the_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find, opened = table_rows.find, table_rows.opened
    monkeypatch.setattr(messages, "find", lambda *args: (found := find(*args)) and found._replace(revision=0))
    monkeypatch.setattr(messages, "opened", lambda *args: opened(*args)._replace(revision=0))
    with pytest.raises(AssertionError):
        test_a_decision_that_another_process_has_made_meanwhile_is_found_under_the_lock(tmp_path, monkeypatch)


def test_a_crash_between_a_new_root_and_its_messages_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk(tmp_path / "s.db", [SYSTEM], 0, 3, full=False)
    insert = writing.insert

    def crash(*_: Any) -> Any:
        raise OSError("killed")

    with open_store(tmp_path / "s.db") as store:  # type: ignore[attr-defined]
        monkeypatch.setattr(messages, "insert", crash)
        with pytest.raises(OSError, match="killed"):
            store.ingest("bot", [SYSTEM, *turn(1, 0)])
        assert (len(store.branches("bot")), store.head("bot")) == (1, 1)
        monkeypatch.setattr(messages, "insert", insert)
    talk(tmp_path / "s.db", [SYSTEM], 1, 3, full=False)
    check(tmp_path / "s.db", [SYSTEM], 2, 3)


@pytest.mark.sqlite_only
def test_planted_a_root_that_is_made_before_its_messages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: the root and its messages are two transactions."""
    begin_root = branches.begin_root

    def committed(connection: Connection, found: Any, now: float) -> int:
        number = begin_root(connection, found, now)
        connection.execute("COMMIT")
        connection.execute("BEGIN IMMEDIATE")
        return number

    monkeypatch.setattr(messages, "begin_root", committed)
    with pytest.raises(AssertionError):
        test_a_crash_between_a_new_root_and_its_messages_leaves_nothing(tmp_path, monkeypatch)


def test_a_reading_of_one_root_says_nothing_about_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What this process remembers of its list on one root is no sign that it knows the root of another process."""
    one, other = (SQLiteStore(tmp_path / "s.db") for _ in range(2))
    one.ingest("bot", [SYSTEM, HI, HELLO])
    prepared = messages._prepared

    def meanwhile(*args: Any) -> Any:
        monkeypatch.setattr(messages, "_prepared", prepared)
        assert other.ingest("bot", [SYSTEM, HI, *said(1, 2)]).branch == 2
        return prepared(*args)

    monkeypatch.setattr(messages, "_prepared", meanwhile)
    done = one.ingest("bot", [SYSTEM, HI, *turn(2, 0)])
    assert one.branches("bot")[-1].parent != 2, "the root of the other process was forked"
    assert [row.message for row in one.messages("bot", branch=done.branch)] == [HI, *turn(2, 0)]
    for store in (one, other):
        store.close()


class AnyBranch(OrderedDict[Any, Any]):
    """A planted defect: what is remembered of a list is not kept by branch."""

    def get(self, key: Any, default: Any = None) -> Any:
        return next((read for (owner, name, _), read in self.items() if (owner, name) == key[:2]), default)


@pytest.mark.sqlite_only
def test_planted_readings_that_are_not_kept_by_branch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = SQLiteStore.__init__

    def careless(self: SQLiteStore, *args: Any, **more: Any) -> None:
        whole(self, *args, **more)
        self._readings = AnyBranch()

    monkeypatch.setattr(SQLiteStore, "__init__", careless)
    with pytest.raises(AssertionError):
        test_a_reading_of_one_root_says_nothing_about_another(tmp_path, monkeypatch)


# windows, deletion, retention, export


def test_a_new_root_begins_with_an_empty_window() -> None:
    store = SQLiteStore()
    store.ingest("bot", [SYSTEM, *said(0, 3)])
    items: tuple[WindowItem, ...] = ({"t": "what was said", "role": "user"}, {"m": "m7"})
    store.save_window("bot", StoredWindow(items=items), JournalRow(reason="fold", keep=0, added=items))
    store._readings.clear()
    store.ingest("bot", [SYSTEM, *said(1, 1)])
    assert store.window("bot") == StoredWindow()
    assert store.window("bot", branch=1).items == items
    store.record_request("bot", JournalRow(reason="turn", keep=0, added=({"m": "m8"}, {"m": "m9"})))
    assert store.window("bot").items == ({"m": "m8"}, {"m": "m9"})
    assert store.window("bot", branch=1).items == items


def test_planted_a_root_that_is_a_fork_of_the_head_begins_with_its_window(monkeypatch: pytest.MonkeyPatch) -> None:
    def forked(connection: Connection, found: Any, now: float) -> int:
        return branches.fork_at(connection, found, found.head, 1e9, now, head=True)

    monkeypatch.setattr(messages, "begin_root", forked)
    with pytest.raises(AssertionError):
        test_a_new_root_begins_with_an_empty_window()


LONG = assistant("The quay is free from Monday on, and the crane from Tuesday on, as the harbour master has said.")


def test_what_was_deleted_on_purpose_is_not_stored_again_with_a_new_root() -> None:
    """A host that still has what was deleted does not bring it back, and what it says now is stored."""
    store = SQLiteStore()
    listed = [SYSTEM, HI, LONG, *said(0, 2)]
    store.ingest("bot", listed)
    store._readings.clear()
    store.ingest("bot", [SYSTEM, *said(1, 2)])
    store.delete("bot", first=1, last=7)
    done = store.ingest("bot", [*listed, user("and the crane?")])
    assert len(done.added) == 1
    assert LONG not in [row.message for row in store.messages("bot", superseded=True)]


def test_planted_a_store_that_forgets_what_was_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciliation, "has_answers", lambda *_: False)
    with pytest.raises(AssertionError):
        test_what_was_deleted_on_purpose_is_not_stored_again_with_a_new_root()


def test_a_greeting_that_was_deleted_is_said_again_on_a_new_root() -> None:
    store = SQLiteStore()
    store.ingest("bot", [SYSTEM, HI, HELLO, *said(0, 2)])
    store.delete("bot", first=2, last=3)
    store._readings.clear()
    store.ingest("bot", [SYSTEM, HI, HELLO, *turn(1, 0)])
    assert [row.message for row in store.messages("bot")] == [HI, HELLO, *turn(1, 0)]


def test_a_root_that_was_deleted_wholly_is_gone_on_with_when_it_is_the_head(store: SQLiteStore) -> None:
    last = max(row.seq for row in store.messages("bot"))
    store.delete("bot", first=min(row.seq for row in store.messages("bot")), last=last)
    assert store.ingest("bot", [SYSTEM, user("Good morning!")]).branch == 2
    assert store.ingest("bot", [SYSTEM, HI, *said(0, 3), user("And now?")]).branch == 1
    assert [*store.check_chain("bot"), *store.check_file(), *store.check_index()] == []


def test_an_idle_root_goes_first() -> None:
    now = 1_000.0
    store = SQLiteStore(clock=lambda: now)
    for run in range(3):
        store._readings.clear()
        now = 1_000.0 * (run + 1)
        store.ingest("bot", [SYSTEM, *said(run, 2)])
    now = 3_500.0
    assert sum(gone.messages for gone in store.gc(older_than=1_000, dry_run=True)) == 8
    store.gc(older_than=1_000)
    assert [(branch.id, branch.messages) for branch in store.branches("bot")] == [(1, 0), (3, 4)]
    assert [row.message for row in store.messages("bot", superseded=True)] == said(2, 2)
    assert [*store.check_chain("bot"), *store.check_file(), *store.check_index()] == []


def test_planted_a_retention_that_keeps_idle_roots(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention, "_idle", lambda *_: ([], []))
    with pytest.raises(AssertionError):
        test_an_idle_root_goes_first()


def test_export_and_import_keep_the_roots(store: SQLiteStore) -> None:
    copy = SQLiteStore()
    copy.import_lines(store.export("bot"))
    for branch in store.branches("bot"):
        assert [row.message for row in copy.messages("bot", branch=branch.id)] == [
            row.message for row in store.messages("bot", branch=branch.id)
        ]
    assert [(b.id, b.parent, b.head) for b in copy.branches("bot")] == [(1, None, False), (2, None, True)]
    assert copy.ingest("bot", [SYSTEM, HI, *said(0, 3), *turn(0, 3)]).branch == 1
    assert [*copy.check_chain("bot"), *copy.check_file(), *copy.check_index()] == []


def test_planted_an_import_that_makes_forks_of_roots(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = table_rows.add_branch

    def forked(connection: Connection, conversation: int, branch: int, now: float, fork: Any = None) -> None:
        whole(connection, conversation, branch, now, fork or (Fork(1, 1e9, 10**9, 0) if branch > 1 else None))

    monkeypatch.setattr(import_export, "add_branch", forked)
    with pytest.raises(AssertionError):
        test_export_and_import_keep_the_roots(store)


def crowded() -> list[Message]:
    """Number the places of two roots anew, and return everything in order of place."""
    store = SQLiteStore()
    listed = [SYSTEM, user("question"), LONG, *said(0, 2)]
    store.ingest("bot", listed)
    store._readings.clear()
    store.ingest("bot", [SYSTEM, *said(1, 2)])
    for number in range(60):
        listed.insert(3, user(f"inserted {number}"))
        store.ingest("bot", listed, full=True)
    assert [row.message for row in store.messages("bot", branch=1)] == listed[1:]
    assert store.check_file() == []
    return [row.message for row in store.messages("bot", superseded=True)]


@pytest.mark.slow
def test_roots_stand_one_after_the_other_also_when_places_are_numbered_anew() -> None:
    assert crowded()[-4:] == said(1, 2)


@pytest.mark.slow
def test_planted_places_that_begin_at_one_for_every_root_mix_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renumber, "_end", lambda _: 0.0)
    assert crowded()[-4:] != said(1, 2)
