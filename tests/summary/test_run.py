"""A compaction is announced and reported the same way by every engine of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from leporello import ContextCompressor, LCMEngine
from leporello.events import CompactionFinished, CompactionStarted
from leporello.testing.conversations import conversation
from leporello.tokens import count_messages

if TYPE_CHECKING:
    from leporello.events import Event
    from leporello.messages import Message

ENGINES = [ContextCompressor, LCMEngine]
NAMED = 30_000


def told(engine: ContextCompressor | LCMEngine, named: int | None) -> tuple[int, CompactionStarted, CompactionFinished]:
    events: list[Event] = []
    engine.on_event = events.append
    messages: list[Message] = [*conversation(1, turns=20), {"role": "user", "content": "Go on."}]
    engine.compress(messages, current_tokens=named)
    engine.close()
    started, finished = (event for event in events if isinstance(event, (CompactionStarted, CompactionFinished)))
    assert isinstance(started, CompactionStarted)
    assert isinstance(finished, CompactionFinished)
    return count_messages(messages), started, finished


@pytest.mark.parametrize("made", ENGINES)
@pytest.mark.parametrize("named", [None, NAMED])
def test_the_beginning_tells_the_tokens_of_the_messages_and_of_the_request(made: type, named: int | None) -> None:
    """Planted defect: the size of the request in the place of that of the messages."""
    tokens, started, finished = told(made(32_000), named)
    assert (started.tokens, started.prompt_tokens) == (tokens, named or 0)
    assert finished.tokens_before == tokens
