"""A host that adds, edits, undoes, clears, drops, forgets, deletes and restarts, in any order: the store keeps up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from tests.fixtures.databases import SOAK

from leporello.store.codec import verbatim
from leporello.store.relational import messages
from leporello.store.relational.messages import MOST_TRIED
from leporello.store.sqlite import SQLiteStore

if TYPE_CHECKING:
    from leporello.messages import Message
    from leporello.store import Ingested

DATABASES = SOAK

pytestmark = pytest.mark.slow

CLEARED = "[cleared]"


class Host(RuleBasedStateMachine):
    """The host's list beside the store; every text is new, so that each step has one right outcome."""

    def __init__(self) -> None:
        super().__init__()
        self.store = SQLiteStore()
        self.live: list[Message] = []  # what the live history must be, as first seen
        self.listed: list[Message] = []  # what the host has, perhaps shortened
        self.entered: set[bytes] = set()
        self.deleted: set[bytes] = set()
        self.count = 0
        self.edited = False
        self.before: tuple[list[Message], list[Message]] | None = None  # live and listed, one root ago

    def _new(self, kind: str) -> Message:
        self.count += 1
        text = f"text {self.count} " + "x" * (self.count % 5 * 700)
        if kind == "tool":
            return {"role": "tool", "tool_call_id": f"call_{self.count}", "content": text + " longer than cleared"}
        return {"role": kind, "content": text}

    def _hand_over(self, *, full: bool) -> None:
        self.store.ingest("c", self.listed, full=full)

    @rule(kinds=st.lists(st.sampled_from(["user", "assistant", "tool"]), min_size=1, max_size=6), full=st.booleans())
    def add(self, kinds: list[str], full: bool) -> None:
        new = [self._new(kind) for kind in kinds]
        self.live += new
        self.listed += new
        self._hand_over(full=full)

    @rule(kinds=st.lists(st.sampled_from(["user", "tool"]), min_size=1, max_size=4))
    def append(self, kinds: list[str]) -> None:
        new = [self._new(kind) for kind in kinds]
        self.live += new
        self.listed += new
        self.store.append("c", new)

    @rule(full=st.booleans())
    def again(self, full: bool) -> None:
        self._hand_over(full=full)

    @rule(share=st.floats(0, 1))
    def edit(self, share: float) -> None:
        dropped = len(self.live) > len(self.listed)  # then nobody can tell what a first message that is new replaces
        plain = [n for n, m in enumerate(self.listed) if m["role"] != "tool" and not (dropped and n == 0)]
        if plain and len(self.listed) > 1:  # a list that shares nothing with the history is a new beginning
            self._hand_over(full=False)  # what was only appended says too little about the list of its host
            index = plain[int(share * (len(plain) - 1))]
            self.edited = True
            edited = self._new(self.listed[index]["role"])
            self.live[len(self.live) - len(self.listed) + index] = edited
            self.listed[index] = edited
            branches = len(self.store.branches("c"))
            self._hand_over(full=True)
            if len(self.store.branches("c")) > branches:  # before a fork: what follows is stored again as it is listed
                self.live[len(self.live) - len(self.listed) + index :] = self.listed[index:]

    @rule(count=st.integers(1, 5), full=st.booleans())
    def undo_and_go_on(self, count: int, full: bool) -> None:
        if count < len(self.listed):
            self._hand_over(full=False)  # what was only appended says too little about the list of its host
            del self.live[-count:]
            del self.listed[-count:]
            self.add(["user"], full)

    @rule(full=st.booleans())
    def clear(self, full: bool) -> None:
        self.listed = [{**m, "content": CLEARED} if m["role"] == "tool" else m for m in self.listed]
        self._hand_over(full=full)

    @rule(count=st.integers(1, 8))
    def drop_head(self, count: int) -> None:
        if count < len(self.listed):
            del self.listed[:count]
            self._hand_over(full=False)

    @rule()
    def restart(self) -> None:
        self.store._readings.clear()
        self._hand_over(full=False)

    @rule(kinds=st.lists(st.sampled_from(["user", "assistant"]), min_size=1, max_size=3), full=st.booleans())
    def forget_and_begin_anew(self, kinds: list[str], full: bool) -> None:
        """A root of its own: the history of the head is what the host says from now on."""
        self.store._readings.clear()
        self.before = (self.live, self.listed) if self.listed else None
        self.live, self.listed = [], []
        self.add(kinds, full)

    @rule(full=st.booleans())
    def go_back_to_the_root_before(self, full: bool) -> None:
        """A host that has the list of the root before goes on there, and nothing of it is stored again."""
        if self.before and len(self.store.branches("c")) < MOST_TRIED:
            before, self.before = self.before, (self.live, self.listed)
            self.live, self.listed = before
            self.add(["user"], full)

    @rule(first=st.integers(1, 40), length=st.integers(0, 3))
    def delete(self, first: int, length: int) -> None:
        """Delete messages that the host no longer has, as retention does."""
        held = {verbatim(m) for m in self.live[len(self.live) - len(self.listed) :]}
        rows = list(self.store.messages("c", first=first, last=first + length, superseded=True))
        if rows and all(verbatim(row.message) not in held for row in rows):
            ids = {row.id for row in rows}
            live = [row.message for row in self.store.messages("c") if row.id not in ids]
            left = {verbatim(m.message) for m in self.store.messages("c", superseded=True) if m.id not in ids}
            self.store.delete("c", first=first, last=first + length)
            self.live, self.before = live, None
            self.deleted |= {verbatim(row.message) for row in rows} - left  # equal words may stand on another branch

    @invariant()
    def the_live_history_is_the_hosts(self) -> None:
        assert [m.message for m in self.store.messages("c")] == self.live

    @invariant()
    def everything_that_entered_is_there(self) -> None:
        self.entered |= {verbatim(m) for m in self.live}
        kept = [verbatim(m.message) for m in self.store.messages("c", superseded=True)]
        assert set(kept) == self.entered - self.deleted
        assert self.edited or len(kept) == len(set(kept))  # an edit before a fork stores what follows it again

    @invariant()
    def every_check_is_clean(self) -> None:
        assert self.store.check_chain("c") == []
        assert self.store.check_index() == []
        assert self.store.check_file() == []


