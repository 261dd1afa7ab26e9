"""The four phases on the documentation's own example, and one claim about each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from leporello.compressor import ContextCompressor
from leporello.llm import ScriptedLLM
from leporello.messages import Message, violations
from leporello.messages.fixed import CLEARED_OUTPUT
from leporello.summary.placement import ACKNOWLEDGEMENT, DONE_FOR_NEWEST, END, LEAD_IN, NOTE_PREFIX, PREFIX

if TYPE_CHECKING:
    from leporello.engine import CompactionReport

WINDOW = 200_000
GOOD = "## Goal\nSet up a FastAPI project.\n\n## Progress\n### Done\n- Created main.py."


def call(number: int, name: str = "terminal", **arguments: Any) -> Message:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}],
    }


def result(number: int, content: str) -> Message:
    return {"role": "tool", "tool_call_id": f"c{number}", "content": content}


def documentation_example() -> list[Message]:
    """The 45 messages, about 95K tokens, of the example in Hermes Agent's documentation."""
    file = "\n".join(f"line {n}: value = compute({n})" for n in range(225))
    messages: list[Message] = [
        {"role": "system", "content": "You are a helpful assistant..."},
        {"role": "user", "content": "Help me set up a FastAPI project"},
        call(2, command="mkdir project"),
        result(2, "directory created"),
        call(4, "write_file", path="main.py", content="app = FastAPI()"),
        result(4, "file written (2.3KB)"),
    ]
    while len(messages) < 38:
        index = len(messages)
        if index in (20, 25):  # two calls at once, so that message 25 is an assistant's
            both = call(index, "write_file", path=f"a_{index}.py", content=file)
            both["tool_calls"] += call(index + 1, "write_file", path=f"b_{index}.py", content=file)["tool_calls"]
            messages += [both, result(index, f"{file}\nwritten"), result(index + 1, f"{file}\nwritten")]
        elif index == 23:
            messages.append({"role": "assistant", "content": "The endpoints are there. Shall I add tests?"})
            messages.append({"role": "user", "content": "Yes, add tests"})
        else:
            messages.append(call(index, "write_file", path=f"tests/test_{index}.py", content=file))
            messages.append(result(index, f"{file}\nwritten"))
    messages += [
        call(38, command="pytest"),
        result(38, "8 passed, 2 failed\n" + "x" * 5_000),
        {"role": "user", "content": "Fix the failing tests"},
        call(41, "read_file", path="tests/test_api.py"),
        result(41, "import pytest\n" + "y" * 3_000),
        {"role": "assistant", "content": "I see the issue with the test fixtures..."},
        {"role": "user", "content": "Great, also add error handling"},
    ]
    return messages


def test_the_example_is_what_the_documentation_says() -> None:
    messages = documentation_example()
    assert len(messages) == 45
    assert not violations(messages, "openai")


def test_45_messages_become_25_with_the_named_indexes() -> None:
    messages = documentation_example()
    engine = ContextCompressor(WINDOW, config={"masked_zone": 0}, llm=ScriptedLLM(GOOD, context_length=WINDOW))
    compacted = engine.compress(messages)
    assert len(compacted) == 25
    assert compacted[1:4] == messages[1:4]
    assert compacted[4]["content"].startswith(PREFIX)
    assert compacted[5:] == messages[25:]
    assert engine.last_compaction is not None
    assert engine.last_compaction.status == "folded"


def test_the_system_prompt_gets_its_note_once() -> None:
    engine = ContextCompressor(WINDOW, llm=ScriptedLLM(GOOD, context_length=WINDOW))
    once = engine.compress(documentation_example())
    twice = engine.compress([*once[:-1], *documentation_example()[4:]])
    assert once[0]["content"].count(NOTE_PREFIX) == 1
    assert twice[0] == once[0]


def test_old_tool_results_in_the_head_are_cleared() -> None:
    messages = documentation_example()
    messages[3] = messages[3] | {"content": "d" * 201}
    compacted = ContextCompressor(WINDOW, llm=ScriptedLLM(GOOD, context_length=WINDOW)).compress(messages)
    assert compacted[3]["content"] == CLEARED_OUTPUT == "[Old tool output cleared to save context space]"


