"""Clients that compact by themselves: they go on in the same conversation, and what they gave up can be recalled.

The shapes are those of Claude Code (`/compact`), Codex (all messages of the user, then a summary) and opencode (a new
first line, then the summary as an answer). Tokens are counted as the model would see them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from tests.gateway.harbour import assistant, user

from leporello.gateway import client_sessions
from leporello.messages import text_of
from leporello.testing.model_server import ModelServer, Step, Use

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.fixtures.gateway import Gateway

    from leporello.testing.model_server import ReceivedRequest

pytestmark = pytest.mark.slow

CODE = "7319-QX"
SUMMARY = """<analysis>
The user wants the harbour put in order. I look at each berth in turn and note what stands there.
</analysis>
<summary>
1. The harbour has twelve berths, and the crane at berth nine is out of order since Monday.
2. The vault was opened once; nobody wrote down how.
3. Next: move the containers of berth seven, before the ferry comes in at noon.
</summary>"""
CONTINUED = (
    "This session is being continued from a previous conversation that ran out of context. The summary is below:\n"
    + SUMMARY.partition("<summary>")[2].replace("</summary>", "")
    + "\nPlease continue from where we left it off."
)
HANDED_OVER = f"Another model worked on this and left a summary of its work:\n{SUMMARY}"
ASKS_FOR_SUMMARY = "CRITICAL: Respond with TEXT ONLY. Sum up the conversation so far."


def model(request: ReceivedRequest) -> Step:
    """Sum up when told to, look for the code when asked for it, and else take note."""
    newest = request.messages[-1]
    text = str(newest["content"])
    if newest["role"] == "tool":
        return Step(text="found" if CODE in text else f"nothing in {text}")
    if ASKS_FOR_SUMMARY in text:
        return Step(text=SUMMARY)
    offered = {tool.get("name") or tool["function"]["name"] for tool in request.tools}
    if "what is the code" in text and "lcm_grep" in offered:
        return Step(tool_calls=[Use(name="lcm_grep", arguments={"query": "code of the vault"})])
    return Step(text=f"Noted, as message {len(request.messages)}.")


class Agent:
    """An agent that sends its whole history, in one of the three dialects."""

    def __init__(self, gateway: Gateway, dialect: str) -> None:
        self.gateway, self.dialect = gateway, dialect
        self.history: list[dict[str, Any]] = []
        self.headers = {
            "anthropic": {"x-claude-code-session-id": "s1"},
            "responses": {"thread-id": "t1", "session-id": "s1"},
            "openai": {"x-session-id": "ses_1"},
        }[dialect]

    @property
    def body(self) -> dict[str, Any]:
        schema = {"type": "object", "properties": {}}
        if self.dialect == "responses":
            return {"model": "m", "input": self.history, "tools": [{"type": "function", "name": "x", "parameters": {}}]}
        if self.dialect == "anthropic":
            tools: list[Any] = [{"name": "Bash", "input_schema": schema}]
            return {"model": "m", "max_tokens": 500, "messages": self.history, "tools": tools}
        tools = [{"type": "function", "function": {"name": "bash", "parameters": schema}}]
        return {"model": "m", "messages": self.history, "tools": tools}

    def say(self, text: str) -> str:
        """Say something; returns the answer."""
        paths = {"openai": "/v1/chat/completions", "anthropic": "/v1/messages", "responses": "/v1/responses"}
        self.history.append(user(text))
        got = self.gateway.post(paths[self.dialect], self.body, self.headers)
        assert got.status_code == 200, got.text
        answer = got.json()
        if self.dialect == "responses":
            said = answer["output"][-1]["content"][0]["text"]
        elif self.dialect == "anthropic":
            said = answer["content"][0]["text"]
        else:
            said = answer["choices"][0]["message"]["content"]
        self.history.append(assistant(said))
        return str(said)

    def compact(self, shape: str) -> None:
        """Have the conversation summed up, and go on from that."""
        users = [message for message in self.history if message["role"] == "user"]
        asked, last = map(text_of, self.history[-2:])
        if shape.endswith("answer"):
            del self.history[-2:]  # it asks in place of its last answer
        summary = self.say(f"{asked}\n{ASKS_FOR_SUMMARY}" if shape.endswith("answer") else ASKS_FOR_SUMMARY)
        self.history = {
            "claude-code": [user(CONTINUED)],
            "claude-code with its last answer": [user(CONTINUED), assistant(last)],
            "codex": [*users, user(HANDED_OVER)],
            "opencode": [user("What did we do so far?"), assistant(summary)],
        }[shape]


@pytest.fixture
def agent(start: Callable[..., Gateway]) -> Any:
    """Begin a conversation of an agent with the lossless engine, which may recall what was said."""
    servers: list[ModelServer] = []

    def begin(dialect: str) -> Agent:
        servers.append(ModelServer(then=model).__enter__())
        return Agent(start(servers[0], {"context": {"engine": "lcm"}}, tools=True), dialect)

    yield begin
    for server in servers:
        server.close()


def check_compaction(agent: Agent, shape: str) -> None:
    """It goes on in its conversation, knows what it replaces, and what was said before is found."""
    agent.say(f"the code of the vault is {CODE}")
    for number in range(3):
        agent.say(f"question {number}: which berth is free?")
    agent.compact(shape)
    agent.say("go on")
    (info,) = agent.gateway.store.conversations()
    if shape == "opencode":
        assert info.branches == 1  # the summary is an answer of the conversation: it is recognised by it
    else:
        assert info.replaces == {2: 1}
        assert info.head == 2
        told = [text_of(row.message) for row in agent.gateway.store.messages(info.key)]
        assert told[-2:] == ["go on", agent.history[-1]["content"]]
    assert agent.say("what is the code?") == "found"
    agent.compact(shape)
    agent.say("and on")
    (info,) = agent.gateway.store.conversations()
    assert info.replaces == ({} if shape == "opencode" else {2: 1, 3: 2})


@pytest.mark.parametrize("dialect", ["openai", "anthropic", "responses"])
@pytest.mark.parametrize("shape", ["claude-code", "codex", "opencode"])
def test_it_goes_on_and_what_it_gave_up_is_found(shape: str, dialect: str, agent: Callable[[str], Agent]) -> None:
    check_compaction(agent(dialect), shape)


def test_it_may_keep_its_last_answer(agent: Callable[[str], Agent]) -> None:
    """As Claude Code does since 2.1.327: it asks in place of that answer, which makes a branch, and replaces that."""
    client = agent("anthropic")
    client.say(f"the code of the vault is {CODE}")
    client.say("which berth is free?")
    client.compact("claude-code with its last answer")
    client.say("go on")
    (info,) = client.gateway.store.conversations()
    assert (info.replaces, info.head) == ({3: 2}, 3)
    assert client.say("what is the code?") == "found"


def test_planted_a_history_of_ones_own_that_replaces_nothing(
    agent: Callable[[str], Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_sessions, "replaced_branch", lambda *_, **__: None)
    with pytest.raises(AssertionError):
        check_compaction(agent("anthropic"), "claude-code")


@pytest.mark.parametrize("text", ["hello again", f"is this right? {SUMMARY.splitlines()[5]}"])
def test_a_client_that_only_begins_anew_replaces_nothing(text: str, agent: Callable[[str], Agent]) -> None:
    client = agent("anthropic")
    client.say("the harbour has twelve berths")
    client.compact("claude-code")
    client.history = []
    client.say(text)
    (info,) = client.gateway.store.conversations()
    assert (info.branches, info.replaces) == (2, {})


def test_an_answer_that_is_asked_for_again_replaces_nothing(agent: Callable[[str], Agent]) -> None:
    """The model repeats what the user said: that is no summary of the user's."""
    client = agent("openai")
    client.say(ASKS_FOR_SUMMARY)
    client.history = []
    client.say(f"{ASKS_FOR_SUMMARY}\n{SUMMARY}")
    client.history.pop()
    client.history.pop()
    client.say(f"{ASKS_FOR_SUMMARY}\n{SUMMARY}")
    (info,) = client.gateway.store.conversations()
    assert info.replaces == {2: 1}


