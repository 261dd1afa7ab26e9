"""The conversation as data: pure functions on plain dicts."""

from leporello.messages.align import align
from leporello.messages.codes import RULES, Rule
from leporello.messages.convert import anthropic_request, canonical, from_anthropic, to_anthropic
from leporello.messages.fixed import (
    BEFORE_SUMMARY,
    EMPTY_ASSISTANT,
    EMPTY_USER,
    FIRST_USER,
    FIXED_TEXTS,
    NO_REPLY,
    STUB_RESULT,
)
from leporello.messages.groups import Group, group_start, group_stop, groups, is_cut
from leporello.messages.identity import copied, copied_as_text, fingerprint, without_private
from leporello.messages.merge import merged
from leporello.messages.repair import Change, Repaired, repair
from leporello.messages.responses import from_responses, item_violations, to_responses
from leporello.messages.rules import Violation, violations
from leporello.messages.spoken import spoken
from leporello.messages.tools import tools_from_anthropic, tools_to_anthropic
from leporello.messages.types import (
    Dialect,
    Message,
    Part,
    ToolCall,
    call_ids_of,
    is_system,
    last_speaker,
    leading_systems,
    parts_of,
    role_of,
    text_of,
    tool_calls_of,
    tool_result,
)
from leporello.messages.unread import unread_start

__all__ = [
    "BEFORE_SUMMARY",
    "EMPTY_ASSISTANT",
    "EMPTY_USER",
    "FIRST_USER",
    "FIXED_TEXTS",
    "NO_REPLY",
    "RULES",
    "STUB_RESULT",
    "Change",
    "Dialect",
    "Group",
    "Message",
    "Part",
    "Repaired",
    "Rule",
    "ToolCall",
    "Violation",
    "align",
    "anthropic_request",
    "call_ids_of",
    "canonical",
    "copied",
    "copied_as_text",
    "fingerprint",
    "from_anthropic",
    "from_responses",
    "group_start",
    "group_stop",
    "groups",
    "is_cut",
    "is_system",
    "item_violations",
    "last_speaker",
    "leading_systems",
    "merged",
    "parts_of",
    "repair",
    "role_of",
    "spoken",
    "text_of",
    "to_anthropic",
    "to_responses",
    "tool_calls_of",
    "tool_result",
    "tools_from_anthropic",
    "tools_to_anthropic",
    "unread_start",
    "violations",
    "without_private",
]
