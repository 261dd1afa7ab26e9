"""What a plain turn reads from the store: which message is the newest, and no message itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from leporello.session.persistence import Persistence
from leporello.store import codec, open_store
from leporello.store.relational import reading

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello.messages import Message
    from leporello.session import Session

ENGINES = ("compressor", "lcm")
TURNS = 20


def asked(session: Session, answer: Callable[..., Any], number: int) -> None:
    session.add({"role": "user", "content": f"question {number}"})
    session.request()
    session.record(answer(f"answer {number}"))


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The rows that were decoded since the test began."""
    rows: list[bytes] = []

    def noted(body: bytes, *rest: Any) -> Any:
        rows.append(body)
        return codec.decode(body, *rest)

    monkeypatch.setattr(reading, "decode", noted)
    return rows


def turn_behind_a_history(engine: str, opened: Callable[..., Session], answer: Callable[..., Any]) -> None:
    session = opened(engine=engine, llm=None, config={"lcm": {"background": False}})
    for number in range(TURNS):
        asked(session, answer, number)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_a_plain_turn_decodes_no_row(
    engine: str, opened: Callable[..., Session], answer: Callable[..., Any], decoded: list[bytes]
) -> None:
    turn_behind_a_history(engine, opened, answer)
    assert decoded == []


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_a_session_that_reads_messages_for_their_id_would_be_noticed(
    engine: str,
    opened: Callable[..., Session],
    answer: Callable[..., Any],
    decoded: list[bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def by_message(persistence: Persistence) -> str | None:
        return next((row.id for row in persistence.branch.messages(newest_first=True)), None)

    monkeypatch.setattr(Persistence, "_newest_id", by_message)
    turn_behind_a_history(engine, opened, answer)
    assert len(decoded) > TURNS


def test_the_newest_message_is_a_live_one_of_the_owner_and_not_the_system_prompt() -> None:
    store = open_store(":memory:")
    assert store.newest("talk") is None
    said: list[Message] = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    first, second = store.append("talk", said, owner="ada")
    store.append("talk", [{"role": "system", "content": "be brief"}], owner="ada", prompt=True)
    assert store.newest("talk", owner="ada") == second
    (third,) = store.append("talk", [{"role": "system", "content": "be brief"}], owner="ada")
    assert store.newest("talk", owner="ada") == third
    assert store.newest("talk") is None
    store.fork("talk", before=second, owner="ada")
    assert store.newest("talk", owner="ada") == first
    store.close()
