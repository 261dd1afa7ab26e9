"""The table of docs/decisions/store.md: what a host hands over, and how many rows that adds and supersedes."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import pytest
from hypothesis import assume, example, given, settings, strategies as st
from tests.fixtures.databases import SOAK

from leporello.messages import Message, is_system, leading_systems
from leporello.store import Store, open_store
from leporello.store.reconcile import full_plan
from leporello.testing.conversations import conversation
from leporello.testing.strategies import valid_conversations

if TYPE_CHECKING:
    from collections.abc import Callable

DATABASES = SOAK

Messages: TypeAlias = list[Message]
CLEARED = "[Old tool output cleared to save context space]"


def a_conversation(turns: int = 60, *, system_inside: bool = False) -> Messages:
    return conversation(7, turns=turns, system=True, payload=300, system_inside=system_inside)


def numbered(count: int, word: str = "new") -> Messages:
    return [{"role": ("user", "assistant")[n % 2], "content": f"{word} message {n}"} for n in range(count)]


def body(messages: Messages) -> Messages:
    return messages[leading_systems(messages) :]


def after_a_turn(messages: Messages) -> Messages:
    """Return the messages without a tool result whose call is gone at their front."""
    start = next(n for n, m in enumerate(messages) if m["role"] != "tool")
    return messages[start:]


def same(messages: Messages) -> Messages:
    return json.loads(json.dumps(messages))  # type: ignore[no-any-return]


def cleared(messages: Messages) -> Messages:
    def clear(message: Message) -> Message:
        content = message.get("content")
        long = message["role"] == "tool" and isinstance(content, str) and len(content) > len(CLEARED)
        return {**message, "content": CLEARED} if long else message

    return [*map(clear, messages[:-1]), messages[-1]]


def shortened(messages: Messages) -> Messages:
    def cut(message: Message) -> Message:
        content = message.get("content")
        if message["role"] != "tool" or not isinstance(content, str):
            return message
        return {**message, "content": content[: len(content) // 2]}

    return list(map(cut, messages))


def arguments_shortened(messages: Messages) -> Messages:
    def cut(call: dict[str, Any]) -> dict[str, Any]:
        return {**call, "function": {**call["function"], "arguments": "{}"}}

    return [{**m, "tool_calls": list(map(cut, m["tool_calls"]))} if m.get("tool_calls") else m for m in messages]


def head_dropped(messages: Messages) -> Messages:
    rest = body(messages)
    return [*messages[:1], *after_a_turn(rest[len(rest) // 3 :])] if is_system(messages[0]) else rest[1:]


def summary_in_front(messages: Messages) -> Messages:
    return [*messages[:1], {"role": "user", "content": "[CONTEXT COMPACTION] What was said."}, *messages[1:][-60:]]


def summary_in_the_middle(messages: Messages) -> Messages:
    summary: Message = {"role": "user", "content": "[CONTEXT COMPACTION — REFERENCE ONLY] What was said."}
    return [*messages[:4], summary, *messages[4:][-60:]]


def cache_markers(messages: Messages) -> Messages:
    marked = [{**m, "cache_control": {"type": "ephemeral"}, "_position": n} for n, m in enumerate(messages)]
    return cast("Messages", marked)


def keys_reordered(messages: Messages) -> Messages:
    return [cast("Message", dict(reversed(m.items()))) for m in messages]


def text_as_a_part(messages: Messages) -> Messages:
    def part(message: Message) -> Message:
        text = message.get("content")
        return {**message, "content": [{"type": "text", "text": text}]} if isinstance(text, str) and text else message

    return list(map(part, messages))


NOTHING: dict[str, Callable[[Messages], Messages]] = {
    "the same list": same,
    "tool outputs cleared": cleared,
    "tool outputs shortened": shortened,
    "call arguments shortened": arguments_shortened,
    "head dropped": head_dropped,
    "summary in front of the last 60": summary_in_front,
    "summary between head and tail": summary_in_the_middle,
    "cache markers and private keys": cache_markers,
    "keys reordered": keys_reordered,
    "text as a single part": text_as_a_part,
}


def assert_stored(store: Store, messages: Messages, *, added: int, superseded: int, full: bool = False) -> None:
    """Hand a list over and check what that did, by the answer and by the rows."""
    before = {m.id for m in store.messages("c", superseded=True, system=True)}
    done = store.ingest("c", messages, full=full)
    after = {m.id: m for m in store.messages("c", superseded=True, system=True)}
    assert (len(done.added), len(done.superseded)) == (added, superseded)
    assert set(done.added) == after.keys() - before
    assert all(after[id_].superseded for id_ in done.superseded)
    assert store.check_chain("c") == []


def stored(messages: Messages) -> Store:
    store = open_store(":memory:")
    assert_stored(store, messages, added=len(messages), superseded=0)
    return store


@pytest.mark.slow
@pytest.mark.parametrize("full", [False, True], ids=["quick", "full"])
@pytest.mark.parametrize("shape", NOTHING)
def test_a_replay_adds_nothing(shape: str, full: bool) -> None:
    messages = a_conversation()
    store = stored(messages)
    assert_stored(store, NOTHING[shape](messages), added=0, superseded=0, full=full)


@pytest.mark.slow
@pytest.mark.parametrize("inside", [False, True], ids=["", "system messages inside"])
@pytest.mark.parametrize("shape", NOTHING)
def test_a_replay_adds_what_follows_it(shape: str, inside: bool) -> None:
    messages = a_conversation(system_inside=inside)
    assert inside == any(is_system(message) for message in body(messages))
    store = stored(messages)
    assert_stored(store, [*NOTHING[shape](messages), *numbered(3)], added=3, superseded=0)
    assert [m.message for m in store.messages("c")] == [*body(messages), *numbered(3)]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    valid_conversations(min_turns=4, max_turns=24, payload=60),
    st.sampled_from(sorted(NOTHING)),
    st.booleans(),
    st.integers(0, 3),
)
@example(  # without its head it begins with a system message of the middle
    messages=conversation(1560, turns=11, payload=60, system_inside=True), shape="head dropped", full=False, following=1
)
def test_no_replay_of_any_conversation_adds_rows(messages: Messages, shape: str, full: bool, following: int) -> None:
    """A random conversation in a random shape: only what follows is new."""
    store = open_store(":memory:")
    store.ingest("c", messages)
    rows = len(list(store.messages("c", superseded=True, system=True)))
    handed = NOTHING[shape](messages)
    summaries = len([m for m in handed if "[CONTEXT COMPACTION" in str(m.get("content"))])
    assume(not summaries or len(messages) - len(handed) >= summaries)  # a host that summarised left messages out
    new = numbered(following, "brand-new")
    done = store.ingest("c", [*handed, *new], full=full)
    assert (len(done.added), done.superseded) == (following, ())
    assert len(list(store.messages("c", superseded=True, system=True))) == rows + following


def test_after_a_restart_nothing_is_added(tmp_path: Any) -> None:
    messages = a_conversation()
    with open_store(tmp_path / "s.db") as store:  # type: ignore[attr-defined]
        store.ingest("c", messages)
    again = open_store(tmp_path / "s.db")
    assert_stored(again, messages, added=0, superseded=0)


@pytest.mark.slow
def test_the_same_turn_after_turn_adds_each_message_once() -> None:
    """A host that hands over its growing list after every message."""
    messages = a_conversation(30)
    store = open_store(":memory:")
    for end in range(1, len(messages) + 1):
        assert_stored(store, messages[:end], added=1, superseded=0)
    assert [m.message for m in store.messages("c", system=True)] == messages


@pytest.mark.parametrize("full", [False, True])
def test_equal_messages_in_a_row_are_two(full: bool) -> None:
    yes: Message = {"role": "user", "content": "yes"}
    store = stored([*numbered(2), yes])
    assert_stored(store, [*numbered(2), yes, yes], added=1, superseded=0, full=full)
    assert_stored(store, [*numbered(2), yes, yes], added=0, superseded=0, full=full)
    assert_stored(store, [*numbered(2), yes, yes, yes, yes], added=2, superseded=0, full=full)


@pytest.mark.slow
@pytest.mark.parametrize("position", [0, 3, 9, 90, 99])
def test_an_edit_takes_the_place_of_the_old_one(position: int) -> None:
    messages = numbered(100)
    store = stored(messages)
    edited = [*messages]
    edited[position] = {**messages[position], "content": "something else"}
    assert_stored(store, edited, added=1, superseded=1, full=True)
    assert [m.message for m in store.messages("c")] == edited


def test_a_longer_tool_result_is_an_edit() -> None:
    messages = a_conversation()
    position = next(n for n, m in enumerate(messages) if m["role"] == "tool" and isinstance(m["content"], str))
    store = stored(messages)
    edited = [*messages]
    edited[position] = {**messages[position], "content": messages[position]["content"] + " and more"}
    assert_stored(store, edited, added=1, superseded=1, full=True)
    assert [m.message for m in store.messages("c", system=True)] == edited


@pytest.mark.parametrize(("undone", "others"), [(1, 1), (3, 1), (2, 5), (40, 2), (60, 2)])
def test_an_undo_starts_a_branch(undone: int, others: int) -> None:
    messages = numbered(100)
    store = stored(messages)
    branch = [*messages[: 100 - undone], *numbered(others, "other")]
    assert_stored(store, branch, added=others, superseded=undone)
    assert [m.message for m in store.messages("c")] == branch
    everything = [m.message for m in store.messages("c", superseded=True)]
    assert all(message in everything for message in messages)


def test_an_undo_without_anything_new_counts_at_the_next_message() -> None:
    messages = numbered(20)
    store = stored(messages)
    assert_stored(store, messages[:15], added=0, superseded=0)
    assert_stored(store, [*messages[:15], *numbered(1, "other")], added=1, superseded=5)


def test_an_undo_without_anything_new_counts_at_the_next_compaction() -> None:
    messages = numbered(20)
    store = stored(messages)
    assert_stored(store, messages[:15], added=0, superseded=5, full=True)


@pytest.mark.parametrize("position", [0, 1, 50, 99])
def test_an_inserted_message_stands_between_its_neighbours(position: int) -> None:
    messages = numbered(100)
    store = stored(messages)
    longer: list[Message] = [*messages[:position], {"role": "user", "content": "inserted"}, *messages[position:]]
    assert_stored(store, longer, added=1, superseded=0, full=True)
    assert [m.message for m in store.messages("c")] == longer


@pytest.mark.slow
def test_there_is_always_room_for_one_more_between_two() -> None:
    """Places are numbers between two others; when there is none left, the history is numbered anew."""
    messages = numbered(4)
    store = stored(messages)
    for n in range(80):
        messages.insert(2, {"role": "user", "content": f"inserted {n}"})
        assert_stored(store, messages, added=1, superseded=0, full=True)
    assert [m.message for m in store.messages("c")] == messages


def test_a_system_message_is_stored_once_per_text() -> None:
    messages = a_conversation(4)
    other: list[Message] = [{"role": "system", "content": "Other instructions."}, *messages[1:]]
    store = stored(messages)
    assert_stored(store, other, added=1, superseded=0)
    assert_stored(store, messages, added=0, superseded=0)
    assert_stored(store, [messages[0], *messages], added=0, superseded=0)
    assert sum(m.system for m in store.messages("c", system=True)) == 2


def test_the_words_of_the_system_prompt_in_the_middle_are_a_message_of_their_own() -> None:
    messages = a_conversation(4)
    store = stored(messages)
    repeated = [*messages[:2], messages[0], *messages[2:]]
    assert_stored(store, repeated, added=1, superseded=0)
    assert_stored(store, repeated, added=0, superseded=0)
    assert [row.message for row in store.messages("c")] == repeated[1:]


@pytest.mark.parametrize("full", [False, True])
def test_a_list_without_its_beginning_may_begin_with_a_system_message_of_the_middle(full: bool) -> None:
    messages = a_conversation(8)
    late: Message = {"role": "system", "content": "From now on be brief."}
    at = next(n for n, message in enumerate(messages) if n > 8 and message["role"] == "user")
    said = [*messages[:at], late, *messages[at:]]
    store = stored(said)
    for prompt in ([], messages[:1]):
        assert_stored(store, [*prompt, *said[at:]], added=0, superseded=0, full=full)
    assert [row.message for row in store.messages("c") if row.role == "system"] == [late]


def test_a_system_message_that_was_stored_without_a_place_gets_one_when_it_is_shown_there() -> None:
    """As earlier versions stored all of them; the row from then stays as it is."""
    messages = a_conversation(4)
    late: Message = {"role": "system", "content": "From now on be brief."}
    store = stored(messages)
    store.append("c", [late], prompt=True)
    said = [*messages[:4], late, *messages[4:]]
    assert_stored(store, messages, added=0, superseded=0)
    assert_stored(store, said, added=1, superseded=0)
    assert_stored(store, said, added=0, superseded=0, full=True)
    assert [row.message for row in store.messages("c")] == said[1:]


@pytest.mark.parametrize("full", [False, True])
def test_a_system_message_with_an_engines_note_stands_for_the_one_it_came_from(full: bool) -> None:
    messages = a_conversation(4)
    store = stored(messages)
    (origin,) = [m.id for m in store.messages("c", system=True) if m.system]
    noted = messages[0] | {"content": "Be brief.\n\n[Note: something was folded]"}
    store.handed_out("c", [(noted, [origin])])
    done = store.ingest("c", [noted, *messages[1:]], full=full)
    assert done.added == ()
    assert sum(m.system for m in store.messages("c", system=True)) == 1


def test_what_an_engine_made_is_not_stored() -> None:
    messages = a_conversation(10)
    store = stored(messages)
    note: Message = {"role": "user", "content": "Everything so far, in short."}
    reply: Message = {"role": "assistant", "content": "I have read the summary."}
    store.handed_out("c", [(note, []), (reply, [])])
    tail = after_a_turn(messages[-12:])
    done = store.ingest("c", [messages[0], note, reply, *tail], full=True)
    assert done.ids[1:3] == (None, None)
    assert_stored(store, [messages[0], note, reply, *tail, *numbered(1)], added=1, superseded=0)


def test_a_fold_of_everything_supersedes_nothing() -> None:
    """Only the summary and a new message are left: the history was folded, not undone."""
    messages = numbered(30)
    store = stored(messages)
    note: Message = {"role": "user", "content": "Everything so far, in short."}
    store.handed_out("c", [(note, [])])
    assert_stored(store, [note, {"role": "user", "content": "and now?"}], added=1, superseded=0)


def test_a_message_with_a_summary_in_front_stands_for_the_one_it_contains() -> None:
    messages = numbered(20)
    store = stored(messages)
    origin = [m.id for m in store.messages("c")][-1]
    merged: Message = {"role": "assistant", "content": "Everything so far.\n\n" + messages[-1]["content"]}
    store.handed_out("c", [(merged, [origin])])
    done = store.ingest("c", [messages[0], merged], full=True)
    assert done.ids[1] == origin
    assert_stored(store, [messages[0], merged, *numbered(2, "other")], added=2, superseded=0)


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def joined(store: Store, messages: Messages) -> Messages:
    """Join the last two messages as an engine does that repairs a list, and hand the list out."""
    ids = [m.id for m in store.messages("c")]
    merged = assistant(f"{messages[-2]['content']}\n\n{messages[-1]['content']}")
    handed = [*((m, [id_]) for m, id_ in zip(messages[:-2], ids, strict=False)), (merged, ids[-2:])]
    store.handed_out("c", handed)
    return [m for m, _ in handed]


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("again", [False, True], ids=["same process", "after a restart"])
def test_what_is_said_again_after_two_messages_became_one_is_new(full: bool, again: bool) -> None:
    messages = [*numbered(3), assistant("Done."), assistant("yes")]
    store = stored(messages)
    handed = joined(store, messages)
    if again:
        store._readings.clear()  # type: ignore[attr-defined]
    new: list[Message] = [{"role": "user", "content": "go on"}, assistant("yes")]
    done = store.ingest("c", [*handed, *new], full=full)
    assert done.origins(3) == ("m4", "m5")
    assert len(done.added) == 2
    assert_stored(store, [*handed, *new], added=0, superseded=0, full=full)
    assert [m.message for m in store.messages("c")] == [*messages, *new]


def test_the_same_two_messages_joined_in_two_places_are_told_apart() -> None:
    messages = [*numbered(1), assistant("Done."), assistant("yes")]
    store = stored(messages)
    first = joined(store, messages)
    more: list[Message] = [{"role": "user", "content": "again"}, assistant("Done."), assistant("yes")]
    store.ingest("c", [*first, *more])
    merged = first[-1]
    store.handed_out("c", [(first[0], ["m1"]), (merged, ["m2", "m3"]), (more[0], ["m4"]), (merged, ["m5", "m6"])])
    edited: list[Message] = [
        {"role": "user", "content": "asked differently"},
        merged,
        more[0],
        merged,
    ]  # not what was handed out
    done = store.ingest("c", [*edited, *numbered(1, "last")], full=True)
    assert [done.origins(n) for n in (1, 2, 3)] == [("m2", "m3"), ("m4",), ("m5", "m6")]
    assert (len(done.added), done.superseded) == (2, ("m1",))


def test_a_message_that_an_engine_passed_on_may_be_said_again() -> None:
    """A result without a call was dropped behind "yes": the next "yes" is another one."""
    yes: Message = {"role": "user", "content": "yes"}
    messages: list[Message] = [*numbered(2), yes, {"role": "tool", "tool_call_id": "nobody", "content": "x"}]
    store = stored(messages)
    store.handed_out("c", [*((m, [f"m{n}"]) for n, m in enumerate(messages[:2], 1)), (yes, ["m3", "m4"])])
    listed: list[Message] = [{"role": "user", "content": "edited"}, messages[1], yes]
    assert_stored(store, [*listed, assistant("Done."), yes], added=3, superseded=1, full=True)


@pytest.mark.slow
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("full", [False, True])
def test_a_conversation_that_repeats_itself_grows_by_what_was_said(full: bool, restarts: bool) -> None:
    """For longer than the end that is looked at, nothing tells one round from the other but its place."""
    round_: list[Message] = [{"role": "user", "content": "go on"}, assistant("Done.")]
    messages = round_ * 100
    store = stored(messages)
    for _ in range(5):
        messages = [*messages, *round_]
        assert_stored(store, messages, added=2, superseded=0, full=full)
        assert_stored(store, messages, added=0, superseded=0, full=full)
        if restarts:
            store._readings.clear()  # type: ignore[attr-defined]
    assert [m.message for m in store.messages("c")] == messages


def test_a_repetitive_conversation_goes_on_behind_a_fold() -> None:
    round_: list[Message] = [{"role": "user", "content": "go on"}, assistant("Done.")]
    store = stored(round_ * 100)
    summary: Message = {"role": "user", "content": "Everything so far."}
    ids = [m.id for m in store.messages("c")]
    tail = list(zip(round_ * 10, ([id_] for id_ in ids[-20:]), strict=True))
    store.handed_out("c", [(summary, []), (assistant("I see."), []), *tail])
    window = [summary, assistant("I see."), *(m for m, _ in tail)]
    for count in range(1, 4):
        assert_stored(store, [*window, *round_ * count], added=2, superseded=0)
        assert_stored(store, [*window, *round_ * count], added=0, superseded=0, full=True)
    assert [m.message for m in store.messages("c")] == round_ * 103


def test_what_was_appended_by_position_is_known_in_the_list() -> None:
    round_: list[Message] = [{"role": "user", "content": "go on"}, assistant("Done.")]
    messages = round_ * 100
    store = stored(messages)
    for _ in range(3):
        store.append("c", round_)
        messages = [*messages, *round_]
        assert_stored(store, messages, added=0, superseded=0)


def test_a_summary_is_stored_when_nothing_known_follows_it() -> None:
    """A user who writes the prefix by hand is not silenced."""
    messages = numbered(6)
    store = stored(messages)
    typed: Message = {"role": "user", "content": "[CONTEXT COMPACTION] is what it said. Why?"}
    assert_stored(store, [*messages, typed], added=1, superseded=0)
    assert_stored(store, [*messages, typed, *numbered(2)], added=2, superseded=0)


def test_calls_whose_ids_repeat_are_still_told_apart() -> None:
    def step(n: int) -> Messages:
        call = {"id": "call_0", "type": "function", "function": {"name": "run", "arguments": f'{{"step": {n}}}'}}
        return [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_0", "content": f"output {n} " + "x" * (60 - n)},
        ]

    messages: Messages = [{"role": "user", "content": "go"}]
    store = stored(messages)
    for n in range(50):
        messages += step(n)
        assert_stored(store, messages, added=2, superseded=0)
    assert [m.message for m in store.messages("c")] == messages


def numbered_step(n: int) -> Messages:
    """Return a call whose id every call has, and its result, which is shorter than the one before."""
    call = {"id": "call_0", "type": "function", "function": {"name": "run", "arguments": f'{{"step": {n}}}'}}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_0", "content": f"output {n} " + "x" * (60 - n)},
    ]


@pytest.mark.parametrize("full", [False, True])
def test_a_host_that_repeats_ids_and_drops_its_oldest_messages_loses_nothing(full: bool) -> None:
    """An id that several calls have identifies none: a new output is not the old one, cleared."""
    said: Messages = [{"role": "user", "content": "go"}]
    listed = said
    store = open_store(":memory:")
    for n in range(40):
        said, listed = [*said, *numbered_step(n)], [*listed, *numbered_step(n)]
        listed = [listed[0], *listed[3:]] if n >= 8 else listed
        store.ingest("c", listed, full=full)
    assert [row.message for row in store.messages("c")] == said


def test_an_output_with_a_repeated_id_that_was_cleared_is_kept() -> None:
    messages = [{"role": "user", "content": "go"}, *numbered_step(0), *numbered_step(1)]
    store = stored(cast("Messages", messages))
    shown = [*messages[:2], {**messages[2], "content": "[cleared]"}, *messages[3:]]
    store.ingest("c", cast("Messages", shown), full=True)
    everything = [row.message for row in store.messages("c", superseded=True)]
    assert all(message in everything for message in messages)


def test_planted_ids_that_identify_though_they_repeat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(full_plan._Equals, "only", full_plan._Equals.next)
    with pytest.raises(AssertionError):
        test_a_host_that_repeats_ids_and_drops_its_oldest_messages_loses_nothing(full=True)


def test_many_equal_messages_are_aligned_in_time() -> None:
    """Equal messages by the thousand cost no more than others, and none is added."""
    messages: list[Message] = [{"role": ("user", "assistant")[n % 2], "content": "again"} for n in range(2_000)]
    store = stored(messages)
    assert_stored(store, messages, added=0, superseded=0, full=True)
    assert_stored(store, [*messages, *numbered(1)], added=1, superseded=0, full=True)


def test_ids_name_the_messages_of_the_list() -> None:
    messages = a_conversation()
    store = stored(messages)
    for full in (False, True):
        done = store.ingest("c", [*messages, *numbered(random.Random(full).randint(1, 3), str(full))], full=full)
        found = store.get([id_ for id_ in done.ids if id_])
        handed = [*messages, *numbered(random.Random(full).randint(1, 3), str(full))][done.start :]
        assert [found[id_].message for id_ in done.ids if id_] == handed
        messages = [m.message for m in store.messages("c", system=True)]


def test_the_input_is_not_changed() -> None:
    messages = a_conversation(10)
    copy = same(messages)
    stored(messages)
    assert messages == copy


def test_the_table_catches_a_store_that_compares_texts_only() -> None:
    """Planted defect: without call keys, cleared outputs are new rows, and the same check says so."""
    messages = a_conversation()
    without_ids = [
        cast("Message", {k: v for k, v in m.items() if k not in {"tool_call_id", "tool_calls"}}) for m in messages
    ]
    store = stored(without_ids)
    with pytest.raises(AssertionError):
        assert_stored(store, cleared(without_ids), added=0, superseded=0, full=True)


class TestAMessageThatBeginsLikeASummary:
    """V5: a text that begins like a summary is stored like any other."""

    @pytest.mark.slow
    @pytest.mark.parametrize("full", [False, True], ids=["quick", "full"])
    @pytest.mark.parametrize("role", ["user", "assistant"])
    @pytest.mark.parametrize("place", [0, 1, 2, 3, 4], ids="at {}".format)
    @pytest.mark.parametrize("replaces", [0, 1])
    def test_it_is_stored_wherever_it_stands(self, place: int, role: str, replaces: int, *, full: bool) -> None:
        """Directly before stored messages too, as an insertion or as an edit of one."""
        messages: list[Message] = [
            {"role": ("user", "assistant")[n % 2], "content": f"{n}: " + "words " * 30} for n in range(6)
        ]
        marked: Message = {"role": role, "content": "[CONTEXT COMPACTION] A note of my own: gate-4711."}
        store = open_store(":memory:")
        store.ingest("c", messages)
        store.ingest("c", [*messages[:place], marked, *messages[place + replaces :]], full=full)
        assert marked in [row.message for row in store.messages("c")]

    def test_planted_a_summary_that_stands_in_for_messages_is_not(self) -> None:
        messages = numbered(8)
        store = stored(messages)
        assert_stored(store, summary_in_front(messages)[:2] + messages[4:], added=0, superseded=0)