def test_a_tool_result_of_200_characters_stays() -> None:
    messages = documentation_example()
    messages[3] = messages[3] | {"content": "d" * 200}
    assert ContextCompressor(WINDOW).compress(messages)[3] == messages[3]


def test_the_summariser_reads_originals_not_placeholders() -> None:
    messages = documentation_example()
    messages[3] = messages[3] | {"content": "d" * 300 + " needle-4711 "}
    llm = ScriptedLLM(GOOD, context_length=WINDOW)
    ContextCompressor(WINDOW, llm=llm).compress(messages)
    prompt = "".join(llm.prompts)
    assert CLEARED_OUTPUT not in prompt
    assert "needle-4711" in prompt


def test_the_earlier_summary_is_updated_and_replaced() -> None:
    llm = ScriptedLLM([GOOD, "## Goal\nUpdated goal."], context_length=WINDOW)
    engine = ContextCompressor(WINDOW, llm=llm)
    once = engine.compress(documentation_example())
    twice = engine.compress([*once[:-1], *documentation_example()[4:]])
    assert "Created main.py." in llm.prompts[1]
    blocks = [message for message in twice if PREFIX in str(message.get("content"))]
    assert len(blocks) == 1
    assert blocks[0]["content"].count(PREFIX) == 1
    assert "Updated goal." in blocks[0]["content"]


def test_a_new_engine_finds_the_summary_in_the_list() -> None:
    once = ContextCompressor(WINDOW, llm=ScriptedLLM(GOOD, context_length=WINDOW)).compress(documentation_example())
    llm = ScriptedLLM("## Goal\nUpdated goal.", context_length=WINDOW)
    restarted = ContextCompressor(WINDOW, llm=llm)
    twice = restarted.compress([*once[:-1], *documentation_example()[4:]])
    assert "Created main.py." in llm.prompts[0]
    assert sum(END in str(message.get("content")) for message in twice) == 1


def test_the_focus_topic_reaches_the_summariser() -> None:
    llm = ScriptedLLM(GOOD, context_length=WINDOW)
    ContextCompressor(WINDOW, llm=llm).compress(documentation_example(), focus_topic="the database schema")
    assert "the database schema" in llm.prompts[0]


def test_without_a_system_message_the_note_stands_in_the_summary() -> None:
    compacted = ContextCompressor(WINDOW, llm=ScriptedLLM(GOOD, context_length=WINDOW)).compress(
        documentation_example()[1:]
    )
    assert all(message["role"] != "system" for message in compacted)
    (summary,) = [m for m in compacted if str(m.get("content")).startswith(PREFIX)]
    assert NOTE_PREFIX in summary["content"]


def test_a_summary_says_that_it_is_history() -> None:
    compacted = ContextCompressor(WINDOW).compress(documentation_example())
    assert "the newest user message decides" in compacted[4]["content"]


