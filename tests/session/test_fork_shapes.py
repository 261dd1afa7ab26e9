"""What people do to a conversation besides going on with it, in a window that was folded before: each is a fork.

The interface that these tests are written for:

    session.fork(before=message_id, head=True) -> Session
        A session on a new branch of the same conversation. Its path ends before that message, or with the newest one
        when none is named. The branch is the head, which `Session.open` resumes, unless `head` is False.
    session.branches() -> list[BranchInfo]
        The branches of the conversation, oldest first: `id`, `parent` (None for the first), `fork` (the message behind
        which it was forked), `tip` (the id of its newest message), `head`, and `messages` (how many its path has).
    session.undo()
        As before; the path goes on from before the newest message of the user. Nothing is superseded: what was taken
        back stays on the branch that is left, and several in a row begin one branch.
    session.pin(message_id)
        A pinned message stays in the window word by word, whatever is folded.
    store.messages(conversation)
        As before: the path of the head.

No fork may call the summariser, move the prefix that the provider has cached, or copy a row.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from leporello import ContextCompressor
from leporello.errors import SessionError, StoreError
from leporello.lcm.verify import verify
from leporello.llm.scripted import ScriptedLLM
from leporello.session import Session
from leporello.session.saved_branch import load
from leporello.store import FOLD, Branch, JournalRow, StoredWindow
from leporello.store.sqlite import SQLiteStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leporello.messages import Message
    from leporello.store import BranchInfo

pytestmark = pytest.mark.slow

ENGINES = ("compressor", "lcm")
TURNS = 38
WINDOW = 16_000
ROOM = 3  # turns that follow before the next fold, in both engines
SUMMARY = "## Goal\nThe harbour is put in order.\n\n## Progress\n- Containers were counted at every berth."
SYSTEM = "You look after a harbour."


class Talk:
    """A conversation of many turns that was folded, and everything that a fork might cost."""

    def __init__(self, folder: Path, engine: str, *, background: bool = False) -> None:
        self.file = folder / "store.db"
        self.engine = engine
        self.background = background
        self.answered: dict[int, list[str]] = {}
        self.llm = ScriptedLLM(SUMMARY)
        self._numbers = count(1)
        self._forks: list[Session] = []
        self.session = self.open()

    def open(self, name: str = "talk") -> Session:
        """Open the conversation at its head."""
        return Session.open(
            name,
            engine=self.engine,
            llm=self.llm,
            model="m",
            context_length=WINDOW,
            store=self.file,
            system=SYSTEM,
            config={"lcm": {"background": self.background}},
            on_event=lambda _: None,
        )

    def fork(self, session: Session, **where: Any) -> Session:
        """Fork a session; the fork is closed with the conversation."""
        self._forks.append(session.fork(**where))
        return self._forks[-1]

    def close(self) -> None:
        """Close everything that was opened."""
        for session in (*self._forks, self.session):
            session.close()

    def ask(self, session: Session, text: str = "") -> list[Message]:
        """Ask a question and record its answer; returns what was sent."""
        number = next(self._numbers)
        where = " ".join(f"container {100 * number + berth} stands at berth {berth}" for berth in range(22))
        session.add({"role": "user", "content": text or f"question {number}: {where}"})
        return self.answer(session)

    def answer(self, session: Session) -> list[Message]:
        """Send the request and record an answer; returns what was sent."""
        number = next(self._numbers)
        sent: list[Message] = session.request()["messages"]
        cranes = " ".join(f"crane {100 * number + crane} is free" for crane in range(40))
        text = f"answer {number}: {cranes}"
        session.record({"choices": [{"message": {"role": "assistant", "content": text}}]})
        self.answered.setdefault(session.branch, []).append(text)
        return sent

    def newest(self, session: Session, role: str) -> str:
        """Return the id of the newest message of a role on the path of the head."""
        rows = session.store.messages(session.id, newest_first=True)
        return next(row.id for row in rows if row.role == role)

    def newest_said(self, session: Session) -> str:
        """Return the newest words of the user on the path of a session."""
        rows = session.store.messages(session.id, branch=session.branch, newest_first=True)
        return next((row.message["content"] for row in rows if row.role == "user"), "")

    def rows(self) -> int:
        """Return how many messages are stored, whatever became of them."""
        store: Any = self.session.store
        with store._db.read() as connection:
            return int(connection.execute("SELECT count(*) FROM messages").fetchone()[0])


@pytest.fixture(params=ENGINES)
def talk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Talk]:
    """A conversation of 36 turns."""
    made = Talk(tmp_path, request.param)
    for _ in range(TURNS):
        made.ask(made.session)
    assert made.llm.calls, "nothing was folded"
    yield made
    made.close()


def regenerate(talk: Talk, session: Session) -> tuple[Session, list[Message]]:
    """Have the last question answered again."""
    branch = talk.fork(session, before=talk.newest(session, "assistant"))
    return branch, talk.answer(branch)


def edit(talk: Talk, session: Session) -> tuple[Session, list[Message]]:
    """Ask the last question in other words."""
    branch = talk.fork(session, before=talk.newest(session, "user"))
    return branch, talk.ask(branch, "And which berth is free?")


def aside(talk: Talk, session: Session) -> tuple[Session, list[Message]]:
    """Ask something about the whole conversation that is no part of it."""
    branch = talk.fork(session, head=False)
    return session, talk.ask(branch, "Suggest a title for this conversation.")


def undo_three(talk: Talk, session: Session) -> tuple[Session, list[Message]]:
    """Take back three turns and say something else."""
    for _ in range(3):
        session.undo()
    return session, talk.ask(session, "Something else: who is on duty?")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One thing that people do: how much of the path's end it leaves, and how many messages are said by it."""

    do: Callable[[Talk, Session], tuple[Session, list[Message]]]
    leaves: int
    says: int
    head: bool = True


