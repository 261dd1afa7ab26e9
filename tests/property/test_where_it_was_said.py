"""V15, where it was said: a system message in the middle of a conversation stays at its place.

Generated conversations have system messages anywhere: behind a question, behind an answer, between a call and its
result, several in a row, as the newest message. Every message carries a number, so that the order of what a model sees
can be read from its text. Each check is also run on a planted defect.
"""

from __future__ import annotations

import json
import re
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import Phase, given, settings, strategies as st

from leporello import ContextCompressor, LCMEngine
from leporello.events import CompactionFinished
from leporello.lcm import verify
from leporello.lcm.dag import Coverage
from leporello.messages import (
    Dialect,
    Message,
    Repaired,
    anthropic_request,
    from_anthropic,
    is_system,
    leading_systems,
    repair,
    role_of,
    text_of,
    unread_start,
    violations,
)
from leporello.session import Session
from leporello.session.conversation import Conversation
from leporello.store.sqlite import SQLiteStore
from leporello.testing.manual_executor import ManualExecutor
from leporello.tokens import count_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leporello.engine import ContextEngine

NUMBER = re.compile(r"said-(\d+)\b")
SEEDS = st.integers(0, 2**32 - 1)
FULL = 2_000  # tokens at which a window is folded
WORDS = ("crane", "yard", "port", "error", "src/app.py", "assign", "0x7f3a", "retry", "build", "berth")


class Talk:
    """A conversation that grows by rounds; every message says its number."""

    dialect: Dialect = "openai"

    def __init__(self, seed: int, *, prompt: bool = True) -> None:
        self.random = Random(seed)
        self.number = 0
        self.prompt: list[Message] = [{"role": "system", "content": "Be brief."}] if prompt else []
        self.said: list[Message] = []

    @property
    def messages(self) -> list[Message]:
        return [*self.prompt, *self.said]

    def text(self) -> str:
        self.number += 1
        words = self.random.choice((4, 20, 60))
        return f"said-{self.number} {' '.join(self.random.choices(WORDS, k=words))}"

    def user(self) -> list[Message]:
        return [{"role": "user", "content": self.text()}]

    def systems(self, chance: float = 0.4) -> list[Message]:
        count = self.random.choice((1, 1, 2)) if self.random.random() < chance else 0
        role = self.random.choice(("system", "system", "developer"))
        return [{"role": role, "content": self.text()} for _ in range(count)]

    def answer(self) -> Message:
        return {"role": "assistant", "content": self.text()}

    def calls(self) -> tuple[Message, list[Message]]:
        """Return an answer with calls and their results."""
        ids = [f"call-{self.number}-{n}" for n in range(self.random.choice((1, 1, 2)))]
        function = {"name": "run", "arguments": json.dumps({"command": "make"})}
        calls = [{"id": i, "type": "function", "function": function} for i in ids]
        answer: Message = {"role": "assistant", "content": self.text(), "tool_calls": calls}
        return answer, [{"role": "tool", "tool_call_id": i, "content": self.text()} for i in ids]

    def grow(self) -> None:
        """Add a question, a tool round or an answer, and perhaps system messages behind it."""
        spoke = next((role_of(message) for message in reversed(self.said) if not is_system(message)), "assistant")
        if spoke == "assistant":
            said = self.user()
        elif self.random.random() < 0.5:
            answer, results = self.calls()
            said = [answer, *results]
        else:
            said = [self.answer()]
        self.said += [*said, *self.systems()]


def numbers(message: Message) -> list[int]:
    """Return the numbers of the messages that a message shows; a summary or block shows none."""
    text = text_of(message)
    return [] if "[CONTEXT COMPACTION" in text else [int(found) for found in NUMBER.findall(text)]


def check_order(messages: list[Message]) -> None:
    shown = [number for message in messages for number in numbers(message)]
    assert shown == sorted(set(shown)), "the model sees messages in another order than they were said"


