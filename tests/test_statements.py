"""Single statements of Hermes Agent's documentation about behaviour, each checked as it stands there."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from leporello import Config, ContextCompressor, Session, apply_anthropic_cache_control
from leporello.compressor.prune import prune
from leporello.errors import ConfigError
from leporello.messages import role_of, text_of
from leporello.messages.fixed import CLEARED_OUTPUT
from leporello.session import hygiene
from leporello.summary.placement import NOTE_PREFIX, PREFIX
from leporello.summary.refire import SAFE_SHARE
from leporello.tokens import count_messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello.messages import Message

WINDOW = 100_000
STATEMENTS: dict[str, Callable[[], None]] = {}


def states(text: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Make a function the check of a statement."""

    def take(function: Callable[[], None]) -> Callable[[], None]:
        STATEMENTS[text] = function
        return function

    return take


def talk(turns: int, words: int = 400) -> list[Message]:
    messages: list[Message] = [{"role": "system", "content": "You are a helpful assistant."}]
    for n in range(turns):
        messages.append({"role": "user", "content": f"Question {n}: " + f"word{n} " * words})
        messages.append({"role": "assistant", "content": f"Answer {n}: " + f"reply{n} " * words})
    return [*messages, {"role": "user", "content": "And now?"}]


def folded(messages: list[Message], engine: ContextCompressor | None = None) -> list[Message]:
    engine = engine or ContextCompressor(WINDOW)
    result = engine.compress(messages, current_tokens=count_messages(messages))
    assert engine.last_compaction
    assert engine.last_compaction.status == "folded"
    return result


@states("it fires when prompt tokens >= threshold x window")
def _() -> None:
    engine = ContextCompressor(WINDOW)
    assert [engine.should_compress(tokens) for tokens in (49_999, 50_000, 50_001)] == [False, True, True]


@states("without a count it goes by what the API reported last")
def _() -> None:
    engine = ContextCompressor(WINDOW)
    assert not engine.should_compress()
    engine.update_from_response({"prompt_tokens": 50_000, "completion_tokens": 1, "total_tokens": 50_001})
    assert engine.should_compress()


@states("the head is the system prompt and the first exchange")
def _() -> None:
    messages = talk(40)
    result = folded(messages)
    assert result[1:3] == messages[1:3]
    assert text_of(result[0]).startswith(text_of(messages[0]))


@states("at least the last 20 messages are protected")
def _() -> None:
    messages = talk(40)
    assert folded(messages)[-20:] == messages[-20:]


@states("the summary begins with [CONTEXT COMPACTION]")
def _() -> None:
    assert [text_of(m).startswith(PREFIX) for m in folded(talk(40))].count(True) == 1


@states("the note is appended to the system prompt once")
def _() -> None:
    engine = ContextCompressor(WINDOW)
    once = folded(talk(40), engine)
    twice = folded([*once, *talk(40)[1:]], engine)
    assert [text_of(result[0]).count(NOTE_PREFIX) for result in (once, twice)] == [1, 1]


@states("two messages of a role do not stand side by side")
def _() -> None:
    roles = [role_of(message) for message in folded(talk(40))]
    assert all(one != other for one, other in pairwise(roles))


@states("tool results of more than 200 characters are cleared, others stay")
def _() -> None:
    results: list[Message] = [
        {"role": "tool", "tool_call_id": str(size), "content": "x" * size} for size in (199, 200, 201)
    ]
    assert [one["content"] == CLEARED_OUTPUT for one in prune(results, 3)] == [False, False, True]
    assert prune(results, 2) == results


@states("compress returns a new list and leaves the old one")
def _() -> None:
    messages = talk(40)
    before = json.dumps(messages)
    assert folded(messages) is not messages
    assert json.dumps(messages) == before


@states("no warnings of context pressure are put into a request")
def _() -> None:
    with Session.open(store=":memory:", context_length=4_000, engine="compressor", llm=None) as session:
        said = talk(1, words=300)
        for message in said:
            session.add(message)
        assert 0.3 < session.usage().tokens / 4_000 < 0.5
        assert session.request()["messages"] == said


@states("session hygiene is at 85 %, above the agent's 50 %, and needs four messages")
def _() -> None:
    assert (SAFE_SHARE, hygiene.FEWEST_MESSAGES) == (0.85, 4)
    assert Config.coerce({}).compression.threshold < SAFE_SHARE


@states("there are at most four breakpoints: the system prompt and the last three messages")
def _() -> None:
    messages = talk(6)
    marked = [
        at for at, one in enumerate(apply_anthropic_cache_control(messages)) if "cache_control" in json.dumps(one)
    ]
    assert marked == [0, len(messages) - 3, len(messages) - 2, len(messages) - 1]


@states("the marker is ephemeral, with a ttl of 1h where it is chosen")
def _() -> None:
    for ttl, marker in (("5m", {"type": "ephemeral"}), ("1h", {"type": "ephemeral", "ttl": "1h"})):
        last: Any = apply_anthropic_cache_control(talk(1), cache_ttl=ttl)[-1]
        assert last["content"] == [{"type": "text", "text": "And now?", "cache_control": marker}]


@states("cache_ttl is 5m or 1h")
def _() -> None:
    assert [Config.coerce({"prompt_caching": {"cache_ttl": t}}).prompt_caching.cache_ttl for t in ("5m", "1h")]
    with pytest.raises(ConfigError):
        Config.coerce({"prompt_caching": {"cache_ttl": "2h"}})


@states("target_ratio is between 0.10 and 0.80")
def _() -> None:
    for ratio in (0.10, 0.80):
        assert Config.coerce({"compression": {"target_ratio": ratio}}).compression.target_ratio == ratio
    for ratio in (0.09, 0.81):
        with pytest.raises(ConfigError):
            Config.coerce({"compression": {"target_ratio": ratio}})


@pytest.mark.parametrize("statement", STATEMENTS)
def test_it_is_as_stated(statement: str) -> None:
    STATEMENTS[statement]()


def test_planted_a_wrong_threshold_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ContextCompressor, "should_compress", lambda _, tokens=None: (tokens or 0) > 50_000)
    with pytest.raises(AssertionError):
        STATEMENTS["it fires when prompt tokens >= threshold x window"]()
