"""How late an edit in a foreign host's list is noticed: measured, and as the documentation says it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from leporello import LCMEngine
from leporello.lcm import verify
from leporello.store.reconcile.incremental_plan import RUN

if TYPE_CHECKING:
    from leporello.messages import Message

TURNS = 20


def said(first: int, last: int) -> list[Message]:
    return [{"role": ("user", "assistant")[n % 2], "content": f"message {n}"} for n in range(first, last)]


def turns_until_noticed(depth: int, engine: LCMEngine) -> int | None:
    """Edit a message so far from the end, and return after how many turns the store knows; None: by none of them."""
    engine.on_event = lambda _: None
    engine.on_session_start("s")
    messages = said(0, 300)
    engine.should_compress_preflight(messages)
    messages = [*messages, *said(300, 302)]
    engine.should_compress_preflight(messages)
    messages[-depth] = {**messages[-depth], "content": "something else"}
    for turn in range(1, TURNS + 1):
        messages = [*messages, *said(len(messages), len(messages) + 2)]
        engine.should_compress_preflight(messages)
        info = engine.store.info("s")
        if info is not None and info.superseded:
            return turn
    engine.compress(messages)
    return None


@pytest.mark.slow
@pytest.mark.parametrize("depth", [1, 2, 17, 40, RUN])
def test_an_edit_near_the_end_is_noticed_in_its_turn(depth: int) -> None:
    assert turns_until_noticed(depth, LCMEngine(200_000)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("depth", [RUN + 1, 100, 301])
def test_a_deeper_edit_is_noticed_at_the_next_compaction_and_not_before(depth: int) -> None:
    engine = LCMEngine(200_000)
    assert turns_until_noticed(depth, engine) is None
    info = engine.store.info("s")
    assert info is not None
    assert info.superseded == 1
    assert [row.message["content"] for row in engine.store.messages("s")].count("something else") == 1
    assert verify(engine.store, "s") == []


def test_the_documentation_has_the_figure() -> None:
    page = Path(__file__).parents[2] / "docs" / "decisions" / "store.md"
    assert f"more than {RUN} messages from the end" in page.read_text(encoding="utf-8")
