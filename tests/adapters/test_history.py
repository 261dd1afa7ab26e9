"""A framework's whole history, before every request: only what is new is added, and only what is sent is folded."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from leporello import Session
from leporello.adapters.history import HistorySession

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from leporello.messages import Message


@pytest.fixture
def history(tmp_path: Path) -> Iterator[HistorySession]:
    made = opened(tmp_path)
    yield made
    made.session.close()


def opened(folder: Path) -> HistorySession:
    session = Session.open(
        "harbour", model="m", context_length=8_000, engine="lcm", store=folder / "h.db", config={}, llm=None
    )
    return HistorySession(session)


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def call(number: int, tool: str = "read_log", arguments: str = "{}") -> Message:
    function = {"name": tool, "arguments": arguments}
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": f"call_{number}", "type": "function", "function": function}],
    }


def result(number: int, text: str) -> Message:
    return {"role": "tool", "tool_call_id": f"call_{number}", "content": text}


def usage(tokens: int) -> dict[str, Any]:
    return {"prompt_tokens": tokens, "completion_tokens": 5, "total_tokens": tokens + 5}


def talk(history: HistorySession, turns: int) -> list[Message]:
    """Let the model read logs; returns the framework's history."""
    said = [user("Read the logs.")]
    for number in range(turns):
        history.request(said, [])
        said.append(call(number))
        history.record(said[-1], None)
        said.append(result(number, f"Log {number}: " + "berth is quiet. " * 60))
    return said


def stored(history: HistorySession) -> int:
    return sum(1 for _ in history.session.store.messages("harbour", superseded=True))


def test_what_is_not_folded_is_the_frameworks_own(history: HistorySession) -> None:
    said = talk(history, 3)
    assert [place for _, place in history.request(said, [])] == list(range(7))


def test_only_what_is_sent_is_folded(history: HistorySession) -> None:
    said = talk(history, 40)
    sent = history.request(said, [])
    places = [place for _, place in sent if place is not None]
    assert history.session.usage().compactions >= 2
    assert (len(sent) < len(said), places == sorted(places), places[-1]) == (True, True, len(said) - 1)
    assert all(message["content"] == said[place]["content"] for message, place in sent if place is not None)
    assert any(place is None for _, place in sent), "the summary is nobody's"
    assert stored(history) == len(said), "each message once"


def test_a_restart_adds_nothing(history: HistorySession, tmp_path: Path) -> None:
    said = talk(history, 12)
    history.request(said, [])
    with closing(opened(tmp_path).session) as session:
        again = HistorySession(session)
        again.request([*said, call(99), result(99, "quiet")], [])
        assert (stored(history), len(session.branches())) == (len(said) + 2, 1)


def test_without_the_search_for_the_place_a_restart_would_double_it(
    history: HistorySession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = talk(history, 12)
    history.request(said, [])
    monkeypatch.setattr(HistorySession, "_find_place", lambda *_: None)
    with closing(opened(tmp_path).session) as session:
        HistorySession(session).request(said, [])
        assert stored(history) > len(said)


def test_an_edited_question_goes_on_on_a_branch_of_its_own(history: HistorySession) -> None:
    said: list[Message] = [user("One."), {"role": "assistant", "content": "First."}, user("Two.")]
    history.request(said[:1], [])
    history.record(said[1], None)
    history.request(said, [])
    history.record({"role": "assistant", "content": "Second."}, None)
    edited = [*said[:2], user("Three.")]
    sent = history.request(edited, [])
    assert [message["content"] for message, _ in sent] == ["One.", "First.", "Three."]
    assert len(history.session.branches()) == 2
    assert stored(history) == 5


def test_the_engines_tools_are_answered_once(history: HistorySession) -> None:
    said = talk(history, 2)
    history.request(said, [])
    said.append(call(7, "lcm_grep", '{"query": "Log 1"}'))
    history.record(said[-1], None)
    assert "Log 1" in history.answers["call_7"]
    said.append(result(7, history.answers["call_7"]))
    history.request(said, [])
    assert stored(history) == len(said)


def test_what_the_provider_counted_is_used(history: HistorySession) -> None:
    history.request([user("One.")], [])
    history.record({"role": "assistant", "content": "First."}, usage(1_234))
    assert history.session.usage().conversation.prompt_tokens == 1_234