SHAPES = {
    "regenerate": Shape(do=regenerate, leaves=1, says=1),
    "edit the last question": Shape(do=edit, leaves=2, says=2),
    "a side question": Shape(do=aside, leaves=0, says=2, head=False),
    "undo three turns": Shape(do=undo_three, leaves=6, says=2),
}


def forked(talk: Talk, session: Session, shape: Shape) -> Session:
    """Do something to a conversation, and check what it cost; returns the session that goes on."""
    before, calls, rows = session.window, len(talk.llm.calls), talk.rows()
    goes_on, sent = shape.do(talk, session)
    shared = before[: len(before) - shape.leaves]
    assert len(talk.llm.calls) == calls, "the summariser was called"
    assert sent[: len(shared)] == shared, "the cached prefix moved"
    assert len(sent) == len(shared) + shape.says - 1
    assert talk.rows() == rows + shape.says, "messages were copied"
    return goes_on


def test_going_on_calls_no_summariser(talk: Talk) -> None:
    """The base of all others: as many turns as they add need no fold."""
    calls = len(talk.llm.calls)
    for _ in range(ROOM):
        talk.ask(talk.session)
    assert len(talk.llm.calls) == calls


@pytest.mark.parametrize(
    "shape",
    [pytest.param(shape, id=name) for name, shape in SHAPES.items()],
)
def test_a_fork_costs_only_what_is_said(talk: Talk, shape: Shape) -> None:
    forked(talk, talk.session, shape)


def said_on(session: Session) -> list[BranchInfo]:
    """Return the branches on which something was said."""
    return [branch for branch in session.branches() if not branch.is_empty]


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_the_branch_that_goes_on_is_resumed(talk: Talk, shape: Shape) -> None:
    goes_on = forked(talk, talk.session, shape)
    first, second = said_on(goes_on)
    assert (first.parent, second.parent) == (None, first.id)
    assert (first.head, second.head) == (not shape.head, shape.head)
    head = second if shape.head else first
    added = shape.says - shape.leaves if shape.head else 0
    assert (head.tip, head.messages) == (talk.newest(goes_on, "assistant"), 2 * TURNS + added)
    window = goes_on.window
    goes_on.close()
    with talk.open() as resumed:
        assert resumed.window == window


