"""Talking to models: one protocol, one vocabulary of errors. The providers' packages load with the first call."""

from importlib import import_module
from typing import TYPE_CHECKING

from leporello.llm.client import LLM, Completion
from leporello.llm.connect import connect
from leporello.llm.scripted import FakeClock, ScriptedLLM

if TYPE_CHECKING:
    from leporello.llm.anthropic import AnthropicClient
    from leporello.llm.errors import classify
    from leporello.llm.openai import OpenAIClient

_HOMES = {
    "AnthropicClient": "leporello.llm.anthropic",
    "OpenAIClient": "leporello.llm.openai",
    "classify": "leporello.llm.errors",
}

__all__ = [
    "LLM",
    "AnthropicClient",
    "Completion",
    "FakeClock",
    "OpenAIClient",
    "ScriptedLLM",
    "classify",
    "connect",
]


def __getattr__(name: str) -> object:
    """Import a name from its module when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'leporello.llm' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
