"""Choosing an engine: what can be chosen, how it is loaded, and what takes its place when it cannot be.

    engine = load_engine()                      # what config.yaml says, ready to use
    engine = load_engine({"context": {"engine": "lcm"}}, model="claude-sonnet-5")
    source = EngineSource("config.yaml")        # for many conversations: source.new_engine() for each

Importing this package loads the standard library only; each name is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leporello.plugins.context import Command, PluginContext
    from leporello.plugins.discover import Found
    from leporello.plugins.hermes.host import route_llm
    from leporello.plugins.manifest import Manifest, read_manifest
    from leporello.plugins.select import EngineSource, load_engine
    from leporello.plugins.tools import dispatch, merge_tools

_HOMES = {
    "Command": "context",
    "EngineSource": "select",
    "Found": "discover",
    "Manifest": "manifest",
    "PluginContext": "context",
    "dispatch": "tools",
    "load_engine": "select",
    "merge_tools": "tools",
    "read_manifest": "manifest",
    "route_llm": "hermes.host",
}

__all__ = [
    "Command",
    "EngineSource",
    "Found",
    "Manifest",
    "PluginContext",
    "dispatch",
    "load_engine",
    "merge_tools",
    "read_manifest",
    "route_llm",
]


def __getattr__(name: str) -> object:
    """Import a name from its module when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value
