"""A line of many names, such as minified code or a table, is folded at a cost that grows with its length only."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.fixtures.calls import MOST_GROWTH, calls_made

from leporello import ContextCompressor, LCMEngine
from leporello.summary.extract.salient_names import Names, names_in

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello.messages import Message
    from leporello.summary.summarising_engine import SummarisingEngine


def line(names: int) -> str:
    return " ".join(f"row_{at:05} of close_month{at}" for at in range(names))


def conversation(where: str, names: int) -> list[Message]:
    """Return a conversation with one long line: what the user said, a call, its result, or what is not read yet."""
    texts = dict.fromkeys(("said", "call", "result", "unread"), "close_month row_00001")
    texts[where] = line(names)
    arguments = json.dumps({"path": "app.py", "content": texts["call"]})
    function = {"name": "write_file", "arguments": arguments}
    old: list[Message] = [
        {"role": "user", "content": texts["said"]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "a", "content": texts["result"]},
        {"role": "assistant", "content": "It is done. " * 200},
    ]
    return [*old, *old[3:] * 12, {"role": "user", "content": texts["unread"]}]


def folding(kind: Callable[[int], SummarisingEngine], where: str) -> Callable[[int], int]:
    def cost(names: int) -> int:
        engine = kind(200_000)
        engine.on_session_start("x")
        messages = conversation(where, names)
        return calls_made(lambda: engine.compress(messages, force=True))

    return cost


@pytest.mark.slow
@pytest.mark.parametrize("where", ["said", "call", "result", "unread"])
@pytest.mark.parametrize("kind", [ContextCompressor, LCMEngine])
def test_a_long_line_costs_what_it_is_long(
    kind: Callable[[int], SummarisingEngine], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cost = folding(kind, where)
    few = cost(250)
    assert cost(1_000) < MOST_GROWTH * few
    if where != "unread":
        return

    def looked_up_for_each(self: Names, unit: str) -> set[str]:  # defect
        return {name for name in names_in(unit) if name in names_in(unit)}

    monkeypatch.setattr(Names, "told_in", looked_up_for_each)
    assert cost(1_000) > MOST_GROWTH * few