def check_prompt(messages: list[Message], prompt: list[Message]) -> None:
    front = messages[: leading_systems(messages)]
    assert not any(numbers(message) for message in front), "a system message of the middle stands at the front"
    assert all(text_of(message).startswith(text_of(said)) for message, said in zip(front, prompt, strict=True))


def check_roles(said: list[Message], window: list[Message]) -> None:
    roles = {number: role_of(message) for message in said for number in numbers(message)}
    kept = {number: role_of(message) for message in window for number in numbers(message)}
    assert all(roles[number] == role for number, role in kept.items()), "a message has another role"


def check_unread(before: list[Message], after: list[Message]) -> None:
    new = before[unread_start(before) :]
    assert after[len(after) - len(new) :] == new, "what was unread has changed"


def check_folded(said: list[Message], window: list[Message], covered: set[int]) -> None:
    shown = {number for message in window for number in numbers(message)}
    systems = {number for message in said if is_system(message) for number in numbers(message)}
    assert systems <= shown | covered, "a system message is neither at its place nor folded"


def make_engine(kind: str) -> tuple[ContextEngine, Callable[[], set[int]]]:
    """Return an engine, and what tells which messages its summaries or nodes cover by now."""
    if kind == "lcm":
        store = SQLiteStore(None)
        lossless = LCMEngine(4_096, config={"threshold": 0.5}, store=store, executor=ManualExecutor())

        def in_nodes() -> set[int]:
            coverage = Coverage(store.nodes(lossless.conversation))
            rows = store.messages(lossless.conversation)
            return {number for row in rows if row.seq in coverage for number in numbers(row.message)}

        return lossless, in_nodes
    compressor = ContextCompressor(4_096, config={"protect_last_n": 4})
    summarised: set[int] = set()
    summarise = compressor._summariser.summarise

    def noting(request: Any, **options: Any) -> Any:
        summarised.update(number for message in request.messages for number in numbers(message))
        return summarise(request, **options)

    compressor._summariser.summarise = noting  # type: ignore[method-assign]
    return compressor, lambda: summarised


def compact_three_times(kind: str, seed: int) -> None:
    talk = Talk(seed, prompt=seed % 4 != 0)
    engine, covered = make_engine(kind)
    engine.on_event = lambda _: None
    engine.on_session_start(f"seed-{seed}")
    window, read, folds = list(talk.prompt), 0, 0
    for _ in range(300):
        talk.grow()
        window = [*window, *talk.said[read:]]
        read = len(talk.said)
        if count_messages(window) > FULL:
            before = window
            window = engine.compress(before, force=True)  # type: ignore[call-arg]
            check_unread(before, window)
            report = engine.last_compaction
            folds += report is not None and report.status in ("folded", "fallback")
        for dialect in ("openai", "anthropic"):
            assert not violations(window, dialect), violations(window, dialect)[0]
        check_order(window)
        check_prompt(window, talk.prompt)
        check_roles(talk.said, window)
        check_folded(talk.said, window, covered())
        if folds == 3:
            break
    engine.close()
    assert folds == 3


