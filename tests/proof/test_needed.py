"""Needed later: what is needed follows from the transcript, and only a window that tells as much has all three."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from leporello.messages import Message, tool_result
from leporello.proof.baselines import masked, names, names_and_shuffled_words, names_and_words
from leporello.proof.exact_values import error_texts, values_in
from leporello.proof.lines import Units, commands_in, units_of
from leporello.proof.needed import Cut, Kept, cuts_by_growth
from leporello.testing.coding_session import coding_session
from leporello.testing.strategies import valid_conversations
from leporello.tokens import count_messages


def call(number: int, name: str, arguments: str) -> Message:
    function = {"name": name, "arguments": arguments}
    made = {"id": f"c{number}", "type": "function", "function": function}
    return {"role": "assistant", "content": None, "tool_calls": [made]}


BEFORE: list[Message] = [
    {"role": "system", "content": "The repository is in /srv/harbour."},
    {"role": "user", "content": "The tide table in src/tide.py is late."},
    call(1, "read_file", '{"path": "src/tide.py"}'),
    tool_result("c1", "TIDE_LIMIT = 4711\ndef load_table(port): ...\nother_name = 1"),
    {"role": "assistant", "content": "load_table in src/tide.py stops at TIDE_LIMIT."},
]
AFTER: list[Message] = [
    {"role": "user", "content": "What about other_name in /srv/harbour?"},
    {"role": "assistant", "content": "I raise TIDE_LIMIT = 4711 in src/tide.py, other_name stays."},
]


def cut() -> Cut:
    return Cut([*BEFORE, *AFTER], len(BEFORE))


def test_needed_is_what_the_assistant_writes_before_it_is_shown_again() -> None:
    assert {need.value for need in cut().needs} == {"TIDE_LIMIT", "4711", "src/tide.py"}


def test_what_stands_in_the_system_prompt_is_not_needed() -> None:
    """Every policy keeps the system prompt."""
    said: list[Message] = [*BEFORE, {"role": "assistant", "content": "It is in /srv/harbour and src/tide.py."}]
    assert [need.value for need in Cut(said, len(BEFORE)).needs] == ["src/tide.py"]


def test_what_was_never_said_before_is_not_needed() -> None:
    said: list[Message] = [*BEFORE, {"role": "assistant", "content": "I write src/new_file.py."}]
    assert Cut(said, len(BEFORE)).needs == []


def test_only_the_next_messages_count() -> None:
    wait: Message = {"role": "user", "content": "Wait."}
    far: list[Message] = [*BEFORE, *[wait] * 80, AFTER[1]]
    assert Cut(far, len(BEFORE)).needs == []


def test_the_whole_history_has_everything() -> None:
    whole = cut().score(BEFORE).all
    assert whole == Kept(n=3, present=3, in_context=3, pairs=2, together=2)


def test_nothing_has_nothing() -> None:
    assert cut().score([]).all == Kept(n=3, pairs=2)


def test_a_name_alone_is_present_and_out_of_context() -> None:
    score = cut().score([{"role": "user", "content": "TIDE_LIMIT\n4711\nsrc/tide.py"}]).all
    assert (score.present, score.in_context, score.together) == (3, 0, 0)


def test_a_file_beside_a_value_is_context_and_a_neighbouring_line_is_not() -> None:
    beside = cut().score([{"role": "user", "content": "src/tide.py: TIDE_LIMIT"}]).all
    below = cut().score([{"role": "user", "content": "src/tide.py\nTIDE_LIMIT"}]).all
    assert (beside.present, beside.in_context, beside.together) == (2, 2, 1)
    assert (below.present, below.in_context, below.together) == (2, 0, 0)


def test_words_that_never_stood_beside_a_value_are_no_context() -> None:
    wrong = cut().score([{"role": "user", "content": "src/tide.py lighthouse keeper wanders"}]).all
    assert (wrong.present, wrong.in_context) == (1, 0)


def test_a_command_is_context() -> None:
    said: list[Message] = [
        *BEFORE,
        call(2, "terminal", '{"command": "pytest -q tests/test_tide.py"}'),
        tool_result("c2", "1 failed"),
        {"role": "assistant", "content": "I run tests/test_tide.py again."},
    ]
    assert commands_in(said) == {"pytest"}
    at = Cut(said, len(said) - 1)
    assert at.score([{"role": "user", "content": "pytest tests/test_tide.py"}]).all.in_context == 1
    assert at.score([{"role": "user", "content": "tests/test_tide.py"}]).all.in_context == 0


def test_the_kinds_of_values() -> None:
    text = (
        "HRB-1042: see https://example.org/tide and /srv/app.toml: KeyError in load_table() at commit 3f2a9bc, "
        "id 8c1f2e6a-41d7-4c55-9f0e-2b7a6d90e113, maxRetries 250000 and 1.25."
    )
    found = {value.text: value.kind for value in values_in(text)}
    assert found == {
        "HRB-1042": "identifier",
        "https://example.org/tide": "url",
        "/srv/app.toml": "path",
        "KeyError": "error",
        "load_table": "function",
        "3f2a9bc": "hash",
        "8c1f2e6a-41d7-4c55-9f0e-2b7a6d90e113": "hash",
        "maxRetries": "identifier",
        "250000": "number",
        "1.25": "number",
    }
    assert list(error_texts("ValueError: the crane is not registered\nok")) == ["the crane is not registered"]


def test_plain_words_are_no_values() -> None:
    assert list(values_in("The crane and/or the berth is free, e.g. today at 10:30 or so.")) == []


def test_a_value_is_found_as_a_whole_word_only() -> None:
    units = Units(["load_table_now", "load_table(port)", "see 47110"])
    assert units.holding("load_table") == [1]
    assert "4711" not in units


def test_a_call_is_one_unit_and_text_is_one_per_line() -> None:
    message: Message = {**call(3, "edit", '{"path": "a.py", "new": "x\\ny", "n": 3}'), "content": "one\n\ntwo"}
    assert units_of(message) == ["one", "two", "edit\na.py\nx\ny\n3"]


def test_cuts_follow_from_the_history_alone() -> None:
    session = coding_session(40)
    cuts = cuts_by_growth(session, 16_000)
    assert len(cuts) > 3
    assert all(session[at]["role"] == "assistant" for at in cuts)
    assert 8_000 <= count_messages(session[: cuts[0]]) < 12_000


@pytest.fixture(scope="module")
def cuts() -> list[Cut]:
    session = coding_session(60)
    return [Cut(session, at) for at in cuts_by_growth(session, 16_000)]


def total(cuts: list[Cut], keep: object, budget: int = 6_000) -> Kept:
    session = coding_session(60)
    return sum((cut.score(keep(session[: cut.at], budget)).all for cut in cuts), Kept())  # type: ignore[operator]


@pytest.mark.slow
def test_planted_a_list_of_names_has_everything_but_what_belongs_together(cuts: list[Cut]) -> None:
    listed, mask = total(cuts, names), total(cuts, masked)
    assert listed.n == mask.n > 30
    assert listed.present > mask.present
    assert listed.in_context < 0.2 * mask.in_context
    assert listed.together < 0.1 * mask.together


@pytest.mark.slow
def test_planted_a_list_with_words_fails_by_what_belongs_together(cuts: list[Cut]) -> None:
    listed, mask = total(cuts, names_and_words), total(cuts, masked)
    assert listed.in_context > mask.in_context
    assert listed.together < 0.1 * mask.together


@pytest.mark.slow
def test_planted_shuffled_words_are_no_context(cuts: list[Cut]) -> None:
    right, shuffled = total(cuts, names_and_words), total(cuts, names_and_shuffled_words)
    assert shuffled.present == pytest.approx(right.present, rel=0.02)  # other words are longer or shorter
    assert shuffled.in_context < 0.8 * right.in_context


@settings(max_examples=60)
@given(valid_conversations(), st.integers(1, 40))
def test_any_history_is_its_own_ceiling(messages: list[Message], at: int) -> None:
    looked = Cut(messages, min(at, len(messages)))
    score = looked.score(messages[: looked.at]).all
    assert (score.present, score.in_context, score.together) == (score.n, score.n, score.pairs)