class TestWhereTheSummaryStands:
    """Each row of the table, made to happen by the shape of the conversation."""

    @staticmethod
    def conversation(shape: str) -> list[Message]:
        """Write a conversation: s u a for messages, c for a call with its result."""
        messages: list[Message] = []
        for number, letter in enumerate(shape):
            if letter == "c":
                messages += [call(number, "read_file", path=f"src/f{number}.py"), result(number, f"{number} " * 900)]
            else:
                role = {"s": "system", "u": "user", "a": "assistant"}[letter]
                messages.append({"role": role, "content": f"{letter}{number} " * (9 if letter == "s" else 400)})
        return messages

    def compact(self, shape: str, last_n: int) -> tuple[list[Message], CompactionReport]:
        engine = ContextCompressor(1_000_000, config={"protect_last_n": last_n, "target_ratio": 0.1, "masked_zone": 0})
        engine.tail_token_budget = 0
        compacted = engine.compress(self.conversation(shape))
        assert not violations(compacted, "openai")
        assert not violations(compacted, "anthropic")
        assert engine.last_compaction is not None
        return compacted, engine.last_compaction

    def test_between_user_and_user_it_is_an_assistant_message(self) -> None:
        compacted, _ = self.compact("uauauauaua" + "uau", last_n=3)
        assert [m["role"] for m in compacted[:4]] == ["user", "assistant", "user", "assistant"]
        assert compacted[3]["content"].startswith(PREFIX)

    def test_between_tool_and_assistant_it_is_a_user_message(self) -> None:
        compacted, _ = self.compact("suc" + "cccc" + "aucc", last_n=6)
        position = next(i for i, m in enumerate(compacted) if str(m.get("content")).startswith(PREFIX))
        assert [m["role"] for m in compacted[position - 1 : position + 2]] == ["tool", "user", "assistant"]

    def test_between_assistant_and_user_an_acknowledgement_follows(self) -> None:
        compacted, _ = self.compact("sua" + "uauaua" + "uau", last_n=3)
        assert [m["role"] for m in compacted] == [
            "system",
            "user",
            "assistant",
            "user",
            "assistant",
            "user",
            "assistant",
            "user",
        ]
        assert compacted[3]["content"].startswith(PREFIX)
        assert compacted[4]["content"] == ACKNOWLEDGEMENT

    def test_between_user_and_assistant_a_line_leads_in(self) -> None:
        shape = "uau" + "auauau" + "aucc"
        compacted, _ = self.compact(shape, last_n=6)
        assert compacted[3] == {"role": "assistant", "content": LEAD_IN}
        assert compacted[4]["role"] == "user"
        assert compacted[4]["content"].startswith(PREFIX)
        assert compacted[5:] == self.conversation(shape)[-6:]

    def test_a_tool_loop_after_a_newest_user_message_in_the_head_is_folded(self) -> None:
        """The summary stands directly before the newest user message and tells what was done for it."""
        compacted, _ = self.compact("su" + "c" * 30, last_n=4)
        assert [m["role"] for m in compacted[:5]] == ["system", "user", "assistant", "user", "assistant"]
        assert compacted[1]["content"].startswith(PREFIX)
        assert DONE_FOR_NEWEST in compacted[1]["content"]
        assert compacted[2]["content"] == ACKNOWLEDGEMENT
        assert compacted[3] == self.conversation("su")[1]
        assert compacted[4:] == self.conversation("su" + "c" * 30)[-4:]

    def test_a_newest_user_message_in_the_middle_is_kept(self) -> None:
        shape = "suauauau" + "c" * 30
        compacted, _ = self.compact(shape, last_n=4)
        newest = [m for m in compacted if m["role"] == "user"][-1]
        assert newest == self.conversation("suauauau")[-1]
        assert len(compacted) < 14
        position = compacted.index(newest)
        assert [str(m["content"])[:20] for m in compacted[position - 2 : position]] == [PREFIX, ACKNOWLEDGEMENT[:20]]
        assert DONE_FOR_NEWEST in compacted[position - 2]["content"]

    @pytest.mark.parametrize("shape", ["uau" + "auauau" + "aucc", "su" + "c" * 30, "suc" + "cccc" + "aucc"])
    def test_no_message_with_thinking_or_calls_holds_a_summary(self, shape: str) -> None:
        messages = self.conversation(shape)
        thinking = {"type": "thinking", "thinking": "hm", "signature": "sig"}
        for index, message in enumerate(messages):
            if message["role"] == "assistant":
                parts = [thinking, {"type": "text", "text": "I see."}]
                messages[index] = {**message, "content": parts}
        engine = ContextCompressor(1_000_000, config={"protect_last_n": 6})
        engine.tail_token_budget = 0
        compacted = engine.compress(messages)
        assert any(PREFIX in str(message["content"]) for message in compacted)
        for message in compacted:
            if message["role"] == "assistant" and isinstance(message["content"], list):
                assert message["content"] == [thinking, {"type": "text", "text": "I see."}]

    @pytest.mark.parametrize("shape", ["uau" + "auauau" + "aucc", "su" + "c" * 30])
    def test_what_stood_behind_the_summary_comes_back_whole(self, shape: str) -> None:
        from leporello.summary.placement import strip_summary

        compacted, _ = self.compact(shape, last_n=6)
        stripped = strip_summary(compacted, compacted)
        assert all(message in self.conversation(shape) for message in stripped.messages[4:])
