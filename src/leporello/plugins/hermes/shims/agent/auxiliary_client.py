"""The summariser, under the name that plugins for Hermes Agent import."""

from leporello.plugins.hermes.host import call_llm

__all__ = ["call_llm"]
