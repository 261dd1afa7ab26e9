"""The ids that agents send name their conversations: one each, sub-agents their own, requests apart harmless."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.gateway.harbour import assistant, question, user

from leporello.gateway import client_sessions, drop_in, identity
from leporello.gateway.errors import Refused
from leporello.gateway.identity import Identity, identity_of
from leporello.messages import text_of
from leporello.testing.model_server import ModelServer, Step

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.gateway import Gateway

    from leporello.testing.model_server import ReceivedRequest

CLAUDE = {"x-claude-code-session-id": "9eb247bb-f1a8"}
TOOLS = [{"name": "Bash", "description": "Run a command.", "input_schema": {"type": "object", "properties": {}}}]
TITLE = "Summarise the beginning of this coding conversation in three to six words, as JSON with the key title."


@pytest.mark.parametrize(
    ("headers", "name"),
    [
        ({"x-leporello-session": "mine", "thread-id": "t"}, "mine"),
        ({"thread-id": "t1", "session-id": "s1", "x-client-request-id": "t1"}, "codex:t1"),
        ({"thread-id": "t2", "session-id": "s1", "x-openai-subagent": "review"}, "codex:t2"),
        ({"thread-id": "t3", "x-codex-turn-metadata": '{"thread_source": "user"}'}, "codex:t3"),
        ({"thread-id": "t4", "x-codex-turn-metadata": '{"thread_source":"thread_title"}'}, "codex:titles"),
        ({"conversation_id": "c1", "session_id": "s1"}, "codex:c1"),
        (CLAUDE, "claude-code:9eb247bb-f1a8"),
        ({**CLAUDE, "x-claude-code-agent-id": "a1"}, "claude-code:9eb247bb-f1a8:a1"),
        (
            {**CLAUDE, "x-claude-code-agent-id": "a2", "x-claude-code-parent-agent-id": "a1"},
            "claude-code:9eb247bb-f1a8:a2",
        ),
        ({"x-session-id": "ses_1", "x-parent-session-id": "ses_0", "x-session-affinity": "ses_0"}, "session:ses_1"),
        ({"x-parent-session-id": "ses_0", "x-claude-code-parent-agent-id": "a", "session-id": "s"}, ""),
        ({"thread-id": "with spaces in it"}, ""),
        ({"x-session-id": "x" * 200}, ""),
        ({}, ""),
    ],
)
def test_the_strongest_header_names_the_conversation(headers: dict[str, str], name: str) -> None:
    assert identity_of(headers).name == name


def test_our_own_header_is_refused_when_it_is_no_name() -> None:
    with pytest.raises(Refused):
        identity_of({"x-leporello-session": "a b"})


class Talk:
    """A client of Anthropic's API that sends its whole history, with headers."""

    def __init__(self, gateway: Gateway, headers: dict[str, str], tools: list[dict[str, Any]] | None = None) -> None:
        self.gateway, self.headers, self.tools = gateway, headers, tools
        self.messages: list[dict[str, Any]] = []

    def say(self, text: str) -> str:
        self.messages.append(user(text))
        body = {"model": "m", "max_tokens": 99, "messages": self.messages}
        got = self.gateway.post("/v1/messages", {**body, "tools": self.tools} if self.tools else body, self.headers)
        assert got.status_code == 200, got.text
        self.messages.append(assistant(got.json()["content"][0]["text"]))
        return str(got.headers["x-leporello-session"])


def branches(gateway: Gateway) -> dict[str, int]:
    return {info.key: info.branches for info in gateway.store.conversations()}


def head(gateway: Gateway, name: str) -> list[str]:
    """Return what is said on the branch that is resumed."""
    return [text_of(row.message) for row in gateway.store.messages(name)]


