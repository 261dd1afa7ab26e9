"""What a conversation leaves behind, exactly and without a model: files, commands, errors, decisions, values."""

from leporello.summary.artifacts.call_lines import call_text
from leporello.summary.artifacts.gather import collect, collect_turns
from leporello.summary.artifacts.model import (
    Artifacts,
    CommandTrace,
    DecisionTrace,
    ErrorTrace,
    FileTrace,
    Trace,
    ValueTrace,
)

__all__ = [
    "Artifacts",
    "CommandTrace",
    "DecisionTrace",
    "ErrorTrace",
    "FileTrace",
    "Trace",
    "ValueTrace",
    "call_text",
    "collect",
    "collect_turns",
]