@pytest.mark.parametrize("kind", ["compressor", "lcm"])
@given(seed=SEEDS)
@settings(max_examples=25, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
def test_a_compaction_leaves_system_messages_at_their_place_or_folds_them(kind: str, seed: int) -> None:
    compact_three_times(kind, seed)


def hoisting(messages: list[Any]) -> Repaired:
    """A repair with the planted defect: system messages go to the front."""
    valid = repair(messages).messages
    changed = [*filter(is_system, valid), *(message for message in valid if not is_system(message))]
    return Repaired(messages=changed, changes=())


@pytest.mark.parametrize(("kind", "where"), [("compressor", "compressor.engine"), ("lcm", "lcm.view")])
def test_a_repair_that_moves_system_messages_to_the_front_is_caught(
    kind: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"leporello.{where}.repair", hoisting)
    with pytest.raises(AssertionError, match=r"order|front"):
        compact_three_times(kind, 1)


def test_an_engine_that_cuts_an_unread_system_message_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    compress = ContextCompressor.compress

    def cutting(self: ContextCompressor, messages: list[Message], **options: Any) -> list[Message]:
        result = compress(self, messages, **options)
        return [*result[:-1], {**result[-1], "content": "cut"}] if is_system(result[-1]) else result

    monkeypatch.setattr(ContextCompressor, "compress", cutting)
    with pytest.raises(AssertionError, match="unread"):
        compact_three_times("compressor", 1)


def test_an_engine_that_drops_system_messages_unseen_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def dropping(messages: list[Any]) -> Repaired:
        valid = repair(messages).messages
        front = leading_systems(valid)
        return Repaired(messages=[m for n, m in enumerate(valid) if n < front or not is_system(m)], changes=())

    monkeypatch.setattr("leporello.compressor.engine.repair", dropping)
    with pytest.raises(AssertionError, match="neither at its place nor folded"):
        compact_three_times("compressor", 1)


# sessions


def on_the_wire(request: dict[str, Any]) -> list[Any]:
    """Return a request as a row of what a provider's cache sees: the system prompt, then roles and blocks."""
    row: list[Any] = [["system", block] for block in request.get("system", ())]
    for message in request["messages"]:
        content = message["content"]
        blocks = content if isinstance(content, list) else [content]
        row += [[message["role"], block] for block in blocks]
        row += [[message["role"], call] for call in message.get("tool_calls", ())]
    return row


def check_request(request: dict[str, Any], before: list[Any] | None, talk: Talk) -> list[Any]:
    """Check one request, and that it begins like the one before; returns it as a row."""
    row = on_the_wire(request)
    if before is not None:
        assert row[: len(before)] == before, "what was sent before has moved"
    if talk.dialect == "anthropic":
        messages = from_anthropic(request)
        roles = [message["role"] for message in request["messages"]]
        assert roles == ["user", "assistant"] * (len(roles) // 2) + ["user"] * (len(roles) % 2)
        systems = {text_of(message) for message in talk.said if is_system(message)}
        shown = [block["text"] for role, block in row if role == "user" and isinstance(block, dict) and "text" in block]
        assert not systems.intersection(shown), "a system message is not marked as one"
    else:
        messages = request["messages"]
        check_roles(talk.said, messages)
    assert not violations(messages, talk.dialect), violations(messages, talk.dialect)[0]
    check_order(messages)
    check_prompt(messages, talk.prompt)
    return row


def requests_of(talk: Talk, session: Session) -> Iterator[dict[str, Any]]:
    """Speak with a session, and yield its requests."""
    for _ in range(20):
        said = [*talk.user(), *talk.systems()]
        session.add(*said)
        talk.said += said
        yield session.request()
        for _ in range(talk.random.choice((0, 1, 2))):
            answer, results = talk.calls()
            session.record(completion(answer))
            at = talk.random.choice((0, 1, len(results)))  # also between the calls and their results
            said = [*results[:at], *talk.systems(0.4), *results[at:]]
            session.add(*said)
            talk.said += [answer, *said]
            yield session.request()
        answer, behind = talk.answer(), talk.systems(0.4)
        session.record(completion(answer))
        session.add(*behind)
        talk.said += [answer, *behind]


def completion(message: Message) -> dict[str, Any]:
    return {"choices": [{"message": message, "finish_reason": "stop"}], "usage": None}


def speak(kind: str, dialect: Dialect, seed: int, *, make_store: Callable[[None], SQLiteStore] = SQLiteStore) -> int:
    """Lead a conversation, resume it, and check every request and what is stored; returns how often it was folded."""
    talk, store = Talk(seed), make_store(None)
    talk.dialect = dialect
    events: list[Any] = []
    options: dict[str, Any] = {"dialect": dialect, "context_length": 3_000, "model": "m", "on_event": events.append}

    def folded() -> bool:
        found = any(isinstance(one, CompactionFinished) and one.status in ("folded", "fallback") for one in events)
        events.clear()
        return found

    folds, row = 0, None
    with Session.open("talk", engine=kind, store=store, config={}, system="Be brief.", **options) as session:
        for request in requests_of(talk, session):
            moved = folded()
            folds += moved
            row = check_request(request, None if moved else row, talk)
    check_stored(store, talk)
    with Session.open("talk", engine=kind, store=store, config={}, system="Be brief.", **options) as session:
        talk.said += (said := talk.user())
        session.add(*said)
        request = session.request()
        check_request(request, None if folded() else row, talk)
    check_stored(store, talk)
    return folds


def check_stored(store: SQLiteStore, talk: Talk) -> None:
    """Check that a store and an import of its export have every message in its order."""
    assert [row.message for row in store.messages("talk")] == talk.said, "stored in another order"
    other = SQLiteStore(None)
    key = other.import_lines(store.export("talk"))
    assert [row.message for row in other.messages(key)] == talk.said, "imported in another order"
    for place, name in ((store, "talk"), (other, key)):
        assert [row.message for row in place.messages(name, system=True) if row.system] == talk.prompt
        assert not verify(place, name)
    other.close()


SESSIONS = [("compressor", "openai"), ("compressor", "anthropic"), ("lcm", "openai"), ("lcm", "anthropic")]


@pytest.mark.parametrize(("kind", "dialect"), SESSIONS)
@given(seed=SEEDS)
@settings(max_examples=5, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
def test_a_session_moves_nothing_and_its_store_keeps_every_place(kind: str, dialect: Dialect, seed: int) -> None:
    assert speak(kind, dialect, seed) >= 2


class Hoisting(SQLiteStore):
    """A store with the planted defect: a system message has no place of its own."""

    def append(self, conversation: str, messages: Any, **options: Any) -> tuple[str, ...]:
        ids: list[str] = []
        for message in messages:
            prompt = {**options, "prompt": is_system(message), "request": None}
            ids += super().append(conversation, [message], **prompt)
        return tuple(ids)


def test_a_store_without_places_for_system_messages_is_caught() -> None:
    with pytest.raises(AssertionError, match="stored in another order"):
        speak("compressor", "openai", 1, make_store=Hoisting)


@pytest.mark.parametrize(
    ("dialect", "where"), [("openai", "compressor.engine.repair"), ("anthropic", "compressor.engine.repair")]
)
def test_a_session_whose_engine_moves_system_messages_is_caught(
    dialect: Dialect, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"leporello.{where}", hoisting)
    with pytest.raises(AssertionError, match=r"order|front|neither"):
        speak("compressor", dialect, 1)


def test_a_converter_that_moves_system_messages_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def moving(messages: list[Message]) -> dict[str, Any]:
        return anthropic_request(hoisting(messages).messages)

    monkeypatch.setattr("leporello.session.converters.anthropic_request", moving)
    with pytest.raises((AssertionError, KeyError)):
        speak("compressor", "anthropic", 1)


def test_a_converter_that_does_not_mark_system_messages_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leporello.messages.convert.SYSTEM_TEXT", "{}")
    with pytest.raises(AssertionError, match="not marked"):
        speak("compressor", "anthropic", 1)


def test_a_window_that_moves_between_two_requests_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    repair = Conversation.repair

    def moving(self: Conversation, why: str = "repaired") -> None:
        """Let the newest system message stand at the end, whatever was said since."""
        window = self.window
        found = [at for at, line in enumerate(window.entries) if is_system(line.message) and at >= window.systems()]
        if found:
            at = found[-1]
            window.replace(at, [*window.entries[at + 1 :], window.entries[at]], at)
        repair(self, why)

    monkeypatch.setattr(Conversation, "repair", moving)
    with pytest.raises(AssertionError, match=r"moved|order|roles"):
        speak("compressor", "openai", 1)
