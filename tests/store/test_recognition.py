"""Hashes lead to the place of a history, on its branch, as long as it is there; `behind` guards the end of a branch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from leporello.errors import StaleTipError
from leporello.store import ROOT, Revision, open_store
from leporello.store.relational import recognition

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from leporello.messages import Message
    from leporello.store import Store

DATABASES = True


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    kept = open_store(tmp_path / "store.db")
    yield kept
    kept.close()


def said(*texts: str) -> list[Message]:
    return [{"role": "user" if number % 2 == 0 else "assistant", "content": text} for number, text in enumerate(texts)]


def texts(store: Store, branch: int | None = None) -> list[str]:
    return [str(row.message["content"]) for row in store.messages("c", branch=branch)]


class TestKnown:
    def test_the_first_known_hash_counts(self, store: Store) -> None:
        first, second = store.append("c", said("a", "b"), known={0: [b"one"], 1: [b"two", b"alone"]})
        assert [place.id for place in store.known([b"three", b"two", b"one"])] == [second]
        assert [place.id for place in store.known([b"one"])] == [first]
        assert [place.id for place in store.known([b"alone"])] == [second]
        assert store.known([b"nothing"]) == []

    def test_a_long_history_is_found_far_back(self, store: Store) -> None:
        store.append("c", said("a"), known={0: [b"one"]})
        unknown = [number.to_bytes(4) for number in range(3000)]
        assert [place.conversation for place in store.known([*unknown, b"one"])] == ["c"]

    def test_a_tip_is_told_from_a_place_that_was_gone_on_from(self, store: Store) -> None:
        store.append("c", said("a"), known={0: [b"one"]})
        assert [place.is_tip for place in store.known([b"one"])] == [True]
        store.append("c", said("b"))
        assert [place.is_tip for place in store.known([b"one"])] == [False]

    def test_of_many_those_that_wait_come_first(self, store: Store) -> None:
        """Also when many others have gone on that are newer."""
        store.append("first", said("hi"), known={0: [b"hi"]})
        for number in range(40):
            store.append(f"{number}", said("hi"), known={0: [b"hi"]})
            store.append(f"{number}", said("on"), known={0: [b"on %d" % number]})
        assert store.known([b"hi"])[0].conversation == "first"

    def test_many_branches_do_not_hide_another_conversation(self, store: Store) -> None:
        store.append("other", said("hi"), known={0: [b"hi"]})
        (asked,) = store.append("c", said("a"))
        for _ in range(12):
            store.append("c", said("hi"), branch=store.fork("c", behind=asked), known={0: [b"hi"]})
        assert {place.conversation for place in store.known([b"hi"])} == {"c", "other"}

    def test_branches_that_hide_another_conversation_would_be_noticed(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        read = recognition._read_places
        monkeypatch.setattr(recognition, "_read_places", lambda *given, without="": [] if without else read(*given))
        with pytest.raises(AssertionError):
            self.test_many_branches_do_not_hide_another_conversation(store)

    @pytest.mark.sqlite_only
    def test_an_order_by_age_alone_would_be_noticed(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        """Planted: nothing is closed when a conversation goes on."""

        def leaving_open(connection: Any, conversation: int, branch: int, rows: Any) -> None:
            connection.executemany(
                "INSERT OR REPLACE INTO known (hash, open, conversation, branch, seq) VALUES (?, 1, ?, ?, ?)",
                [(hash_, conversation, branch, seq) for hash_, seq in rows],
            )

        monkeypatch.setattr("leporello.store.relational.messages.note_known", leaving_open)
        with pytest.raises(AssertionError):
            self.test_of_many_those_that_wait_come_first(store)

    def test_owners_do_not_see_each_other(self, store: Store) -> None:
        store.append("c", said("a"), owner="ada", known={0: [b"one"]})
        assert store.known([b"one"], owner="bob") == []
        assert len(store.known([b"one"], owner="ada")) == 1

    def test_what_is_deleted_is_found_no_longer(self, store: Store) -> None:
        store.append("c", said("a", "b"), known={0: [b"one"], 1: [b"two"]})
        store.delete("c", first=2, last=2)
        assert [place.id for place in store.known([b"two", b"one"])] == ["m1"]
        store.delete("c")
        assert store.known([b"two", b"one"]) == []
        store.purge()
        with store._db.read() as connection:  # type: ignore[attr-defined]
            assert connection.execute("SELECT count(*) FROM known").fetchone() == (0,)

    def test_what_was_replaced_is_found_no_longer(self, store: Store) -> None:
        (id_,) = store.append("c", said("a"), known={0: [b"one"]})
        store.revise("c", [Revision(kind="replace", of=id_, message=said("b")[0])])
        assert store.known([b"one"]) == []

    def test_a_failure_is_taken_by_one(self, store: Store) -> None:
        (id_,) = store.append("c", said("a"))
        store.remember("c", id_, [b"again"])
        (place,) = store.known([b"again"])
        assert [store.forget_known(place) for _ in range(3)] == [True, False, False]
        assert store.known([b"again"]) == []

    def test_nothing_is_known_of_what_is_not_stored(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        """Both are one transaction."""

        def fails(*_: Any) -> None:
            raise RuntimeError("power cut")

        monkeypatch.setattr("leporello.store.relational.messages.write_request", fails)
        from leporello.store import JournalRow

        with pytest.raises(RuntimeError):
            store.append("c", said("a"), known={0: [b"one"]}, request=JournalRow(reason="request", keep=0, added=()))
        assert store.known([b"one"]) == []
        assert texts(store) == []


class TestBehind:
    def test_goes_on_only_at_the_end(self, store: Store) -> None:
        first, second = store.append("c", said("a", "b"))
        with pytest.raises(StaleTipError, match=first):
            store.append("c", said("x"), behind=first)
        store.append("c", said("c"), behind=second)
        assert texts(store) == ["a", "b", "c"]

    def test_nothing_is_an_empty_branch(self, store: Store) -> None:
        store.append("c", said("a"), behind="")
        with pytest.raises(StaleTipError, match="nothing"):
            store.append("c", said("b"), behind="")
        assert store.begin_root("new") == ROOT
        root = store.begin_root("c")
        assert root != ROOT
        store.append("c", said("b"), behind="", branch=root)
        assert (texts(store, ROOT), texts(store, root)) == (["a"], ["b"])

    def test_a_fork_ends_with_the_message_that_it_was_made_behind(self, store: Store) -> None:
        ids = store.append("c", said("a", "b", "c", "d"))
        branch = store.fork("c", behind=ids[1], head=False)
        store.append("c", said("x"), behind=ids[1], branch=branch)
        assert texts(store, branch) == ["a", "b", "x"]
        assert texts(store) == ["a", "b", "c", "d"]


class TestRevise:
    def test_replaces_inserts_and_removes(self, store: Store) -> None:
        a, b, c, _ = store.append("c", said("a", "b", "c", "d"))
        changes = [
            Revision(kind="replace", of=b, message=said("B")[0]),
            Revision(kind="insert", of=c, message=said("c+")[0]),
            Revision(kind="insert", of="", message=said("0")[0]),
            Revision(kind="remove", of=a, message=said("a")[0]),
        ]
        ids = store.revise("c", changes)
        assert ids[3] == a
        assert texts(store) == ["0", "B", "c", "c+", "d"]
        assert store.check_chain("c") == []
        assert store.check_file() == []

    def test_there_is_always_room(self, store: Store) -> None:
        first, _ = store.append("c", said("a", "z"))
        for number in range(80):
            store.revise("c", [Revision(kind="insert", of=first, message=said(f"{number}")[0])])
        assert texts(store) == ["a", *(f"{number}" for number in reversed(range(80))), "z"]

    def test_moves_messages_that_no_other_branch_has_to_the_end(self, store: Store) -> None:
        a, b, c, d = store.append("c", said("a", "b", "c", "d"), known={1: [b"b"]})
        assert store.move("c", [a, b], behind=d)
        assert texts(store) == ["c", "d", "a", "b"]
        assert [row.id for row in store.messages("c")] == [c, d, a, b]
        assert [place.is_tip for place in store.known([b"b"])] == [True]
        fork = store.fork("c", behind=d, head=False)
        assert texts(store, fork) == ["c", "d"]
        assert not store.move("c", [c], behind=b, branch=ROOT)  # the fork has it too
        assert not store.move("c", [c], behind=d, branch=fork)  # it is not of this branch
        assert not store.move("c", [a], behind=d, branch=ROOT)  # another process went on
        assert store.move("c", [a], behind=b, branch=ROOT)  # the fork does not have it
        assert texts(store, ROOT) == ["c", "d", "b", "a"]
        assert texts(store, fork) == ["c", "d"]
        assert store.check_chain("c") == []
        assert store.check_file() == []

    def test_leaves_other_branches_as_they_were(self, store: Store) -> None:
        a, b, _ = store.append("c", said("a", "b", "c"))
        fork = store.fork("c", behind=b, head=False)
        (own,) = store.append("c", said("x"), branch=fork)
        assert store.revise("c", [Revision(kind="replace", of=a, message=said("A")[0])], branch=fork) == (None,)
        assert store.revise("c", [Revision(kind="remove", of=a, message=said("a")[0])], branch=fork) == (None,)
        (changed,) = store.revise("c", [Revision(kind="replace", of=a, message=said("A")[0])], branch=ROOT)
        (_,) = store.revise("c", [Revision(kind="insert", of=a, message=said("+")[0])], branch=fork)
        assert changed is not None
        assert texts(store, ROOT) == ["A", "b", "c"]
        assert texts(store, fork) == ["a", "b", "+", "x"]
        assert store.newest("c", branch=fork) == own


@pytest.mark.sqlite_only
def test_the_look_up_reads_no_table_from_end_to_end(store: Store) -> None:
    """Whatever the size of the store, what is read depends on the history alone."""
    store.append("c", said("a"), known={0: [b"one"]})
    with store._db.read() as connection:  # type: ignore[attr-defined]
        seen: list[str] = []
        connection.set_trace_callback(seen.append)
        recognition._places(connection, b"one", "")
        connection.set_trace_callback(None)
        plans = [row[3] for sql in seen for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}")]
    assert plans
    assert not [plan for plan in plans if plan.startswith("SCAN")]
