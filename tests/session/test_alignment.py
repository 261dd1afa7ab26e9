"""A client's list that tells the conversation differently: what becomes of the window and of the store."""

from __future__ import annotations

from time import process_time
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from leporello.messages import Message, text_of
from leporello.session import alignment
from leporello.session.conversation import Conversation
from leporello.session.factory import open_session
from leporello.store import open_store

Talk = list[Message]


def talk(*texts: str) -> Talk:
    return [{"role": "user" if number % 2 == 0 else "assistant", "content": text} for number, text in enumerate(texts)]


def opened(said: Talk) -> Conversation:
    """Open a conversation in which this was said."""
    found = open_session(
        "c", model="m", provider=None, base_url=None, context_length=16_000, engine="compressor",
        store=open_store(":memory:"), config={}, system=None, dialect="openai", owner="", platform="test",
        on_event=None, llm=None,
    )  # fmt: skip
    found.conversation.begin()
    for message in said:
        found.conversation.add([message])
    return found.conversation


def shown(conversation: Conversation) -> list[str]:
    return [text_of(message) for message in conversation.window.messages]


def stored(conversation: Conversation) -> list[str]:
    return [text_of(row.message) for row in conversation.branch.messages()]


def rows(conversation: Conversation) -> int:
    return sum(1 for _ in conversation.branch.messages(superseded=True))


@pytest.mark.parametrize(
    ("listed", "path", "made"),
    [
        (("q1", "a1", "q2", "a2"), ("q1", "a1", "q2", "a2"), 0),
        (("q2", "a2"), ("q1", "a1", "q2", "a2"), 0),
        (("q1, in short", "a1", "q2", "a2"), ("q1, in short", "a1", "q2", "a2"), 1),
        (("q1", "a1", "q2, in short", "a2"), ("q1", "a1", "q2, in short", "a2"), 1),
        (("q1", "a1", "note", "a note", "q2", "a2"), ("q1", "a1", "note", "a note", "q2", "a2"), 2),
        (("map", "ok", "q1", "a1", "q2", "a2"), ("map", "ok", "q1", "a1", "q2", "a2"), 2),
        ((" q1\n", "a1 ", "q2", "a2"), ("q1", "a1", "q2", "a2"), 0),
    ],
)
def test_what_a_list_changes(listed: tuple[str, ...], path: tuple[str, ...], made: int) -> None:
    conversation = opened(talk("q1", "a1", "q2", "a2"))
    before = rows(conversation)
    alignment.align(conversation, talk(*listed))
    assert shown(conversation) == stored(conversation) == list(path)
    assert rows(conversation) - before == made