def counted(address: str, body: Mapping[str, Any], headers: dict[str, str]) -> int:
    asked = {key: value for key, value in body.items() if key in ("model", "messages", "system")}
    got = httpx2.post(
        f"{address}/v1/messages/count_tokens", json=asked, headers={"x-api-key": "k", **headers}, timeout=30
    )
    return int(got.json()["input_tokens"])


@pytest.mark.parametrize("changed", [False, True])
def test_tokens_are_counted_as_the_model_sees_them(changed: bool, start: Callable[..., Gateway]) -> None:
    """Also when the client changed a message; and nothing is stored by counting."""
    with ModelServer(window=16_000) as server:
        agent = Agent(start(server), "anthropic")
        for number in range(24):
            agent.say(f"question {number}: " + "some words to read " * 200)
        if changed:
            agent.history[-4] = user("it was another question")
        before = list(agent.gateway.store.messages("claude-code:s1"))
        asked = {**agent.body, "messages": [*agent.history, user("and now?")]}
        folded = [counted(agent.gateway.address, asked, agent.headers) for _ in range(2)]
        whole = counted(server.anthropic_url, asked, {})
        assert folded[0] == folded[1] < 16_000 < whole
        assert list(agent.gateway.store.messages("claude-code:s1")) == before
        agent.say("and now?")
        sent = counted(server.anthropic_url, server.requests[-1].body, {})
        assert folded[0] == sent or changed
        assert abs(folded[0] - sent) < 1_000  # a message that the client has just changed


@pytest.mark.parametrize("back", [1, 2, 6])
def test_so_they_are_before_a_client_goes_back(back: int, start: Callable[..., Gateway]) -> None:
    """It asks for an answer again, or goes on behind an earlier one: that is another branch, of a folded history."""
    with ModelServer(window=16_000) as server:
        agent = Agent(start(server), "anthropic")
        for number in range(24):
            agent.say(f"question {number}: " + "some words to read " * 200)
        del agent.history[-back:]
        asked = [*agent.history, *([user("and now?")] if back % 2 == 0 else [])]
        folded = counted(agent.gateway.address, {**agent.body, "messages": asked}, agent.headers)
        whole = counted(server.anthropic_url, {**agent.body, "messages": asked}, {})
        agent.gateway.post("/v1/messages", {**agent.body, "messages": asked}, agent.headers)
        sent = counted(server.anthropic_url, server.requests[-1].body, {})
        assert folded == sent < 16_000 < whole
