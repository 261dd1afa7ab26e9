"""A message that a fold has shortened is still known as the one that was said: it is not shown a second time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from leporello.messages import text_of
from leporello.session import kept_entries, result_entries, saved_branch
from leporello.session.result_entries import folded_entries
from leporello.session.window import Source, entry_of
from leporello.summary.payloads import is_shortened, shorten

if TYPE_CHECKING:
    from leporello.messages import Message
    from leporello.session import Session
    from leporello.session.window import Entry

LENGTHS = (300, 5, 60, 300, 300)
"""How often each message says its words, in turn."""
Opened = Callable[..., "Session"]


def said(role: str, number: int, at: int = 0) -> Message:
    text = f"{at} {role} {number}: " + "the crane is free " * LENGTHS[number % len(LENGTHS)]
    return {"role": role, "content": text}


def entries_of(*messages: Message) -> list[Entry]:
    return [
        entry_of(one, sources=[Source(message=one, id=f"m{number}")]) for number, one in enumerate(messages, start=1)
    ]


def sources_of(entries: list[Entry]) -> list[tuple[str | None, ...]]:
    return [entry.source_ids for entry in entries]


def test_a_shortened_message_keeps_its_source_wherever_it_stands() -> None:
    system: Message = {"role": "system", "content": "You look after a harbour."}
    summary: Message = {"role": "user", "content": "[CONTEXT COMPACTION] Cranes were counted."}
    messages = [system, *(said(role, 3, at) for at, role in enumerate(("user", "assistant") * 4)), said("user", 1)]
    before = entries_of(*messages)
    short = [shorten(one, 400) for one in messages]
    result = [short[0], *short[1:3], summary, *short[5:9], messages[9]]
    found = sources_of(folded_entries(result, messages, before))
    assert found == [("m1",), ("m2",), ("m3",), (), ("m6",), ("m7",), ("m8",), ("m9",), ("m10",)]
    other: Message = {**short[5], "content": "Else " + text_of(short[5])}
    assert sources_of(folded_entries([*result[:4], other, *result[5:]], messages, before))[4] == ()


@pytest.mark.parametrize("text", ["the crane is free", "", "a\n[... 12 characters folded into the summary ...]\nb"])
def test_what_is_not_the_ends_of_a_message_is_not_it_shortened(text: str) -> None:
    message = said("user", 3)
    assert is_shortened(shorten(shorten(message, 800), 200), message)
    assert not is_shortened({"role": "user", "content": text}, message)
    assert not is_shortened(message, message)


def talk(opened: Opened, answer: Callable[..., Any], look: Callable[[Session, int], None]) -> Session:
    """Hold a conversation that is folded several times."""
    session = opened(context_length=16_000, llm=None)
    for number in range(30):
        session.add(said("user", number))
        session.request()
        look(session, number)
        session.record(answer(text_of(said("assistant", number))))
    assert session.usage().compactions > 2
    return session


def assert_shown_once(session: Session, message: Message) -> None:
    start = text_of(message)[:20]
    assert [text_of(one) for one in session.window if text_of(one).startswith(start)] == [text_of(message)]


def pinned_talk(opened: Opened, answer: Callable[..., Any]) -> None:
    pinned: list[Message] = []

    def look(session: Session, number: int) -> None:
        for message in pinned:
            assert_shown_once(session, message)
        if number in (4, 8):
            rows = list(session.store.messages(session.id, newest_first=True))
            session.pin(rows[0].id)
            pinned.append(rows[0].message)

    talk(opened, answer, look)


def test_a_pinned_message_is_in_the_window_once_and_whole(opened: Opened, answer: Callable[..., Any]) -> None:
    pinned_talk(opened, answer)


@pytest.mark.parametrize("module", [result_entries, kept_entries])
def test_planted_a_shortened_message_that_is_not_recognised(
    module: Any, opened: Opened, answer: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "is_shortened", lambda *_: False)
    with pytest.raises(AssertionError):
        pinned_talk(opened, answer)


def assert_forks_show_what_was_asked(session: Session) -> None:
    rows = list(session.store.messages(session.id))
    for number, row in enumerate(rows):
        if row.role == "assistant":
            with session.fork(before=row.id, head=False) as fork:
                assert_shown_once(fork, rows[number - 1].message)


def test_a_fork_shows_the_question_that_it_answers_once_and_whole(
    opened: Opened, answer: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = talk(opened, answer, lambda *_: None)
    assert_forks_show_what_was_asked(session)
    monkeypatch.setattr(saved_branch, "is_shortened", lambda *_: False)
    with pytest.raises(AssertionError):
        assert_forks_show_what_was_asked(session)