def test_all_of_them_one_after_the_other_and_then_on(talk: Talk) -> None:
    session, calls, rows = talk.session, len(talk.llm.calls), talk.rows()
    order = ("regenerate", "regenerate", "edit the last question", "a side question", "undo three turns")
    shapes = [SHAPES[name] for name in order]
    for shape in shapes:
        session = forked(talk, session, shape)
    for _ in range(ROOM):
        window = session.window
        assert talk.ask(session)[: len(window)] == window
    assert len(talk.llm.calls) == calls
    assert talk.rows() == rows + sum(shape.says for shape in shapes) + 2 * ROOM
    branches = said_on(session)
    assert len(branches) == 1 + len(shapes)
    assert [branch.tip for branch in branches if branch.head] == [talk.newest(session, "assistant")]
    assert not any(row.replaced for row in talk.session.store.messages("talk", superseded=True))


def test_the_branch_that_was_left_goes_on_too(talk: Talk) -> None:
    """Its window is as it was, whatever is said on the other one, and each has its own words in the store."""
    window = talk.session.window
    other, _ = regenerate(talk, talk.session)
    talk.ask(other, "said on the fork")
    assert talk.session.window == window
    assert talk.ask(talk.session, "said on the trunk")[: len(window)] == window
    talk.ask(other, "said on the fork again")
    trunk, fork = ([*other.store.messages("talk", branch=branch)] for branch in (1, 2))
    assert [row.message["content"] for row in fork if row.role == "user"][-2:] == [
        "said on the fork",
        "said on the fork again",
    ]
    assert [row.message["content"] for row in trunk if row.role == "user"][-1] == "said on the trunk"
    assert (talk.session.branch, other.branch) == (1, 2)


RULE: Message = {"role": "user", "content": "Never move container 4711."}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_pinned_message_survives_every_fold(engine: str, tmp_path: Path) -> None:
    talk = Talk(tmp_path, engine)
    with talk.session as session:
        for _ in range(5):
            talk.ask(session)
        talk.ask(session, RULE["content"])
        pinned = talk.newest(session, "user")
        session.pin(pinned)
        for _ in range(TURNS):
            talk.ask(session)
        assert talk.llm.calls, "nothing was folded"
        assert session.window.count(RULE) == 1
        assert verify(session.store, "talk") == []
        session.pin(pinned, pinned=False)
        session.compress()
        for _ in range(TURNS):
            talk.ask(session)
        assert RULE not in session.window


@pytest.mark.parametrize("engine", ENGINES)
def test_a_pinned_message_is_stored_with_the_fold(engine: str, tmp_path: Path) -> None:
    """It is in the window of a conversation that is opened again before another request was sent."""
    talk = Talk(tmp_path, engine)
    with talk.session as session:
        for _ in range(5):
            talk.ask(session)
        talk.ask(session, RULE["content"])
        session.pin(talk.newest(session, "user"))
        for _ in range(9):
            talk.ask(session)
        folds = len(session.store.journal("talk", reason=FOLD))
        session.compress()
        assert len(session.store.journal("talk", reason=FOLD)) == folds + 1
    with talk.open() as resumed:
        assert resumed.window.count(RULE) == 1


