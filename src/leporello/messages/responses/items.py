"""The kinds of items in OpenAI's Responses API: who says them, and which belong together.

A kind that is not listed passes too. One with a `call_id` is a call, or its output when its name ends like one; any
other is the model's, unless its name or its role says that the client sent it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from leporello.messages.types import SYSTEM_ROLES

Item: TypeAlias = dict[str, Any]

REASONING: Final = "reasoning"
COMPACTIONS: Final = frozenset({"compaction", "context_compaction"})
COMPACTION_TRIGGER: Final = "compaction_trigger"
ITEM_REFERENCE: Final = "item_reference"
PROGRAM: Final = "program"
PROGRAM_OUTPUT: Final = "program_output"
ADDITIONAL_TOOLS: Final = "additional_tools"


@dataclass(frozen=True, kw_only=True)
class CallKind:
    """A call that the client answers: the fields that say what is called, and the kind of its output.

    `name` is what the tool is called where the item does not say it; `id` and `answers` are the fields by which call
    and output find each other.
    """

    output: str
    name: str = ""
    payload: tuple[str, ...] = ()
    id: str = "call_id"
    answers: str = "call_id"


CALLS: Final = {
    "function_call": CallKind(output="function_call_output"),
    "custom_tool_call": CallKind(output="custom_tool_call_output", payload=("input",)),
    "tool_search_call": CallKind(output="tool_search_output", name="tool_search", payload=("arguments",)),
    "shell_call": CallKind(output="shell_call_output", name="shell", payload=("action",)),
    "local_shell_call": CallKind(
        output="local_shell_call_output", name="local_shell", payload=("action",), answers="id"
    ),
    "apply_patch_call": CallKind(output="apply_patch_call_output", name="apply_patch", payload=("operation",)),
    "computer_call": CallKind(output="computer_call_output", name="computer", payload=("action", "actions")),
    "mcp_approval_request": CallKind(output="mcp_approval_response", id="id", answers="approval_request_id"),
}
"""The calls that a client answers, each with the kind of its output."""

OUTPUTS: Final = {kind.output: name for name, kind in CALLS.items()}
"""The kinds of outputs, each with the kind of call that it answers."""

OF_THE_MODEL: Final = COMPACTIONS | {
    REASONING,
    "web_search_call",
    "file_search_call",
    "code_interpreter_call",
    "image_generation_call",
    "mcp_call",
    "mcp_list_tools",
    PROGRAM,
    PROGRAM_OUTPUT,
    ITEM_REFERENCE,
}
"""Items of the model that no output of the client answers."""

_OF_THE_DEVELOPER: Final = frozenset({ADDITIONAL_TOOLS, "configuration_update"})
_OF_THE_CLIENT: Final = frozenset({COMPACTION_TRIGGER, "agent_message"})
_CLIENTS_ENDINGS: Final = ("_output", "_response", "_result", "_trigger", "_update")
_HOSTED: Final = frozenset({"container_auto", "container_reference"})


def kind_of(item: Any) -> str:
    """Return the kind of an item: a message needs no `type`, and neither does a reference."""
    if not isinstance(item, dict):
        return ""
    kind = item.get("type")
    if isinstance(kind, str) and kind:
        return kind
    if "role" in item:
        return "message"
    return ITEM_REFERENCE if item.keys() <= {"id", "type"} and "id" in item else ""


def speaker_of(item: Item) -> str:
    """Return the role of an item that is neither a message nor a call with its output."""
    kind, role = kind_of(item), _text(item.get("role"))
    if kind in _OF_THE_DEVELOPER:
        return "developer"
    if kind in _OF_THE_CLIENT:
        return "user"
    if kind in OF_THE_MODEL:
        return "assistant"
    if role in SYSTEM_ROLES or role in ("user", "assistant"):
        return role
    return "user" if kind.endswith(_CLIENTS_ENDINGS) else "assistant"


def call_kind(kind: str) -> CallKind:
    """Return how calls of a kind are written; an unknown kind is written as most kinds are."""
    return CALLS.get(kind) or CallKind(output=f"{kind}_output", name=kind.removesuffix("_call"))


def call_id_of(item: Any) -> str:
    """Return the id by which an item is the call of its output; "" when it is no call that the client answers."""
    kind = kind_of(item)
    if kind in CALLS:
        return _text(item.get(CALLS[kind].id)) if not is_hosted(item) else ""
    is_call = kind not in OUTPUTS and kind not in OF_THE_MODEL and not kind.endswith("_output")
    return _text(item.get("call_id")) if is_call and kind != "message" else ""


def answered_id_of(item: Any) -> str:
    """Return the id of the call that an item is the output of; "" when it is none."""
    kind = kind_of(item)
    if kind in OUTPUTS:
        return _text(item.get(CALLS[OUTPUTS[kind]].answers)) if not is_hosted(item) else ""
    is_output = kind.endswith("_output") and kind not in OF_THE_MODEL
    return _text(item.get("call_id")) if is_output else ""


def is_hosted(item: Item) -> bool:
    """Tell whether the provider itself answers a call, so that call and output both come from it."""
    if item.get("execution") == "server":
        return True
    environment = item.get("environment")
    return isinstance(environment, dict) and environment.get("type") in _HOSTED


def program_of(item: Item) -> str:
    """Return the id of the program that made a call or that an output belongs to; "" for none."""
    if kind_of(item) == PROGRAM_OUTPUT:
        return _text(item.get("call_id"))
    caller = item.get("caller")
    return _text(caller.get("caller_id")) if isinstance(caller, dict) and caller.get("type") == PROGRAM else ""


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