@pytest.mark.slow
def test_whatever_a_host_does_its_history_is_the_stores() -> None:
    run_state_machine_as_test(Host, settings=settings(max_examples=25, stateful_step_count=25, deadline=None))


class Careless(SQLiteStore):
    """A store with a planted defect: it takes a message that was edited for one that it knows."""

    def ingest(self, conversation: str, messages: Any, *, owner: str = "", full: bool = False, **more: Any) -> Ingested:
        known = [m.message for m in self.messages(conversation)]
        if len(known) == len(messages):
            messages = known
        return super().ingest(conversation, messages, owner=owner, full=full, **more)


def test_the_machine_catches_a_careless_store() -> None:
    class CarelessHost(Host):
        def __init__(self) -> None:
            super().__init__()
            self.store = Careless()

    with pytest.raises(AssertionError):
        run_state_machine_as_test(CarelessHost, settings=QUIET)


QUIET = settings(max_examples=300, deadline=None, database=None, phases=[Phase.generate])


@pytest.mark.parametrize(
    ("name", "defect"),
    [
        ("begin_root", lambda _, found, __: found.head),  # a new root stands behind the head
        ("newest_branches", lambda *_: []),  # an older root is not looked for, and stored again
    ],
)
def test_the_machine_catches_a_store_that_mixes_roots(monkeypatch: pytest.MonkeyPatch, name: str, defect: Any) -> None:
    monkeypatch.setattr(messages, name, defect)
    with pytest.raises(AssertionError):
        run_state_machine_as_test(Host, settings=QUIET)