@pytest.mark.parametrize("engine", ENGINES)
def test_a_message_that_is_folded_comes_back_when_it_is_pinned(engine: str, tmp_path: Path) -> None:
    talk = Talk(tmp_path, engine)
    with talk.session as session:
        for _ in range(5):
            talk.ask(session)
        talk.ask(session, RULE["content"])
        pinned = talk.newest(session, "user")
        for _ in range(TURNS):
            talk.ask(session)
        assert RULE not in session.window
        session.pin(pinned)
        for _ in range(TURNS):
            talk.ask(session)
        assert session.window.count(RULE) == 1
        window = session.window
    with talk.open() as resumed:
        assert resumed.window == window


def test_calls_and_their_results_cannot_be_pinned(talk: Talk) -> None:
    with pytest.raises(SessionError, match="no message 'm9999'"):
        talk.session.pin("m9999")
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    talk.session.add({"role": "user", "content": "look"})
    talk.session.request()
    message: Message = {"role": "assistant", "content": "", "tool_calls": [call]}
    talk.session.record({"choices": [{"message": message}]})
    with pytest.raises(SessionError, match="not a call"):
        talk.session.pin(talk.newest(talk.session, "assistant"))


def test_both_branches_fold_for_themselves_and_every_check_is_clean(talk: Talk) -> None:
    """A fork shares what was folded before it; what is folded later is each one's own."""
    other = talk.fork(talk.session, before=talk.newest(talk.session, "user"))
    for _ in range(TURNS):
        talk.ask(other)
        talk.ask(talk.session)
    assert verify(other.store, "talk") == []
    first, second = (session.window for session in (talk.session, other))
    assert first != second
    for session in (talk.session, other):
        texts = {str(message["content"])[:14] for message in session.window}
        assert talk.answered[session.branch][-1][:14] in texts


def test_a_node_of_another_branch_is_found(tmp_path: Path) -> None:
    """Planted: the window of a fork shows a node over what was said on the branch that it left."""
    talk = Talk(tmp_path, "lcm")
    for _ in range(TURNS):
        talk.ask(talk.session)
    other = talk.fork(talk.session, before=talk.newest(talk.session, "user"))
    for _ in range(TURNS):
        talk.ask(talk.session)
    for _ in range(TURNS):
        talk.ask(other)
    store = other.store
    assert verify(store, "talk") == []
    strange = [node for node in store.nodes("talk", branch=1) if node not in store.nodes("talk", branch=2)]
    window = store.window("talk", branch=2)
    planted = StoredWindow(version=window.version, items=({"n": strange[-1].id, "role": "user"}, *window.items))
    store.save_window("talk", planted, JournalRow(reason="planted", keep=0, added=()), branch=2)
    assert any("another branch" in finding.problem for finding in verify(store, "talk"))
    talk.close()


def test_a_fold_in_the_background_while_a_fork_happens(tmp_path: Path) -> None:
    """What the background writes for one branch is used by the other where both have the messages."""
    talk = Talk(tmp_path, "lcm", background=True)
    for number in range(TURNS):
        talk.ask(talk.session)
        if number % 9 == 8:
            side = talk.fork(talk.session, head=False)
            talk.ask(side, f"side question {number}")
    assert len(talk.session.branches()) == 1 + TURNS // 9
    talk.close()
    with talk.open() as resumed:
        assert verify(resumed.store, "talk") == []
        assert resumed.branch == 1


def test_a_session_with_an_engine_of_its_own_is_not_forked(tmp_path: Path) -> None:
    """Two conversations in one engine would be mixed up."""
    with (
        Session.open("talk", engine=ContextCompressor(WINDOW), store=tmp_path / "s.db", model="m") as session,
        pytest.raises(SessionError, match="name the engine"),
    ):
        session.fork()


def test_a_fork_that_is_refused_leaves_no_branch(tmp_path: Path) -> None:
    with Session.open("talk", engine=ContextCompressor(WINDOW), store=tmp_path / "s.db", model="m") as session:
        session.add({"role": "user", "content": "hello"})
        with pytest.raises(SessionError):
            session.fork()
        assert [branch.id for branch in session.branches()] == [1]


