"""Many results of tools: each finds its call, or the stub that was sent for it, at a cost that does not grow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.fixtures.calls import MOST_GROWTH, calls_made

from leporello import Session

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello.messages import Message


def asked(count: int) -> Message:
    made = [{"id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for n in range(count)]
    return {"role": "assistant", "content": None, "tool_calls": made}


def results(count: int) -> list[Message]:
    return [{"role": "tool", "tool_call_id": f"c{n}", "content": f"r{n}"} for n in range(count)]


def session() -> Session:
    return Session.open(model="m", context_length=1_000_000, store=":memory:")


def answered(count: int) -> Callable[[], Any]:
    opened = session()
    opened.add({"role": "user", "content": "a"}, asked(count))
    return lambda: opened.add(*results(count))


def late(count: int) -> Callable[[], Any]:
    opened = session()
    opened.add({"role": "user", "content": "a"}, asked(count), {"role": "user", "content": "b"})
    opened.request()
    return lambda: opened.add(*results(count))


def orphans(count: int) -> Callable[[], Any]:
    opened = session()
    opened.add({"role": "user", "content": "a"})
    return lambda: opened.add(*results(count))


@pytest.mark.slow
@pytest.mark.parametrize("make", [answered, late, orphans])
def test_results_cost_what_they_are_many(make: Callable[[int], Callable[[], Any]]) -> None:
    few, many = (calls_made(make(count)) for count in (100, 400))
    assert many < MOST_GROWTH * few


def test_work_that_looks_at_all_others_would_be_noticed() -> None:
    def compare(count: int) -> Callable[[], Any]:
        return lambda: [len(str(other)) for _ in range(count) for other in range(count)]

    few, many = (calls_made(compare(count)) for count in (100, 400))
    assert many > MOST_GROWTH * few


def test_late_results_take_the_places_of_their_stubs() -> None:
    opened = session()
    opened.add({"role": "user", "content": "a"}, asked(3), {"role": "user", "content": "b"})
    opened.request()
    opened.add(*reversed(results(3)), {"role": "user", "content": "c"})
    shown = [message.get("content") for message in opened.window if message["role"] in ("tool", "user")]
    assert shown == ["a", "r0", "r1", "r2", "b", "c"]
