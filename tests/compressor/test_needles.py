"""Exact things deep inside long payloads survive, whatever the summariser does; secrets do not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from leporello import ContextCompressor
from leporello.errors import NetworkError
from leporello.llm import ScriptedLLM
from leporello.tokens import count_messages

if TYPE_CHECKING:
    from leporello.messages import Message

pytestmark = pytest.mark.slow

NEEDLES = (
    "PermissionError: [Errno 13] Permission denied: '/srv/harbour/locks/berth-17.lock'",
    "src/harbour/berths/advisory_locks.py",
    "job-48151-eu",
)
AT_THE_END_OF_ARGUMENTS = ("scripts/migrate_berths.sh", "PORT-90417")
SECRET = "sk-ant-api03-" + "Zq7" * 31 + "AA"

SUMMARISERS: dict[str, Any] = {
    "good": "## Goal\nFix the locks.",
    "none": None,
    "empty": "",
    "failing": NetworkError("connection refused"),
    "forgetful": "## Goal\nNothing worth mentioning.",
}


def conversation_with_needles() -> list[Message]:
    """Return a conversation whose needles lie in the middle of a 200 KB output and at the end of long arguments.

    The listing after them fills the budget of the tail, so that both are folded.
    """
    filler = "\n".join(f"{n:05d} INFO harbour.gate trailer passed in {n % 97} ms" for n in range(1_900))
    output = f"{filler}\n{NEEDLES[0]}\n  at {NEEDLES[1]}:88 while running {NEEDLES[2]}\n{filler}\nexport KEY={SECRET}"
    script = "echo checking\n" * 400 + f"bash {AT_THE_END_OF_ARGUMENTS[0]}  # ticket {AT_THE_END_OF_ARGUMENTS[1]}"
    messages: list[Message] = [
        {"role": "system", "content": "You work on a port's software."},
        {"role": "user", "content": "Why do the locks fail?"},
        {"role": "assistant", "content": "I look at the log."},
        {"role": "user", "content": "Please do."},
    ]
    for number, (command, result) in enumerate([("cat log", output), (script, "done"), ("ls", "a b c\n" * 20_000)]):
        function = {"name": "terminal", "arguments": json.dumps({"command": command})}
        call = {"id": f"c{number}", "type": "function", "function": function}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": result})
    for number in range(12):
        messages.append({"role": "assistant", "content": f"Step {number} is done."})
        messages.append({"role": "user", "content": f"Go on with step {number + 1}."})
    return messages


@pytest.mark.parametrize("zone", [0, 0.1])
@pytest.mark.parametrize("kind", SUMMARISERS)
def test_errors_paths_and_numbers_deep_inside_are_in_the_result(kind: str, zone: float) -> None:
    answer = SUMMARISERS[kind]
    llm = None if answer is None else ScriptedLLM(answer, context_length=32_000)
    messages = conversation_with_needles()
    result = ContextCompressor(200_000, config={"masked_zone": zone}, llm=llm).compress(messages)
    text = "\n".join(f"{message.get('content')} {message.get('tool_calls')}" for message in result)
    assert count_messages(result) < count_messages(messages) / 4
    assert zone or len(result) < 30, "what holds the needles was not folded"
    for needle in (*NEEDLES, *AT_THE_END_OF_ARGUMENTS):
        assert needle in text, f"{needle} is lost"


def test_the_check_can_fail() -> None:
    """A head-and-tail cut, as others do it, loses the needles."""
    text = str(conversation_with_needles()[5]["content"])
    assert all(needle not in text[:4_000] + text[-1_500:] for needle in NEEDLES)


@pytest.mark.parametrize("kind", SUMMARISERS)
def test_secrets_reach_neither_the_summariser_nor_the_summary(kind: str) -> None:
    answer = SUMMARISERS[kind]
    llm = None if answer is None else ScriptedLLM(answer, context_length=32_000)
    result = ContextCompressor(200_000, llm=llm).compress(conversation_with_needles())
    assert SECRET not in json.dumps(result)
    assert llm is None or all(SECRET not in prompt for prompt in llm.prompts)


@pytest.mark.parametrize("kind", SUMMARISERS)
def test_they_are_still_there_after_three_compactions(kind: str) -> None:
    answer = SUMMARISERS[kind]
    llm = None if answer is None else ScriptedLLM(answer, context_length=32_000)
    engine = ContextCompressor(200_000, llm=llm)
    messages = conversation_with_needles()
    for number in range(3):
        messages = engine.compress(messages)
        for step in range(30):
            messages.append({"role": "assistant", "content": f"Round {number}, step {step}: the gate is open. " * 40})
            messages.append({"role": "user", "content": f"Go on, {number}-{step}."})
    text = "\n".join(str(message.get("content")) for message in messages)
    for needle in (*NEEDLES, *AT_THE_END_OF_ARGUMENTS):
        assert needle in text, f"{needle} is lost"
