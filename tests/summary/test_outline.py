"""Very long conversations: the newest part is read in full, the older part in outline, and no secret is halved."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings, strategies as st

from leporello.llm import ScriptedLLM
from leporello.redact import redact_messages
from leporello.summary import Summariser, SummaryRequest
from leporello.summary.artifacts import collect_turns
from leporello.summary.artifacts.reading import read_turns
from leporello.summary.digest import Turn, digest
from leporello.summary.extract import extract_summary
from leporello.summary.outline import (
    IN_FULL,
    LEAST_IN_FULL,
    PER_MESSAGE,
    WITH_CALLS,
    in_full_from,
    length_of,
    outline,
)

if TYPE_CHECKING:
    from leporello.messages import Message
    from leporello.summary.artifacts import Artifacts

pytestmark = pytest.mark.slow

FILLER = "    crane = assign(booking, slot)  # as before\n"
ERROR = "PermissionError: [Errno 13] Permission denied: '/srv/harbour/locks/berth-17.lock'"
SECRET = "sk-ant-api03-" + "Zq7" * 31 + "AA"
PEM = "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIEowIBAAKCAQEAvq8sT3cHn0bN2lG5uYx1\n" * 30


def turn(number: int, output: str, **arguments: Any) -> list[Message]:
    """Return a user message, a call with its result, and a reply."""
    function = {"name": "write_file", "arguments": json.dumps(arguments or {"path": f"src/part_{number}.py"})}
    return [
        {"role": "user", "content": f"Please look at berth {number}."},
        {"role": "assistant", "content": None, "tool_calls": [{"id": f"c{number}", "function": function}]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": output},
        {"role": "assistant", "content": f"Berth {number} is in order."},
    ]


def very_long(first: str = FILLER, turns: int = 800, **arguments: Any) -> list[Message]:
    """Return far more than is read in full; `first` is an old output, `arguments` those of the call it answers."""
    bulk = FILLER * 225
    assert len(bulk) * turns > 2 * IN_FULL
    old = turn(0, bulk + first, **arguments)
    return old + [message for number in range(1, turns) for message in turn(number, bulk)]


def gathered(messages: list[Message]) -> Artifacts:
    older = outline(redact_messages(messages))
    return collect_turns(read_turns(redact_messages(messages), older.stop), older)


def everything_said_is_shown(turns: list[Turn], messages: list[Message]) -> None:
    text = "\n".join(turn.text for turn in turns)
    for message in messages:
        if message["role"] != "tool" and message["content"]:
            assert message["content"] in text


class TestReach:
    """How far back a conversation is read in full."""

    def test_everything_is_up_to_the_limit(self) -> None:
        messages = [{"role": "user", "content": "x" * (IN_FULL // 4 - PER_MESSAGE)} for _ in range(4)]
        assert in_full_from(messages) == 0
        assert outline(redact_messages(messages)).blocks == []

    def test_beyond_it_what_is_read_in_full_shrinks_by_twice_what_lies_before_it(self) -> None:
        page: Message = {"role": "user", "content": "x" * (10_000 - PER_MESSAGE)}
        read = [
            sum(length_of(m) + PER_MESSAGE for m in messages[in_full_from(messages) :])
            for messages in ([page] * pages for pages in (300, 330, 450, 600, 3_000))
        ]
        assert read[0] == IN_FULL
        assert read == sorted(read, reverse=True)
        assert read[1] == 0.8 * IN_FULL
        assert read[-1] == read[-2] == LEAST_IN_FULL

    def test_many_short_messages_count_too(self) -> None:
        messages: list[Message] = [{"role": "user", "content": "yes"}] * 10_000
        assert len(messages) - in_full_from(messages) == LEAST_IN_FULL // (PER_MESSAGE + 3)
        assert in_full_from(messages[:4_000]) == 0

    def test_no_result_is_parted_from_its_call(self) -> None:
        messages = very_long()
        assert messages[in_full_from(messages)]["role"] != "tool"

    @settings(max_examples=30, deadline=None)
    @given(odd=st.none() | st.integers() | st.lists(st.integers()) | st.dictionaries(st.text(), st.integers()))
    def test_messages_that_cannot_be_read_are_survived(self, odd: Any) -> None:
        broken = [odd, {"role": "assistant", "tool_calls": odd}, {"role": odd, "content": odd, "tool_calls": [odd]}]
        messages = [*broken, *very_long(turns=700), *broken]
        assert 0 < in_full_from(messages) == outline(redact_messages(messages)).stop


class TestDigest:
    """What a model reads of a very long conversation."""

    def test_what_was_said_is_complete(self) -> None:
        messages = very_long()
        turns = digest(redact_messages(messages), older=outline(redact_messages(messages)))
        everything_said_is_shown(turns, messages)
        with pytest.raises(AssertionError):
            everything_said_is_shown(turns[1:], messages)

    def test_it_covers_every_message_once(self) -> None:
        messages = very_long()
        turns = digest(redact_messages(messages), older=outline(redact_messages(messages)))
        assert turns[0].index == 0
        assert turns[-1].stop == len(messages)
        assert all(one.stop == next_.index for one, next_ in pairwise(turns))

    def test_calls_have_a_line_where_they_are_not_too_old(self) -> None:
        messages = very_long()
        older = outline(redact_messages(messages))
        text = "\n".join(block.text for block in older.blocks)
        assert f"src/part_{(older.stop - WITH_CALLS) // 4 + 1}.py" in text
        assert "src/part_1.py" not in text

    def test_it_is_a_fraction_of_the_conversation(self) -> None:
        messages = very_long()
        turns = digest(redact_messages(messages), older=outline(redact_messages(messages)))
        assert sum(len(turn.body) for turn in turns) < sum(map(length_of, messages)) / 10

    @pytest.mark.parametrize(
        "recent",
        [
            turn(1, f"{FILLER * 9}{'x' * 60} export KEY={SECRET}"),
            turn(1, f"{FILLER * 9}{PEM}"),
            turn(1, "ok", content="word " * 70 + f"KEY={SECRET} " + "word " * 70),
            turn(1, f"KEY={SECRET}"),
        ],
        ids=["in the last line", "a key without an end", "where arguments are cut", "in a short output"],
    )
    def test_nothing_of_a_secret_is_left(self, recent: list[Message]) -> None:
        messages = very_long()
        place = in_full_from(messages) - 100
        place -= place % 4
        messages[place:place] = recent
        text = "\n".join(
            turn.text for turn in digest(redact_messages(messages), older=outline(redact_messages(messages)))
        )
        assert f"#{place} user" in text
        assert "Zq7Zq7" not in text
        assert "MIIEow" not in text

    def test_a_complete_summary_reads_everything(self) -> None:
        messages = very_long(first=f"\n{ERROR}\n{FILLER * 40}")
        for complete in (True, False):
            llm = ScriptedLLM("## Goal\nGo on.", context_length=8_000_000)
            request = SummaryRequest(messages=redact_messages(messages), budget_tokens=2_000, complete=complete)
            Summariser(llm).summarise(request)
            assert (ERROR in "\n".join(llm.prompts)) == complete

    def test_a_window_or_two_hold_all_of_it(self) -> None:
        llm = ScriptedLLM("## Goal\nGo on.", context_length=200_000)
        Summariser(llm).summarise(SummaryRequest(messages=redact_messages(very_long(turns=2_500)), budget_tokens=2_000))
        assert len(llm.calls) <= 3


class TestArtifacts:
    """What is found without a model in turns that are only outlined."""

    def test_an_error_at_the_end_of_an_old_output(self) -> None:
        found = gathered(very_long(first=f"Traceback\n{ERROR}\n"))
        assert [(trace.text, trace.last) for trace in found.errors] == [(ERROR, 2)]

    def test_half_of_a_line_is_no_error(self) -> None:
        assert gathered(very_long(first=f"{'x' * 400} {ERROR}")).errors == ()

    def test_files_of_old_calls_with_what_happened_to_them(self) -> None:
        files = {trace.text: trace.actions for trace in gathered(very_long(path="src/first.py")).files}
        assert files["src/first.py"] == (("written", 1),)
        assert files["src/part_1.py"] == (("written", 1),)

    def test_files_in_old_commands(self) -> None:
        files = {trace.text for trace in gathered(very_long(command="bash scripts/migrate.sh")).files}
        assert "scripts/migrate.sh" in files

    def test_old_decisions_and_demands(self) -> None:
        messages = very_long()
        messages[0] = {"role": "user", "content": "Never touch migrations/. We decided to go with advisory locks."}
        text = extract_summary(redact_messages(messages), budget_tokens=4_000)
        assert "Never touch migrations/." in text
        assert "We decided to go with advisory locks." in text

    def test_a_host_s_words_are_not_taken_for_the_user_s(self) -> None:
        messages = very_long()
        messages[0] = {"role": "user", "content": "<system-reminder>We decided to use tabs.</system-reminder> Go on."}
        assert all("tabs" not in trace.text for trace in gathered(messages).decisions)
