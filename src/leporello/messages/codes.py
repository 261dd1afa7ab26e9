"""Everything that can be wrong with a list of messages: one code each, in one table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from leporello.messages.types import Dialect

DIALECTS: Final[tuple[Dialect, ...]] = ("openai", "anthropic", "responses")

NOT_A_LIST: Final = "not-a-list"
NO_MESSAGES: Final = "no-messages"
NO_USER: Final = "no-user"
NOT_A_DICT: Final = "message-not-a-dict"
NOT_JSON: Final = "not-json"
LONE_SURROGATE: Final = "lone-surrogate"
TOO_DEEP: Final = "too-deep"

ROLE_MISSING: Final = "role-missing"
ROLE_UNKNOWN: Final = "role-unknown"
FIRST_NOT_USER: Final = "first-not-user"
REPEATED_ROLE: Final = "repeated-role"
NAME_NOT_TEXT: Final = "name-not-text"

CONTENT_MISSING: Final = "content-missing"
CONTENT_WRONG_TYPE: Final = "content-wrong-type"
CONTENT_EMPTY: Final = "content-empty"
ASSISTANT_EMPTY: Final = "assistant-empty"
PART_NOT_A_DICT: Final = "part-not-a-dict"
PART_TYPE_MISSING: Final = "part-type-missing"
TEXT_MISSING: Final = "text-missing"
TEXT_EMPTY: Final = "text-empty"
TEXT_BLANK: Final = "text-blank"
IMAGE_WITHOUT_URL: Final = "image-without-url"
IMAGE_URL_UNUSABLE: Final = "image-url-unusable"
IMAGE_MISPLACED: Final = "image-misplaced"

THINKING_MISPLACED: Final = "thinking-misplaced"
THINKING_MALFORMED: Final = "thinking-malformed"
THINKING_UNSIGNED: Final = "thinking-unsigned"
THINKING_LAST: Final = "thinking-last"

CALLS_MISPLACED: Final = "calls-misplaced"
CALLS_NOT_A_LIST: Final = "calls-not-a-list"
CALLS_EMPTY: Final = "calls-empty"
CALL_NOT_A_DICT: Final = "call-not-a-dict"
CALL_ID_MISSING: Final = "call-id-missing"
CALL_ID_DUPLICATE: Final = "call-id-duplicate"
CALL_TYPE_MISSING: Final = "call-type-missing"
FUNCTION_MISSING: Final = "function-missing"
FUNCTION_NAME_MISSING: Final = "function-name-missing"
FUNCTION_NAME_ILLEGAL: Final = "function-name-illegal"
FUNCTION_NAME_TOO_LONG: Final = "function-name-too-long"
ARGUMENTS_NOT_TEXT: Final = "arguments-not-text"
ARGUMENTS_NOT_JSON: Final = "arguments-not-json"
ARGUMENTS_NOT_OBJECT: Final = "arguments-not-object"

RESULT_ID_MISSING: Final = "result-id-missing"
RESULT_ORPHAN: Final = "result-orphan"
RESULT_LATE: Final = "result-late"
RESULT_DUPLICATE: Final = "result-duplicate"
RESULT_MISSING: Final = "result-missing"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One thing that can be wrong: its code, the dialects that refuse it, and what it means."""

    code: str
    dialects: tuple[str, ...]
    meaning: str


def _table(**rules: dict[str, str]) -> dict[str, Rule]:
    dialects = {
        "all": DIALECTS,
        "turns": ("openai", "anthropic"),
        "openai": ("openai", "responses"),
        "anthropic": ("anthropic",),
    }
    return {
        code: Rule(code=code, dialects=dialects[who], meaning=meaning)
        for who, meanings in rules.items()
        for code, meaning in meanings.items()
    }


RULES: Final = _table(
    all={
        NOT_A_LIST: "the conversation is not a list",
        NO_MESSAGES: "the list is empty",
        NOT_A_DICT: "a message is not a dict",
        NOT_JSON: "a value is not JSON: a set, bytes, a tuple, NaN, a key that is not text",
        LONE_SURROGATE: "text holds half of a surrogate pair and cannot be encoded as UTF-8",
        TOO_DEEP: "a value is nested more than 100 levels deep, or holds itself",
        ROLE_MISSING: "a message has no role",
        ROLE_UNKNOWN: "the role is none of system, developer, user, assistant, tool",
        CONTENT_MISSING: "a system, user or tool message has no content",
        CONTENT_WRONG_TYPE: "the content is neither text nor a list of parts",
        CONTENT_EMPTY: "the content of a system or user message is empty, or that of any other message an empty list",
        ASSISTANT_EMPTY: "an assistant message has neither text nor calls",
        PART_NOT_A_DICT: "a part of the content is not a dict",
        PART_TYPE_MISSING: "a part has no type",
        TEXT_MISSING: "a text part has no text",
        TEXT_EMPTY: "the text of a text part is empty",
        IMAGE_WITHOUT_URL: "an image part names no image",
        IMAGE_URL_UNUSABLE: "an image is neither an http(s) address nor base64 data of a png, jpeg, gif or webp",
        IMAGE_MISPLACED: "an image stands in a system or assistant message",
        THINKING_MISPLACED: "a thinking part stands in a message that is not from the assistant",
        CALLS_MISPLACED: "a message that is not from the assistant has tool calls",
        CALLS_NOT_A_LIST: "the tool calls are not a list",
        CALLS_EMPTY: "the list of tool calls is empty",
        CALL_NOT_A_DICT: "a tool call is not a dict",
        CALL_ID_MISSING: "a tool call has no id",
        CALL_ID_DUPLICATE: "an earlier tool call has the same id",
        CALL_TYPE_MISSING: "a tool call has no type",
        FUNCTION_MISSING: "a tool call has no function",
        FUNCTION_NAME_MISSING: "the function of a tool call has no name",
        FUNCTION_NAME_ILLEGAL: "a function's name holds other characters than A-Z a-z 0-9 _ -, or more than 128",
        ARGUMENTS_NOT_TEXT: "the arguments of a tool call are not text",
        ARGUMENTS_NOT_JSON: "the arguments of a tool call are not JSON",
        ARGUMENTS_NOT_OBJECT: "the arguments of a tool call are JSON, but not an object",
        RESULT_ID_MISSING: "a tool result does not say which call it answers",
        RESULT_ORPHAN: "a tool result answers a call that was not made before it",
        RESULT_LATE: "a tool result does not follow its call immediately",
        RESULT_DUPLICATE: "a tool result answers a call that has its result already",
        RESULT_MISSING: "a tool call has no result",
    },
    turns={
        NO_USER: "there is neither a user nor an assistant message",
        FIRST_NOT_USER: "the first message after the system messages is not from the user",
        REPEATED_ROLE: "two user messages, or two assistant messages, stand side by side",
    },
    openai={
        NAME_NOT_TEXT: "the name of a message is not text",
        FUNCTION_NAME_TOO_LONG: "a function's name has more than 64 characters",
    },
    anthropic={
        TEXT_BLANK: "text holds nothing but white space",
        THINKING_MALFORMED: "a thinking block holds no thinking, a redacted one no data, or thinking_blocks no blocks",
        THINKING_UNSIGNED: "a thinking block has no signature",
        THINKING_LAST: "nothing follows the last thinking block of a message",
    },
)
"""Every rule that a list of messages can break, by its code."""