def test_a_fork_counts_its_own_request(talk: Talk) -> None:
    """The count of the newest request of the conversation may be that of another branch."""
    session = talk.session
    aside = talk.fork(session, head=False)
    aside.add({"role": "user", "content": "Suggest a title."})
    aside.request()
    message: Message = {"role": "assistant", "content": "Harbour"}
    usage = {"prompt_tokens": 123_456, "completion_tokens": 3, "total_tokens": 123_459}
    aside.record({"choices": [{"message": message}], "usage": usage})
    other = talk.fork(session)
    assert other.usage().tokens < WINDOW
    assert talk.fork(aside).usage().tokens > WINDOW / 8


def test_a_fork_right_after_a_fold_that_left_little_room_does_not_fold_again(talk: Talk) -> None:
    """What an engine noted about its last fold goes with the fork."""
    other = talk.fork(talk.session)
    talk.session.engine.should_compress(0)
    assert vars(other.engine)["_fires_at"] == vars(talk.session.engine)["_fires_at"]
    vars(talk.session.engine)["_fires_at"] = 10 * WINDOW
    calls = len(talk.llm.calls)
    later = talk.fork(talk.session)
    for _ in range(3 * ROOM):
        talk.ask(later)
    assert len(talk.llm.calls) == calls


class Flaky(SQLiteStore):
    """A store that can be away."""

    down = False

    def append(self, *args: Any, **more: Any) -> tuple[str, ...]:
        self._check()
        return super().append(*args, **more)

    def fork(self, *args: Any, **more: Any) -> int:
        self._check()
        return super().fork(*args, **more)

    def get(self, *args: Any, **more: Any) -> Any:
        self._check()
        return super().get(*args, **more)

    def _check(self) -> None:
        if self.down:
            raise StoreError("it is away.")


@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_said_after_an_undo_without_the_store_stands_on_its_branch(engine: str) -> None:
    store = Flaky()
    with Session.open("t", engine=engine, store=store, model="m", llm=None, on_event=lambda _: None) as session:
        for number in (1, 2, 3):
            if number == 3:
                store.down = True
                session.undo()
                store.down = False
            session.add({"role": "user", "content": f"question {number}"})
            session.request()
            session.record({"choices": [{"message": {"role": "assistant", "content": f"answer {number}"}}]})
        path = [row.message["content"] for row in store.messages("t")]
        assert path == ["question 1", "answer 1", "question 3", "answer 3"]
        assert len(session.branches()) == 2


def test_a_fork_does_not_move_the_branch_of_another_session(talk: Talk) -> None:
    ids = [row.id for row in talk.session.store.messages("talk")]
    first = talk.fork(talk.session)
    window = first.window
    second = talk.fork(first, before=ids[2])
    assert (first.branch, second.branch) == (2, 3)
    assert len(list(first.store.messages("talk", branch=2))) == len(ids)
    assert first.window == window


@pytest.mark.parametrize("engine", ENGINES)
def test_undo_down_to_the_first_turn_never_shows_a_summary_with_its_originals(engine: str, tmp_path: Path) -> None:
    talk = Talk(tmp_path, engine)
    for _ in range(2 * TURNS):
        talk.ask(talk.session)
    most = talk.session.usage().tokens
    while talk.session.undo():
        assert talk.session.usage().tokens <= max(most, WINDOW)
        shown = [message["content"] for message in talk.session.window if message["role"] == "user"]
        assert not shown or talk.newest_said(talk.session) in shown
    talk.close()


