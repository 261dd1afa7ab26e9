"""Checks the engine against the contract: run `pytest` in this folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from leporello.plugins import EngineSource
from leporello.testing import ContractSuite

if TYPE_CHECKING:
    from leporello import ContextEngine
    from leporello.messages import Message

HERE = Path(__file__).parent


def load(context_length: int) -> ContextEngine:
    """Load the engine as a host does."""
    return EngineSource({"plugins": {"paths": [str(HERE)]}}, name=HERE.name, context_length=context_length).make()


class TestContract(ContractSuite):
    """Every promise that can be seen from outside."""

    # The kit offers what is named here: add `llm` and `clock` when the engine's constructor takes them.
    def make_engine(self, context_length: int = 0) -> ContextEngine:
        """Make the engine under test."""
        return load(context_length)


def test_the_newest_turn_stays_whole() -> None:
    """However little fits, the newest user message and what follows it are there."""
    old: Message = {"role": "user", "content": "old " * 5_000}
    reply: Message = {"role": "assistant", "content": "Done."}
    new: Message = {"role": "user", "content": "And now?"}
    assert load(1_000).compress([old, reply, new]) == [new]
