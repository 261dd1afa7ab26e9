"""The generators: reproducible, varied, and what they claim to be."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings

from leporello.messages import violations
from leporello.messages.rules import message_faults
from leporello.testing.conversations import End, conversation
from leporello.testing.defects import DEFECTS, broken_conversation
from leporello.testing.strategies import messages, valid_conversations


def test_the_same_number_gives_the_same_conversation_in_every_process() -> None:
    code = (
        "import json; from leporello.testing.conversations import conversation as c; print(json.dumps(c(11, turns=5)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert json.loads(run.stdout) == conversation(11, turns=5)


def test_the_seeded_generators_need_no_hypothesis() -> None:
    code = "import sys, leporello.testing.defects; print('hypothesis' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout == b"False\n"


@pytest.mark.parametrize("end", ["user", "assistant", "tool"])
def test_the_end_can_be_chosen(end: End) -> None:
    assert {conversation(seed, end=end)[-1]["role"] for seed in range(50)} == {end}


def test_features_can_be_left_out() -> None:
    plain = [conversation(s, tools=False, images=False, thinking=False, extras=False, system=False) for s in range(50)]
    assert {key for messages in plain for message in messages for key in message} == {"role", "content"}
    assert {message["role"] for messages in plain for message in messages} == {"user", "assistant"}


def test_chance_brings_everything_that_matters() -> None:
    text = json.dumps([conversation(seed) for seed in range(100)], ensure_ascii=False)
    for piece in (
        "image_url",
        "thinking_blocks",
        "redacted_thinking",
        "cache_control",
        "_note",
        "timestamp",
        "metadata",
    ):
        assert f'"{piece}"' in text
    for piece in ("你好世界", "🙂", '"content": null', '"content": ""', "developer", "functions.run:"):
        assert piece in text


def test_long_payloads_are_long() -> None:
    longest = max(len(str(m["content"])) for m in conversation(1, turns=20, payload=5000) if m["role"] == "tool")
    assert longest > 5000


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(DEFECTS))
def test_each_defect_breaks_most_conversations(name: str) -> None:
    from random import Random

    broken = 0
    for seed in range(30):
        messages: list[Any] = conversation(seed, turns=4, end="tool")
        DEFECTS[name](Random(seed), messages)
        broken += bool(violations(messages, "openai") or violations(messages, "anthropic"))
    assert broken >= 10


def test_defects_do_not_spoil_later_conversations() -> None:
    def seen(seed: int) -> str:
        return str([v.code for v in violations(broken_conversation(seed, defects=8), "openai")])

    first = [seen(seed) for seed in range(40)]
    assert [seen(seed) for seed in range(40)] == first


@given(messages("tool") | messages("assistant") | messages("system") | messages("user") | messages())
@settings(max_examples=60, deadline=None)
def test_single_messages_are_whole(message: dict[str, Any]) -> None:
    assert message_faults(message, message["role"]) == []


@given(valid_conversations(min_turns=2, max_turns=3, end="user", system=True))
@settings(max_examples=40, deadline=None)
def test_the_parameters_hold(messages: list[dict[str, Any]]) -> None:
    assert messages[0]["role"] in {"system", "developer"}
    assert messages[-1]["role"] == "user"
    assert 2 <= sum(message["role"] == "user" for message in messages) <= 3
