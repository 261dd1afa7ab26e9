"""The fixed texts that a repair writes, so that they can be recognised."""

from __future__ import annotations

from typing import Final

FIRST_USER: Final = "[The conversation starts here.]"
"""The user message that a repair puts before an assistant that speaks first."""
EMPTY_USER: Final = "[The user sent an empty message.]"
"""The text that a repair gives to an empty user message."""
NO_REPLY: Final = "[No reply was recorded.]"
"""The assistant message that a repair puts between two user messages."""
EMPTY_ASSISTANT: Final = "[The assistant said nothing here.]"
"""The text that a repair gives to an empty assistant message."""
BEFORE_SUMMARY: Final = "[A summary of earlier turns follows.]"
"""The message that a repair puts before a summary where the roles need one."""
STUB_RESULT: Final = "[The result of this call was not recorded.]"
"""The result that a repair gives to a call without one."""

FIXED_TEXTS: Final = frozenset({FIRST_USER, EMPTY_USER, NO_REPLY, EMPTY_ASSISTANT, BEFORE_SUMMARY, STUB_RESULT})
"""All texts that a repair writes."""
SUMMARY_MARK: Final = "[CONTEXT COMPACTION"  # how the summary of a compaction begins, here and in Hermes Agent

SYSTEM_TEXT: Final = "<system_message>\n{}\n</system_message>"
"""How a system message in the middle is written where only user and assistant can speak."""

UNKNOWN_FUNCTION: Final = "unknown"
RAW_ARGUMENTS: Final = "_raw"  # arguments that are not a JSON object stand, as they came, under this key

CLEARED_OUTPUT: Final = "[Old tool output cleared to save context space]"
"""Stands in the place of a tool output that was taken out of the window, perhaps with a note behind it."""
LONGEST_CLEARED: Final = 320
_CLEARED: Final = (CLEARED_OUTPUT, "[Duplicate tool output", "[Result unavailable")


def is_cleared(text: str) -> bool:
    """Tell whether this is the one line that stands in the place of a tool output, here or in Hermes Agent.

    A longer text that only begins like one is an output like any other.
    """
    return len(text) <= LONGEST_CLEARED and "\n" not in text and text.startswith(_CLEARED)