def test_a_cleared_output_stays_and_a_longer_one_is_taken() -> None:
    calls = [{"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}]
    output: Message = {"role": "tool", "tool_call_id": "c1", "content": "a long output"}
    said: list[Message] = [
        talk("q")[0],
        {"role": "assistant", "content": None, "tool_calls": calls},
        output,
        *talk("", "a")[1:],
    ]
    conversation = opened(said)
    alignment.align(conversation, [*said[:2], {**output, "content": "[cleared]"}, said[3]])
    assert stored(conversation)[2] == shown(conversation)[2] == "a long output"
    alignment.align(conversation, [*said[:2], {**output, "content": "a much longer output"}, said[3]])
    assert stored(conversation)[2] == shown(conversation)[2] == "a much longer output"


def test_a_block_that_moves_is_shown_once() -> None:
    conversation = opened(talk("files", "ok", "q1", "a1"))
    for number in range(2, 6):
        listed = [message for n in range(1, number) for message in talk(f"q{n}", f"a{n}")]
        alignment.align(conversation, listed)
        alignment.add(conversation, listed, talk("files", "ok", f"q{number}"))
        conversation.add(talk("", f"a{number}")[1:])
    assert shown(conversation) == stored(conversation)
    assert stored(conversation)[2:] == ["q1", "a1", "q2", "a2", "q3", "a3", "q4", "a4", "files", "ok", "q5", "a5"]
    assert stored(conversation)[:2] == ["files", "ok"]  # it may have trimmed its head there


def move_a_block(conversation: Conversation, turns: int) -> None:
    """Put the same files before each question."""
    conversation.persistence.tip = ""  # as the gateway goes on, behind the message that it knows
    history: Talk = []
    for number in range(turns):
        alignment.align(conversation, history)
        question, answer = talk(f"q{number}", f"a{number}")
        alignment.add(conversation, history, [*talk("files", "ok"), question])
        conversation.add([answer])
        history += [question, answer]


MOVED = ["files", "ok", "q0", "a0", "q1", "a1", "q2", "a2", "q3", "a3", "files", "ok", "q4", "a4"]
"""The first block stays: a client that trims its head may have dropped it."""


def test_a_block_that_moves_is_stored_once() -> None:
    conversation = opened([])
    move_a_block(conversation, 5)
    assert shown(conversation) == stored(conversation) == MOVED
    assert rows(conversation) == len(MOVED)


def test_planted_a_block_that_is_said_again_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    conversation = opened([])
    monkeypatch.setattr(alignment, "_move", lambda *_: False)
    move_a_block(conversation, 5)
    assert shown(conversation) == stored(conversation) == MOVED
    with pytest.raises(AssertionError):
        assert rows(conversation) == len(MOVED)


def test_a_block_that_another_branch_shares_stays_there() -> None:
    conversation = opened([])
    move_a_block(conversation, 3)
    store = conversation.branch.store
    aside = store.fork("c", behind=conversation.persistence.tip, head=False)
    before = [row.id for row in store.messages("c", branch=aside)]
    history = [message for number in range(3) for message in talk(f"q{number}", f"a{number}")]
    alignment.add(conversation, history, [*talk("files", "ok"), *talk("q3")])
    assert shown(conversation)[-3:] == stored(conversation)[-3:] == ["files", "ok", "q3"]
    assert shown(conversation).count("files") == 2
    assert [row.id for row in store.messages("c", branch=aside)] == before


def test_a_conversation_is_loaded_as_a_block_was_moved() -> None:
    conversation = opened([])
    move_a_block(conversation, 5)
    conversation.reload(conversation.persistence.load())
    assert shown(conversation) == MOVED


def test_what_is_said_again_by_a_client_that_trims_its_head_is_not_moved() -> None:
    conversation = opened(talk("task", "a1", "continue", "a2", "q3", "a3"))
    listed = talk("q3", "a3")
    alignment.align(conversation, listed)
    alignment.add(conversation, listed, talk("continue"))
    assert stored(conversation) == ["task", "a1", "continue", "a2", "q3", "a3", "continue"]


def test_a_result_that_says_the_same_is_not_moved() -> None:
    """The file was read again: each call has a result of its own."""

    def read(id_: str) -> Talk:
        calls = [{"id": id_, "type": "function", "function": {"name": "read", "arguments": "{}"}}]
        asked: Message = {"role": "assistant", "content": None, "tool_calls": calls}
        return [asked, {"role": "tool", "tool_call_id": id_, "content": "the same file"}]

    said = [*talk("q1"), *read("c1"), *talk("", "a1", "q2")[1:], read("c2")[0]]
    conversation = opened(said)
    cleared: list[Message] = [{**one, "content": "[cleared]"} if one["role"] == "tool" else one for one in said]
    alignment.align(conversation, cleared)
    alignment.add(conversation, cleared, read("c2")[1:])
    assert stored(conversation).count("the same file") == 2


def note(text: str) -> Message:
    return {"role": "system", "content": text}


def keep_a_note(conversation: Conversation, drop: Any) -> list[str]:
    """Have a note before the newest message, and none before the older ones; returns what the window shows."""
    history = talk("q", "a")
    for number in range(4):
        drop(conversation, history)
        question, answer = talk(f"q{number}", f"a{number}")
        conversation.add([note(f"{9 - number} tokens left"), question])
        conversation.add([answer])
        history += [question, answer]
    return shown(conversation)


def test_a_note_that_is_always_the_newest_does_not_pile_up() -> None:
    conversation = opened(talk("q", "a"))
    assert keep_a_note(conversation, alignment.drop_notes)[-5:] == ["q2", "a2", "6 tokens left", "q3", "a3"]
    assert shown(conversation) == stored(conversation)
    assert sum(text.endswith("left") for text in shown(conversation)) == 1


def test_planted_notes_that_stay_pile_up() -> None:
    assert sum(text.endswith("left") for text in keep_a_note(opened(talk("q", "a")), lambda *_: None)) == 4


def test_a_note_that_stays_in_the_list_stays() -> None:
    said = [*talk("q1", "a1"), note("from now on be brief"), *talk("q2", "a2")]
    conversation = opened(said)
    for listed in (
        said,
        said[3:],
        said[1:],
    ):  # as it was, and with a head that was trimmed before the note or behind it
        alignment.drop_notes(conversation, listed)
        assert shown(conversation) == ["q1", "a1", "from now on be brief", "q2", "a2"]


def test_a_list_is_compared_from_its_end() -> None:
    conversation = opened(talk("task 0", "Done.", "task 1 now", "Done.", "task 2 now", "Done."))
    alignment.align(conversation, talk("task 2", "Done."))
    assert stored(conversation) == ["task 0", "Done.", "task 1 now", "Done.", "task 2", "Done."]


def test_a_block_that_stays_and_comes_again_is_stored_again() -> None:
    conversation = opened(talk("files", "ok", "q1", "a1"))
    listed = talk("files", "ok", "q1", "a1")
    alignment.add(conversation, listed, talk("files"))
    assert stored(conversation) == ["files", "ok", "q1", "a1", "files"]


def test_a_fork_that_lacks_something_begins_before_it() -> None:
    """What the list has between messages that other branches share cannot be put there for this one alone."""
    conversation = opened(talk("q1", "a1", "q2", "a2"))
    ids = [entry.id or "" for entry in conversation.window.entries]
    fork = conversation.branch.store.fork("c", behind=ids[2], head=False)
    conversation.persistence.tip = ids[2]
    conversation.branch.switch(fork)
    conversation.reload(conversation.persistence.load())
    alignment.align(conversation, talk("q1", "a1", "files", "ok", "q2"))
    assert shown(conversation) == stored(conversation) == ["q1", "a1", "files", "ok", "q2"]
    conversation.add(talk("", "another answer")[1:])
    assert stored(conversation)[-1] == "another answer"
    assert [text_of(row.message) for row in conversation.branch.store.messages("c", branch=1)][-1] == "a2"


LONG = [message for n in range(60) for message in talk(f"question {n} " + "word " * 80, f"answer {n} " + "word " * 80)]


def test_what_is_folded_stays_folded() -> None:
    conversation = opened(LONG)
    assert conversation.compact(None).status == "folded"
    before, window = rows(conversation), shown(conversation)
    alignment.align(conversation, [*LONG[:10], *talk("another question", "another answer"), *LONG[12:]])
    assert (rows(conversation), shown(conversation)) == (before, window)


def test_the_first_messages_are_followed_also_before_a_summary() -> None:
    """Clients keep the map of a repository there, or the time."""
    conversation = opened(LONG)
    conversation.compact(None)
    before, window = rows(conversation), shown(conversation)
    assert window[0] == text_of(LONG[0])
    changed = talk("another beginning")
    alignment.align(conversation, [*changed, *LONG[1:]])
    assert shown(conversation) == ["another beginning", *window[1:]]
    assert rows(conversation) == before + 1
    alignment.align(conversation, LONG[60:])  # a client that trims its head changes nothing
    assert shown(conversation) == ["another beginning", *window[1:]]


def changed_again(conversation: Conversation, said: Talk, words: int) -> tuple[int, int]:
    """Let the client change its first message; returns the size of the next fold, and that of the window."""
    changed: Message = {"role": "user", "content": "a map: " + "harbour " * words}
    alignment.align(conversation, [changed, *said[1:]])
    return conversation.folds_at, conversation.window.tokens


def check_put_back(conversation: Conversation, said: Talk) -> None:
    threshold, tokens = changed_again(conversation, said, 40)
    assert threshold == 8_000, "nothing was folded: all that the client says counts"
    more = talk(*(f"{number} " + "quay " * 300 for number in range(31)))
    for message in more:
        conversation.add([message])
    said = [*said, *more]
    conversation.request([])
    folds_at, tokens = conversation.folds_at, conversation.window.tokens
    assert folds_at > threshold
    later, whole = changed_again(conversation, said, 500)
    assert later - folds_at == whole - tokens > 400
    assert changed_again(conversation, said, 900)[0] == later, "what comes later is growth"


def test_what_a_client_puts_back_behind_a_fold_is_no_growth() -> None:
    """A map that a fold has shortened comes back whole: the next fold is not made the sooner for that."""
    said = talk("a map: " + "harbour " * 50, "ok")
    check_put_back(opened(said), said)


def test_planted_what_is_put_back_counts_as_growth(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Conversation, "put_back", lambda *_: None)
    with pytest.raises(AssertionError):
        test_what_a_client_puts_back_behind_a_fold_is_no_growth()


def test_a_long_list_of_equal_words_takes_no_time() -> None:
    """What a hostile client sends: it is compared up to a bound, and nothing is doubled behind it."""
    said = [message for n in range(900) for message in talk("a" if n % 3 else "b", "yes")]
    conversation = opened([])
    conversation.add(said)
    before = process_time()
    alignment.align(conversation, [*talk("new"), *said[1:200], *talk("x"), *said[201:]])
    assert process_time() - before < 2
    alignment.align(conversation, [*said[:700], *talk("note", "noted"), *said[700:]])
    assert len(stored(conversation)) <= len(said) + 2


WORDS = st.lists(st.sampled_from(["a", "b", "c", "d", "e"]), min_size=1, max_size=7)


def check_follow(follow: Any, said: list[str], listed: list[str]) -> None:
    """The list is in the window in its order, and the store has the same path; nothing that was said is lost."""
    conversation = opened(talk(*said, "the end"))
    everything = {text_of(row.message) for row in conversation.branch.messages(superseded=True)}
    told = [*talk(*listed), {"role": ["user", "assistant"][len(said) % 2], "content": "the end"}]
    follow(conversation, told)
    rest = iter(shown(conversation))
    assert all(text_of(message) in rest for message in told)
    assert shown(conversation) == stored(conversation)
    assert everything <= {text_of(row.message) for row in conversation.branch.messages(superseded=True)}


@settings(max_examples=60, deadline=None)
@given(WORDS, WORDS)
def test_any_list_is_followed(said: list[str], listed: list[str]) -> None:
    check_follow(alignment.align, said, listed)


def test_one_that_is_not_followed_would_be_noticed() -> None:
    with pytest.raises(AssertionError):
        check_follow(lambda *_: None, ["a", "b"], ["a", "c"])
