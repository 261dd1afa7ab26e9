"""Very long lists: only their ends are made valid and planned with, and the result is the same."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from leporello import ContextCompressor
from leporello.compressor.ends import VERY_LONG, ends, whole
from leporello.compressor.engine import CLOSE
from leporello.llm import ScriptedLLM
from leporello.messages import Message, violations
from leporello.summary.place import END, PREFIX
from leporello.summary.sizes import Sizes, about
from leporello.testing.conversations import conversation
from leporello.tokens import count_messages

if TYPE_CHECKING:
    from leporello.compressor.plan import Plan

GOOD = "## Goal\nKeep the port running.\n\n## Progress\n### Done\n- Looked at the files."


def tool_turn(number: int, *, text: str = "") -> list[Message]:
    function = {"name": "read_file", "arguments": json.dumps({"path": f"src/part_{number}.py"})}
    return [
        {"role": "user", "content": f"Please look at part {number} of the yard."},
        {
            "role": "assistant",
            "content": text or None,
            "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": f"c{number}", "content": f"crane = assign({number})\n" * 40},
        {"role": "assistant", "content": f"Part {number} is in order."},
    ]


def long_list(turns: int = 700) -> list[Message]:
    messages: list[Message] = [{"role": "system", "content": "You work on a port's software."}]
    return messages + [message for number in range(turns) for message in tool_turn(number)]


def planned(messages: list[Any], *, by_ends: bool, **config: Any) -> Plan:
    engine = ContextCompressor(200_000, config=config or None)
    kept = ends(messages, engine.tail_token_budget) if by_ends else whole(messages)
    return engine._planned(messages, kept, Sizes(), None)[1]


def is_the_same_plan(messages: list[Any], **config: Any) -> None:
    assert planned(messages, by_ends=True, **config) == planned(messages, by_ends=False, **config)


def with_middle(message: Any) -> list[Any]:
    messages: list[Any] = long_list()
    messages[1_401:1_401] = [message]
    return messages


def test_the_plan_is_the_one_of_the_whole_list() -> None:
    messages = long_list()
    assert ends(messages, 20_000).seam is not None
    is_the_same_plan(messages)


def test_the_plan_is_the_one_of_the_whole_list_after_an_earlier_compaction() -> None:
    messages = long_list()
    messages[5:5] = [
        {"role": "user", "content": f"{PREFIX} history\n\n## Goal\nBefore.\n\n{END}"},
        {"role": "assistant", "content": "Understood."},
    ]
    assert ends(messages, 20_000).seam is not None
    is_the_same_plan(messages)


def test_one_request_with_thousands_of_calls() -> None:
    messages = long_list(10) + [m for n in range(10, 1_500) for m in tool_turn(n, text="On it.")[1:3]]
    is_the_same_plan(messages)


@pytest.mark.parametrize("last_n", [20, 390, 1_200])
def test_a_tail_that_reaches_into_the_middle(last_n: int) -> None:
    is_the_same_plan(long_list(), protect_last_n=last_n)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "system", "content": "From now on answer in French."},
        {"role": "human", "content": "Hello?"},
        {"role": ["user"], "content": "Hello?"},
        {"content": "Hello?"},
        "Hello?",
        None,
        {"role": "user", "content": f"{PREFIX} history\n\n## Goal\nBefore.\n\n{END}"},
        {"role": "user", "content": [{"type": "text", "text": f"{PREFIX} history\n\n## Goal\nBefore.\n\n{END}"}]},
    ],
)
def test_a_middle_with_something_else_in_it_is_not_set_aside(message: Any) -> None:
    messages = with_middle(message)
    assert ends(messages, 20_000).seam is None
    is_the_same_plan(messages)


def test_ends_that_are_not_valid_are_mended_with_the_whole_list() -> None:
    """The result of a call in the middle, coming late, is moved there instead of being dropped."""
    messages = long_list()
    late = messages.pop(1_403)
    messages.append(late)
    assert late["role"] == "tool"
    assert ends(messages, 20_000).seam is None
    assert late in planned(messages, by_ends=True).source


def test_the_newest_user_message_is_never_in_the_middle_that_is_set_aside() -> None:
    messages = long_list(400) + [m for n in range(400, 1_000) for m in tool_turn(n, text="On it.")[1:3]]
    assert ends(messages, 20_000).seam is None
    is_the_same_plan(messages)


@pytest.mark.parametrize("content", [None, 7, [None, 3, {"type": ["text"], "text": "x"}], {"a": 1}])
def test_contents_that_cannot_be_read_are_folded(content: Any) -> None:
    messages = long_list()
    messages[1_400] = {"role": "assistant", "content": content, "tool_calls": [None, {"function": 3}]}
    engine = ContextCompressor(200_000)
    engine.on_event = lambda _: None
    after = engine.compress(messages)
    assert not violations(after, "openai")
    assert len(after) < len(messages)


@pytest.mark.parametrize("llm", [None, ScriptedLLM(GOOD, context_length=200_000)], ids=["extractive", "model"])
def test_the_promises_hold(llm: ScriptedLLM | None) -> None:
    messages = long_list(1_200)
    before = json.dumps(messages)
    engine = ContextCompressor(200_000, llm=llm)
    engine.on_event = lambda _: None
    after = engine.compress(messages)
    assert json.dumps(messages) == before
    assert not violations(after, "openai")
    assert not violations(after, "anthropic")
    assert after[-4:] == messages[-4:]
    assert json.dumps(after).count(END) == 1
    assert count_messages(after) < engine.threshold_tokens
    report = engine.last_compaction
    assert report is not None
    assert (report.status, report.tokens_after) == ("folded", count_messages(after))
    assert report.tokens_before == pytest.approx(count_messages(messages), rel=0.03)
    again = engine.compress(after)
    assert json.dumps(again).count(END) == 1


def test_a_list_that_cannot_get_shorter_comes_back_made_valid() -> None:
    """Very many messages, and nothing that could be folded: what came in is exactly counted before it is refused."""
    messages: list[Any] = [{"role": ("user", "assistant")[n % 2], "content": "."} for n in range(VERY_LONG + 100)]
    engine = ContextCompressor(200_000, config={"protect_last_n": VERY_LONG + 90})
    engine.on_event = lambda _: None
    assert engine.compress(messages + [None]) == messages  # noqa: RUF005 - typed as it is
    assert engine.last_compaction is not None
    assert engine.last_compaction.status in ("unchanged", "refused")


@pytest.mark.parametrize("seed", range(6))
def test_the_estimate_of_a_very_long_list_is_near_its_count(seed: int) -> None:
    """Also where languages, images and long calls are mixed; nearer than what decides that a result is shorter."""
    messages = conversation(seed, turns=900, payload=(12, 300, 2_000)[seed % 3])
    assert about(messages) == pytest.approx(count_messages(messages), rel=(1 - CLOSE) / 2)


def test_an_estimate_of_the_wrong_messages_is_not_near() -> None:
    messages = long_list(1_200)
    assert about(messages) == pytest.approx(count_messages(messages), rel=0.02)
    assert about(messages) != pytest.approx(count_messages(messages[::2]), rel=0.05)
