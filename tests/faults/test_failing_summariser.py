"""Every failure of a provider, on a real HTTP server, through both official clients.

The conversation stays usable, the user is told, no turn is dropped without a summary, and the next success recovers.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from leporello import ContextCompressor
from leporello.events import Event, SummaryFellBack
from leporello.llm import LLM, AnthropicClient, FakeClock, OpenAIClient
from leporello.messages import violations
from leporello.summary.placement import END
from leporello.testing.conversations import conversation
from leporello.testing.model_server import Failure, ModelServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leporello.messages import Message

SUMMARY = "## Goal\nFix the build.\n\n## Progress\n### Done\n- Read src/app.py."
NEEDS_ANOTHER_KEY = {Failure.BAD_KEY, Failure.FORBIDDEN}
STILL_AN_ANSWER = {Failure.CUT_BY_LENGTH}  # half a summary is used: the exact values beside it are complete


@pytest.fixture
def server() -> Iterator[ModelServer]:
    with ModelServer(then=SUMMARY, window=200_000) as running:
        yield running


def client(server: ModelServer, dialect: str) -> LLM:
    if dialect == "anthropic":
        return AnthropicClient(
            model="m", api_key="k", provider="anthropic", base_url=server.anthropic_url, context_length=200_000
        )
    return OpenAIClient(model="m", api_key="k", provider="custom", base_url=server.openai_url, context_length=200_000)


def grown(messages: list[Message], seed: int) -> list[Message]:
    more = json.loads(json.dumps(conversation(seed, turns=20, payload=200, system=False, end="user", images=False)))
    for message in more:
        for call in message.get("tool_calls") or []:
            call["id"] = f"later-{call['id']}"
        if "tool_call_id" in message:
            message["tool_call_id"] = f"later-{message['tool_call_id']}"
    return [*messages, {"role": "assistant", "content": "Done."}, *more]


@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
@pytest.mark.parametrize("failure", list(Failure), ids=lambda failure: failure.value)
def test_a_failure_keeps_the_conversation_and_is_recovered_from(
    server: ModelServer, failure: Failure, dialect: str
) -> None:
    clock, heard = FakeClock(), list[Event]()
    engine = ContextCompressor(
        16_000,
        llm=client(server, dialect),
        clock=clock,
        config={"auxiliary": {"compression": {"timeout_seconds": 2.0}}},
    )
    engine.on_event = heard.append
    server.fail(failure, times=8, seconds=4.0, retry_after=30.0)
    messages = conversation(7, turns=30, payload=200, end="user", images=False)
    result = engine.compress(messages)
    server.heal()

    assert not violations(result, "openai")
    assert not violations(result, "anthropic")
    assert result[-1] == messages[-1]
    assert END in json.dumps(result), "turns were dropped without a summary"
    assert engine.last_compaction is not None
    if failure not in STILL_AN_ANSWER:
        assert engine.last_compaction.status == "fallback"
        (told,) = [event for event in heard if isinstance(event, SummaryFellBack)]
        assert (told.retry_in is None) == (failure in NEEDS_ANOTHER_KEY)
        assert str(told) in [str(event) for event in heard]

    clock.advance(2 * 3_600)
    if failure in NEEDS_ANOTHER_KEY:
        engine.use_model(client(server, dialect))
    asked = len(server.requests)
    again = engine.compress(grown(result, 8))
    assert len(server.requests) > asked, "the model was not asked again"
    assert engine.last_compaction.status == "folded"
    assert json.dumps(again).count(END) == 1
