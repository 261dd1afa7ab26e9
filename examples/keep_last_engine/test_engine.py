"""Checks the engine against the contract: run `pytest` in this folder."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leporello.llm import ScriptedLLM
from leporello.plugins import EngineSource
from leporello.testing import ContractSuite

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello import ContextEngine
    from leporello.llm import LLM
    from leporello.messages import Message

HERE = Path(__file__).parent


def load(context_length: int, llm: LLM | None = None, **options: Any) -> ContextEngine:
    """Load the engine as a host does."""
    config = {"plugins": {"paths": [str(HERE)]}}
    return EngineSource(config, name=HERE.name, context_length=context_length, llm=llm, **options).make()


class TestContract(ContractSuite):
    """Every promise that can be seen from outside."""

    # The kit offers what is named here: leave out `llm` and `clock` when the engine's constructor takes none.
    def make_engine(
        self, context_length: int = 0, llm: LLM | None = None, clock: Callable[[], float] = time.monotonic
    ) -> ContextEngine:
        """Make the engine under test."""
        return load(context_length, llm, clock=clock)


OLD: list[Message] = [{"role": "user", "content": "old " * 5_000}, {"role": "assistant", "content": "Done."}]
NEW: Message = {"role": "user", "content": "And now?"}


def test_the_newest_turn_stays_whole() -> None:
    """However little fits, the newest user message and what follows it are there."""
    assert load(1_000).compress([*OLD, NEW]) == [NEW]


def test_a_model_summarises_what_is_dropped() -> None:
    """Its summary stands before the turns that are kept."""
    summary, _, *kept = load(32_000, ScriptedLLM("## Goal\nTo tell old stories.")).compress([*OLD * 5, NEW])
    assert "To tell old stories." in str(summary["content"])
    assert kept[-1] == NEW
