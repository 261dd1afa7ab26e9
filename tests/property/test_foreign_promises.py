"""A session keeps its promises whatever a third party's engine makes of the list.

The engine drops, moves, repeats, writes, shortens and joins messages at random. After every fold the window is valid in
both dialects (V1), holds the newest message of the user and none in his name behind it (V2), is smaller if the result
was used (V3), and the store has everything (V5). What nobody has read yet is as it was (V13).
"""

from __future__ import annotations

import os
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, example, given, settings, strategies as st

from leporello import ContextEngine
from leporello.messages import copied, is_system, role_of, text_of, violations
from leporello.session import Session, acceptance, result_repair
from leporello.session.result_repair import RepairedResult
from leporello.testing.conversations import conversation
from leporello.tokens import count_messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello.engine import CompactionReport
    from leporello.messages import Message

EXAMPLES = 2_000 if os.environ.get("LEPORELLO_SOAK") else 60
ROLES = ("user", "assistant", "system", "developer", "tool", "critic", "")
WRITTEN = "The engine wrote this."


def _drop(random: Random, messages: list[Message]) -> None:
    start = random.randrange(len(messages))
    del messages[start : start + random.randint(1, len(messages))]


def _move(random: Random, messages: list[Message]) -> None:
    messages.insert(random.randrange(len(messages)), messages.pop(random.randrange(len(messages))))


def _repeat(random: Random, messages: list[Message]) -> None:
    messages.insert(random.randrange(len(messages) + 1), copied(random.choice(messages)))


def _write(random: Random, messages: list[Message]) -> None:
    content = random.choice((WRITTEN, [{"type": "text", "text": WRITTEN}], "", None))
    messages.insert(random.randrange(len(messages) + 1), {"role": random.choice(ROLES), "content": content})


def _shorten(random: Random, messages: list[Message]) -> None:
    message = random.choice(messages)
    message["content"] = text_of(message)[: random.randrange(20)]


def _join(random: Random, messages: list[Message]) -> None:
    at = random.randrange(len(messages))
    joined = "\n".join(text_of(message) for message in messages[at : at + 2])
    messages[at : at + 2] = [{"role": role_of(messages[at]), "content": joined}]


def _keep_the_end(random: Random, messages: list[Message]) -> None:
    del messages[: random.randrange(len(messages))]


def _forget_the_prompt(random: Random, messages: list[Message]) -> None:
    messages[:] = [message for message in messages if not is_system(message)]


CHANGES: tuple[Callable[[Random, list[Message]], None], ...] = (
    _drop,
    _move,
    _repeat,
    _write,
    _shorten,
    _join,
    _keep_the_end,
    _forget_the_prompt,
)


class Careless(ContextEngine):
    """Changes the list at random, in a way that a seed repeats."""

    name = "careless"

    def __init__(self, seed: int, changes: int) -> None:
        self.context_length = 100_000
        self.random = Random(seed)
        self.changes = changes

    def update_from_response(self, usage: dict[str, Any]) -> None:
        pass

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return False

    def compress(self, messages: list[Message], *args: Any, **options: Any) -> list[Message]:
        for _ in range(self.changes):
            if messages:
                self.random.choice(CHANGES)(self.random, messages)
        return messages


def unread(messages: list[Message]) -> list[Message]:
    """Return what stands behind the newest answer."""
    answer = max((at for at, message in enumerate(messages) if role_of(message) == "assistant"), default=-1)
    return [message for message in messages[answer + 1 :] if not is_system(message)]


def check_fold(session: Session, report: CompactionReport, before: list[Message], said: int) -> None:
    after = session.window
    for dialect in ("openai", "anthropic"):
        assert violations(after, dialect) == []
    users = [message for message in after if role_of(message) == "user"]
    assert users[-1] == next(message for message in reversed(before) if role_of(message) == "user")
    if report.status in ("folded", "fallback"):
        assert count_messages(after) < count_messages(before)
        assert after[len(after) - len(unread(before)) :] == unread(before)
        prompt = [text_of(message) for message in before if is_system(message)]
        assert all(any(text in text_of(one) for one in after if is_system(one)) for text in prompt)
    else:
        assert after == before
    assert len(list(session.store.messages(session.id, system=True))) == said


def fold_three_times(seed: int, turns: int, end: str, changes: int) -> list[str]:
    """Fold a conversation three times with more talk in between; returns how each fold went."""
    random = Random(seed)
    statuses: list[str] = []
    config: dict[str, Any] = {}
    with Session.open(
        "talk", engine=Careless(seed, changes), store=":memory:", config=config, context_length=100_000, model="m"
    ) as session:
        said = 0
        for number in range(3):
            messages = conversation(seed * 31 + number, turns=turns, end=end, payload=random.choice((12, 80)))  # type: ignore[arg-type]
            for message in messages:
                for call in message.get("tool_calls") or ():
                    call["id"] = f"{call['id']}-{number}"
                if "tool_call_id" in message:
                    message["tool_call_id"] = f"{message['tool_call_id']}-{number}"
            if number:
                messages = [message for message in messages if not is_system(message)]
            session.add(*messages)
            said += len(messages)
            session.request()
            before = session.window
            report = session.compress()
            check_fold(session, report, before, said)
            statuses.append(report.status)
            session.request()
    return statuses


talks = given(
    seed=st.integers(0, 2**32 - 1),
    turns=st.integers(1, 8),
    end=st.sampled_from(["user", "tool"]),
    changes=st.integers(1, 6),
)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@talks
@example(seed=171, turns=7, end="user", changes=5)  # a summary between an unread result and the newest message
@example(seed=16631, turns=4, end="tool", changes=4)  # an unread call twice, and neither time as it was
def test_the_promises_hold_whatever_an_engine_returns(seed: int, turns: int, end: str, changes: int) -> None:
    fold_three_times(seed, turns, end, changes)


def test_most_results_can_be_used() -> None:
    """The property would hold for a session that refuses everything."""
    statuses = [status for seed in range(40) for status in fold_three_times(seed, 6, "tool", 2)]
    assert statuses.count("folded") > len(statuses) / 2


def fold_many() -> None:
    for seed in range(150):
        fold_three_times(seed, 4, "tool" if seed % 2 else "user", 1 + seed % 5)


def _unread_stays_lost(self: Any, room: int) -> None:
    pass


def _prompt_stays_lost(self: Any) -> None:
    self._systems = [entry.message for entry in self._entries if is_system(entry.message)]
    self._entries = [entry for entry in self._entries if not is_system(entry.message)]


@pytest.mark.parametrize(
    ("where", "name", "defect"),
    [
        (acceptance, "repaired_result", lambda result, *_, **__: RepairedResult(messages=result)),
        (result_repair._ResultRepair, "restore_unread", _unread_stays_lost),
        (result_repair._ResultRepair, "restore_prompt", _prompt_stays_lost),
        (acceptance, "_newest_user_problem", lambda *_: ""),
        (acceptance, "_problem", lambda *_: ""),
    ],
)
def test_a_session_that_mends_or_judges_too_little_is_caught(
    where: Any, name: str, defect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(where, name, defect)
    with pytest.raises(AssertionError):
        fold_many()
