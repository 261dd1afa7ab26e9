"""`answer` is the text of the newest answer that a model gave."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from leporello.messages import text_of, tool_result
from leporello.session import AsyncSession
from leporello.testing.lifecycle import RecordingEngine

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello.messages import Message
    from leporello.session import Session

SUMMARY = "A summary of everything."


class SummaryLast(RecordingEngine):
    """Put its summary, as an assistant message, directly before the newest message."""

    def compress(self, messages: list[Message], *args: Any, **kwargs: Any) -> list[Message]:
        """Fold everything but the newest message."""
        return [{"role": "user", "content": "Go on."}, {"role": "assistant", "content": SUMMARY}, messages[-1]]


def ask(session: Session, text: str) -> None:
    session.add({"role": "user", "content": text})
    session.request()


def test_it_is_the_newest_text_that_the_model_said(opened: Callable[..., Session], answer: Callable[..., Any]) -> None:
    session = opened()
    assert session.answer == ""
    ask(session, "Which berth is free?")
    assert session.answer == ""
    (call,) = session.record(answer(None, ("look", {"at": "berths"})))
    assert session.answer == ""
    session.add(tool_result(call, "three"))
    session.request()
    session.record(answer("Berth three."))
    ask(session, "And which crane?")
    assert session.answer == "Berth three."
    session.record(
        {"content": [{"type": "text", "text": "Crane"}, {"type": "text", "text": "seven."}], "role": "assistant"}
    )
    assert session.answer == "Crane\nseven."


def test_a_summary_is_no_answer(opened: Callable[..., Session], answer: Callable[..., Any]) -> None:
    session = opened(engine=SummaryLast())
    for number in range(8):
        ask(session, f"Question {number}: " + "where does the container stand? " * 20)
        session.record(answer(f"Answer {number}."))
    session.add({"role": "user", "content": "And now?"})
    assert session.compress().status == "folded"
    texts = [text_of(message) for message in session.window if message["role"] == "assistant"]
    assert texts == [SUMMARY], "the newest message of an assistant is not what a model answered"
    assert session.answer == ""


def test_an_async_session_has_it_too(answer: Callable[..., Any]) -> None:
    async def story() -> str:
        async with await AsyncSession.open("talk", config={}, store=":memory:", model="m") as session:
            await session.add({"role": "user", "content": "Which berth is free?"})
            await session.record(answer("Berth three."))
            return session.answer

    assert asyncio.run(story()) == "Berth three."
