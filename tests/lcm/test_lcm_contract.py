"""The lossless engine keeps the contract, as any engine must."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from leporello import ContextEngine, LCMEngine
from leporello.testing.contract import ContractSuite

pytestmark = pytest.mark.slow


class TestLCM(ContractSuite):
    """Every check of the contract kit, with the engine as users get it."""

    conversations = 20

    def make_engine(self, **kwargs: Any) -> ContextEngine:
        """Make an engine that keeps its messages in memory."""
        return LCMEngine(**kwargs)


def test_the_documentations_own_test() -> None:
    hermes = import_module("agent.context_engine")  # the name that Hermes Agent's documentation uses
    engine = LCMEngine(context_length=200_000)
    assert isinstance(engine, hermes.ContextEngine)
    assert engine.name == "lcm"
    result = engine.compress([{"role": "user", "content": "hello"}])
    assert isinstance(result, list)
    assert all("role" in message for message in result)