class TestClaudeCode:
    def test_a_session_is_one_conversation_though_it_begins_like_another(self, gateway: Gateway) -> None:
        one, other = Talk(gateway, CLAUDE, TOOLS), Talk(gateway, {"x-claude-code-session-id": "another"}, TOOLS)
        for text in ("hi", question(1)):
            assert one.say(text) == "claude-code:9eb247bb-f1a8"
            assert other.say(text) == "claude-code:another"
        assert branches(gateway) == {"claude-code:9eb247bb-f1a8": 1, "claude-code:another": 1}

    def test_sub_agents_have_conversations_of_their_own(self, gateway: Gateway) -> None:
        main = Talk(gateway, CLAUDE, TOOLS)
        agents = [Talk(gateway, {**CLAUDE, "x-claude-code-agent-id": name}, TOOLS) for name in ("a", "b")]
        for number in range(3):
            for talk in (main, *agents):
                talk.say(question(number))
        assert branches(gateway) == {f"claude-code:9eb247bb-f1a8{ending}": 1 for ending in ("", ":a", ":b")}

    @pytest.mark.parametrize("first", ["title", "turn"])
    def test_a_title_is_another_root_and_not_what_is_resumed(self, first: str, gateway: Gateway) -> None:
        main, title = Talk(gateway, CLAUDE, TOOLS), Talk(gateway, CLAUDE)
        for talk in (title, main) if first == "title" else (main, title):
            talk.say(question(1) if talk is main else TITLE)
        assert head(gateway, "claude-code:9eb247bb-f1a8")[0] == question(1)
        main.say(question(2))
        assert branches(gateway) == {"claude-code:9eb247bb-f1a8": 2}
        assert head(gateway, "claude-code:9eb247bb-f1a8")[2] == question(2)

    def test_a_title_at_the_same_time_waits_for_nobody(self, start: Callable[..., Gateway]) -> None:
        both = threading.Barrier(2, timeout=30)

        def meet(request: ReceivedRequest) -> Step:
            if len(request.messages) == 1:
                both.wait()
            return Step(text=f"answer {len(request.messages)}")

        with ModelServer(then=meet) as upstream:
            gateway = start(upstream)
            main, title = Talk(gateway, CLAUDE, TOOLS), Talk(gateway, CLAUDE)
            aside = threading.Thread(target=title.say, args=[TITLE])
            aside.start()
            main.say(question(1))
            aside.join(30)
            main.say(question(2))
            assert branches(gateway) == {"claude-code:9eb247bb-f1a8": 2}
            assert [text for text in head(gateway, "claude-code:9eb247bb-f1a8") if text == TITLE] == []

    def test_after_its_own_compaction_it_goes_on_in_the_same_conversation(self, gateway: Gateway) -> None:
        main = Talk(gateway, CLAUDE, TOOLS)
        main.say(question(1))
        main.say("CRITICAL: Respond with TEXT ONLY. Summarise everything.")
        main.messages = []
        main.say("This session is being continued from a previous conversation. " + question(1))
        main.say(question(2))
        assert branches(gateway) == {"claude-code:9eb247bb-f1a8": 2}
        assert question(2) in head(gateway, "claude-code:9eb247bb-f1a8")


def test_opencode_titles_and_sub_tasks(gateway: Gateway) -> None:
    main, title = Talk(gateway, {"x-session-id": "ses_1"}, TOOLS), Talk(gateway, {"x-session-id": "ses_1"})
    task = Talk(gateway, {"x-session-id": "ses_2", "x-parent-session-id": "ses_1"}, TOOLS)
    title.say(TITLE)
    for number in range(3):
        main.say(question(number))
        task.say(question(10 + number))
    assert branches(gateway) == {"session:ses_1": 2, "session:ses_2": 1}


def test_planted_without_the_headers_sub_agents_of_one_task_are_mixed_up(
    gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drop_in, "identity_of", lambda _: Identity())
    with pytest.raises(AssertionError):
        TestClaudeCode().test_sub_agents_have_conversations_of_their_own(gateway)


def test_planted_a_parents_id_makes_one_conversation_of_all(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "AGENT_HEADERS", (("session", ("x-parent-session-id",)), *identity.AGENT_HEADERS))
    with pytest.raises(AssertionError):
        test_opencode_titles_and_sub_tasks(gateway)


def test_planted_a_title_that_takes_the_head(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = client_sessions.ClientSessions._begin
    monkeypatch.setattr(
        client_sessions.ClientSessions, "_begin", lambda self, *a, **k: begin(self, *a, **{**k, "head": True})
    )
    with pytest.raises(AssertionError):
        TestClaudeCode().test_a_title_is_another_root_and_not_what_is_resumed("turn", gateway)
