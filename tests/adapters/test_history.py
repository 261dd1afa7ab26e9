"""A framework's whole history, before every request: only what is new is added, and only what is sent is folded."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
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
    made.close()


def opened(folder: Path, *, owner: str = "") -> HistorySession:
    session = Session.open(
        "harbour",
        model="gpt-5.4",
        context_length=8_000,
        engine="lcm",
        store=folder / "h.db",
        owner=owner,
        config={},
        llm=None,
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
    """Count the messages of all branches."""
    store, owner = history.session.store, history.session.owner
    branches = [info.id for info in history.session.branches()]
    return len({row.id for branch in branches for row in store.messages("harbour", owner=owner, branch=branch)})


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
    with closing(opened(tmp_path)) as again:
        again.request([*said, call(99), result(99, "quiet")], [])
        assert (stored(history), len(again.session.branches())) == (len(said) + 2, 1)


def test_a_restart_adds_nothing_for_an_owner_either(tmp_path: Path) -> None:
    with closing(opened(tmp_path, owner="ada")) as history:
        said = talk(history, 12)
        history.request(said, [])
    with closing(opened(tmp_path, owner="ada")) as again:
        again.request(said, [])
        assert (stored(again), len(again.session.branches())) == (len(said), 1)


def test_without_the_search_for_the_place_a_restart_would_double_it(
    history: HistorySession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = talk(history, 12)
    history.request(said, [])
    monkeypatch.setattr(HistorySession, "_found", lambda again, *_: again._lines[-1])
    with closing(opened(tmp_path)) as again:
        again.request(said, [])
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
    answer = history.answer("call_7", "lcm_grep", '{"query": "Log 1"}')
    assert "Log 1" in answer
    said.append(result(7, answer))
    history.request(said, [])
    assert stored(history) == len(said)


def test_what_the_provider_counted_is_used(history: HistorySession) -> None:
    history.request([user("One.")], [])
    history.record({"role": "assistant", "content": "First."}, usage(1_234))
    assert history.session.usage().conversation.prompt_tokens == 1_234


def ask(history: HistorySession, said: list[Message], answer: str, *, by: str | None = None) -> list[Message]:
    """Send a history and take an answer; returns the history with it."""
    history.request(said, [], by=by)
    told: Message = {"role": "assistant", "content": answer}
    history.record(told, usage(100), by=by)
    return [*said, told]


def test_agents_that_share_a_name_stay_on_branches_of_their_own(history: HistorySession, tmp_path: Path) -> None:
    """A helper of the agent, or a question for a title, in the same conversation again and again."""
    agent, helper = [user("Read the logs.")], [user("Count the cranes.")]
    for turn in range(6):
        agent = [*ask(history, agent, f"Log {turn} is read."), user("Go on.")]
        helper = [*ask(history, helper, f"{turn} cranes."), user("And now?")]
    assert len(history.session.branches()) == 2
    assert stored(history) == len(agent) + len(helper) - 2, "each message once"
    sent = [message["content"] for message, _ in history.request(agent, [])]
    assert sent == [message["content"] for message in agent]
    with closing(opened(tmp_path)) as again:
        again.request(helper, [])
        again.request(agent, [])
        assert len(again.session.branches()) == 2, "after a restart both are found"
        assert stored(again) == len(agent) + len(helper)


def test_answers_that_cross_go_where_they_were_asked(history: HistorySession) -> None:
    first, second = [user("Read the logs.")], [user("Count the cranes.")]
    history.request(first, [], by="first")
    history.request(second, [], by="second")
    told: list[Message] = [{"role": "assistant", "content": text} for text in ("Read.", "Nine.")]
    history.record(told[0], usage(100), by="first")
    history.record(told[1], usage(100), by="second")
    history.request([*first, told[0], user("Go on.")], [], by="first")
    history.request([*second, told[1], user("Go on.")], [], by="second")
    assert (len(history.session.branches()), stored(history)) == (2, 6)


def test_many_questions_aside_keep_few_sessions_open(history: HistorySession) -> None:
    agent = ask(history, [user("Read the logs.")], "They are read.")
    for number in range(20):
        ask(history, [user(f"A title for text {number}?")], f"Title {number}")
    assert len(history._lines) <= 10
    history.request([*agent, user("Go on.")], [])
    assert stored(history) == 2 + 2 * 20 + 1


def test_threads_take_turns(history: HistorySession) -> None:
    def work(name: str) -> None:
        said = [user(f"I am {name}.")]
        for turn in range(8):
            said = [*ask(history, said, f"{name} {turn}", by=name), user("Go on.")]

    names = [f"agent {number}" for number in range(4)]
    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, names)) == [None] * 4
    assert (len(history.session.branches()), stored(history)) == (4, 4 * 16)


def test_an_answer_that_only_the_history_shows_is_recorded(history: HistorySession) -> None:
    """It was streamed past the adapter; what it used nobody told."""
    said = talk(history, 2)
    history.request(said, [])
    before = history.session.usage().conversation.requests
    asked = call(7, "lcm_grep", '{"query": "Log 1"}')
    answer = history.answer("call_7", "lcm_grep", {"query": "Log 1"})
    assert "Log 1" in answer
    history.request([*said, asked, result(7, answer)], [])
    assert history.session.usage().conversation.requests == before + 1
    assert stored(history) == len(said) + 2


def test_a_cancelled_turn_is_no_answer(history: HistorySession) -> None:
    said = [user("Read the logs.")]
    history.request(said, [])
    sent = history.request([*said, user("No, wait: count the cranes.")], [])
    assert (stored(history), len(history.session.branches())) == (2, 1)
    assert "count the cranes" in str(sent[-1][0]["content"])


def test_a_call_id_that_comes_again_is_another_call(history: HistorySession) -> None:
    """Small models number their calls from one again in every answer."""
    said = talk(history, 1)
    history.request(said, [])
    said.append(call(1, "lcm_grep", '{"query": "Log"}'))
    history.record(said[-1], None)
    said.append(result(1, history.answer("call_1", "lcm_grep", {"query": "Log"})))
    history.request(said, [])
    said.append(call(1))
    history.record(said[-1], None)
    said.append(result(1, "Log 1: the newest crane is broken."))
    sent = history.request(said, [])
    assert "the newest crane" in str(sent[-1][0]["content"])