@pytest.mark.parametrize("engine", ENGINES)
def test_the_answer_that_is_regenerated_is_not_in_its_request(engine: str, tmp_path: Path) -> None:
    """Also where a fold has just summarised or shortened it, and the question stands there word by word."""
    talk = Talk(tmp_path, engine)
    for number in range(TURNS // 2):
        talk.ask(talk.session)
        if number > 3:
            talk.session.compress()
        path = list(talk.session.store.messages("talk"))
        aside = talk.fork(talk.session, before=path[-1].id, head=False)
        sent = aside.request()["messages"]
        assert sent[-1]["content"] == path[-2].message["content"]
        assert not any(path[-1].message["content"][:12] in str(message["content"]) for message in sent)
    talk.close()


def test_a_fold_leaves_the_turn_of_another_process_on_the_path(talk: Talk) -> None:
    with talk.open() as other:
        talk.ask(other, "said by another process")
        talk.session.compress()
        assert talk.session.store.head("talk") == 1
        assert "said by another process" in [row.message["content"] for row in other.store.messages("talk")]


def test_a_window_of_which_messages_were_deleted_knows_its_other_ones(talk: Talk) -> None:
    """Each line that is left stands for its own message, on the branch and on a fork of it."""
    store = talk.session.store
    shown = [item["m"] for item in store.window("talk").items if "m" in item and item.get("as", True) is not None]
    row = store.get([shown[-6]])[shown[-6]]
    store.delete("talk", first=row.seq, last=row.seq + 1)
    fork = talk.fork(talk.session, head=False)
    for line in [
        *load(Branch(store, "talk", number=1)).entries,
        *load(Branch(store, "talk", number=fork.branch)).entries,
    ]:
        if "m" in line.stored_as[0] and "as" not in line.stored_as[0]:
            assert [one.message for one in line.sources] == [line.message]


def test_a_stand_in_for_a_reply_is_no_part_of_a_fork(tmp_path: Path) -> None:
    talk = Talk(tmp_path, "compressor")
    talk.session.add({"role": "user", "content": "first"})
    talk.session.add({"role": "user", "content": "second"})
    talk.answer(talk.session)
    second = next(row.id for row in talk.session.store.messages("talk") if row.message["content"] == "second")
    fork = talk.fork(talk.session, before=second)
    assert not fork.done
    assert fork.request()["messages"][-1]["content"] == "first"
    talk.close()


def test_a_third_partys_engine_goes_on_across_forks(tmp_path: Path) -> None:
    folder = Path(__file__).parents[2] / "examples" / "keep_last_engine"
    shutil.copytree(folder, tmp_path / "plugins" / "context_engine" / "keep_last_engine")
    home = {"LEPORELLO_HOME": str(tmp_path)}
    with pytest.MonkeyPatch.context() as patch:
        for key, value in home.items():
            patch.setenv(key, value)
        talk = Talk(tmp_path, "keep_last_engine")
        for _ in range(TURNS):
            talk.ask(talk.session)
        session = talk.session
        for name in ("regenerate", "edit the last question", "undo three turns"):
            session, sent = SHAPES[name].do(talk, session)
            assert sent[-1]["role"] == "user"
        for _ in range(TURNS):
            talk.ask(session)
        assert type(session.engine).__name__ == type(talk.session.engine).__name__
        assert len(said_on(session)) == 4
        talk.close()


def test_a_fork_that_copies_would_be_noticed(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The copy of a path is stored once more, and it is folded once more."""

    def copying(session: Session, *, before: str | None = None, head: bool = True) -> Session:
        copy = talk.open("copy")
        for row in session.store.messages(session.id):
            if row.id == before:
                break
            copy.add(row.message)
        return copy

    monkeypatch.setattr(Session, "fork", copying, raising=False)
    with pytest.raises(AssertionError, match="the summariser was called"):
        forked(talk, talk.session, SHAPES["regenerate"])
    with pytest.raises(AssertionError, match="messages were copied"):
        forked(talk, talk.session, Shape(do=without_fold, leaves=1, says=1))


def without_fold(talk: Talk, session: Session) -> tuple[Session, list[Message]]:
    """Copy a path, and show what a fork would show without asking for it."""
    branch = talk.fork(session, before=talk.newest(session, "assistant"))
    return branch, session.window[:-1]
