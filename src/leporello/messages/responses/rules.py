"""What the Responses API refuses in a list of items.

The rules are those that the provider was seen to apply: a call and its output need each other, a reasoning item needs
the item that followed it and that one needs the reasoning, no id stands twice, and a trigger of a compaction is last.
Unknown kinds are only held to the rules for all kinds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from leporello.messages.responses.items import (
    CALLS,
    COMPACTION_TRIGGER,
    ITEM_REFERENCE,
    OUTPUTS,
    PROGRAM,
    REASONING,
    answered_id_of,
    call_id_of,
    call_kind,
    is_hosted,
    kind_of,
    program_of,
    speaker_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

NOT_AN_ITEM: Final = "not-an-item"
ROLE: Final = "role"
CONTENT: Final = "content"
PART: Final = "part"
FIELD_MISSING: Final = "field-missing"
OUTPUT_ORPHAN: Final = "output-orphan"
OUTPUT_MISSING: Final = "output-missing"
OUTPUT_DUPLICATE: Final = "output-duplicate"
OUTPUT_KIND: Final = "output-kind"
CALL_DUPLICATE: Final = "call-duplicate"
ID_DUPLICATE: Final = "id-duplicate"
REASONING_ALONE: Final = "reasoning-alone"
REASONING_MISSING: Final = "reasoning-missing"
TRIGGER_NOT_LAST: Final = "trigger-not-last"
PROGRAM_MISSING: Final = "program-missing"

_ROLES: Final = frozenset({"user", "assistant", "system", "developer"})
_OF_ASSISTANTS: Final = frozenset({"output_text", "refusal"})
_OF_OTHERS: Final = frozenset({"input_text", "input_image", "input_file", "input_audio"})
_REQUIRED: Final[dict[str, dict[str, Any]]] = {
    REASONING: {"summary": list},
    "function_call": {"call_id": str, "name": str, "arguments": str},
    "custom_tool_call": {"call_id": str, "name": str, "input": str},
    "shell_call": {"call_id": str, "action": dict},
    "local_shell_call": {"call_id": str, "action": dict},
    "apply_patch_call": {"call_id": str, "operation": dict},
    "computer_call": {"call_id": str},
    "mcp_approval_request": {"id": str, "name": str, "arguments": str},
    "mcp_approval_response": {"approval_request_id": str, "approve": bool},
    "function_call_output": {"output": (str, list)},
    "custom_tool_call_output": {"call_id": str, "output": (str, list)},
    "shell_call_output": {"call_id": str, "output": list},
    "local_shell_call_output": {"id": str, "output": str},
    "apply_patch_call_output": {"call_id": str, "status": str},
    "computer_call_output": {"call_id": str, "output": dict},
    "tool_search_output": {"tools": list},
    PROGRAM: {"call_id": str, "code": str, "fingerprint": str},
    "program_output": {"call_id": str, "result": str},
    "compaction": {"encrypted_content": str},
    "additional_tools": {"tools": list},
    ITEM_REFERENCE: {"id": str},
}


@dataclass(frozen=True, kw_only=True)
class ItemViolation:
    """One thing that is wrong; `index` is the item's place."""

    index: int
    code: str
    message: str


def item_violations(items: Sequence[Any], reasoned: Mapping[str, str] | None = None) -> list[ItemViolation]:
    """Return what makes a list of items illegal, in order of place.

    `reasoned` are the ids of items that followed a reasoning item when the provider made them, each with its id.
    """
    found = [
        ItemViolation(index=index, code=code, message=message)
        for index, item in enumerate(items)
        for code, message in _faults(item)
    ]
    known = [(index, item) for index, item in enumerate(items) if kind_of(item)]
    for check in (_pairs(known), _ids(known), _reasoning(known, reasoned or {}), _programs(known), _trigger(known)):
        found += [ItemViolation(index=index, code=code, message=message) for index, code, message in check]
    return sorted(found, key=lambda violation: violation.index)


def _faults(item: Any) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with an item by itself."""
    kind = kind_of(item)
    if not kind:
        yield NOT_AN_ITEM, "Missing required parameter: 'type'."
        return
    if kind == "message":
        yield from _message_faults(item)
    for field, wanted in _REQUIRED.get(kind, {}).items():
        if not isinstance(item.get(field), wanted):
            yield FIELD_MISSING, f"Missing required parameter: '{field}' of a {kind}."


def _message_faults(item: dict[str, Any]) -> Iterator[tuple[str, str]]:
    role, content = item.get("role"), item.get("content")
    if not isinstance(role, str) or role not in _ROLES:
        yield ROLE, f"Invalid value: '{role}' is no role."
        return
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        yield CONTENT, "Missing required parameter: 'content'."
        return
    own, others = (_OF_ASSISTANTS, _OF_OTHERS) if role == "assistant" else (_OF_OTHERS, _OF_ASSISTANTS)
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        if not isinstance(kind, str) or kind in others:
            yield PART, f"Invalid value: '{kind}'. Supported values are: {', '.join(sorted(own))}."


def _pairs(items: Sequence[tuple[int, dict[str, Any]]]) -> Iterator[tuple[int, str, str]]:
    """Yield calls without an output and outputs without a call."""
    calls: dict[str, tuple[int, str]] = {}
    answered: set[str] = set()
    hosted = {item.get("call_id") for _, item in items if kind_of(item) in CALLS and is_hosted(item)}
    for index, item in items:
        kind, called, answers = kind_of(item), call_id_of(item), answered_id_of(item)
        if called:
            if called in calls:
                yield index, CALL_DUPLICATE, f"Duplicate tool call with call_id {called}."
            calls[called] = (index, kind)
        elif answers and answers not in hosted:
            if fault := _output_fault(kind, answers, calls, answered):
                yield index, *fault
            answered.add(answers)
    for called, (index, kind) in calls.items():
        if called not in answered and kind != "mcp_approval_request":
            yield index, OUTPUT_MISSING, f"No tool output found for {kind.replace('_', ' ')} {called}."


def _output_fault(
    kind: str, answers: str, calls: Mapping[str, tuple[int, str]], answered: set[str]
) -> tuple[str, str] | None:
    if answers not in calls:
        return OUTPUT_ORPHAN, f"No tool call found for {kind.replace('_', ' ')} with call_id {answers}."
    if answers in answered:
        return OUTPUT_DUPLICATE, f"Duplicate output for the tool call {answers}."
    if kind in OUTPUTS and call_kind(calls[answers][1]).output != kind:
        return OUTPUT_KIND, f"A {kind} does not answer a {calls[answers][1]}."
    return None


def _ids(items: Sequence[tuple[int, dict[str, Any]]]) -> Iterator[tuple[int, str, str]]:
    """Yield items whose id another one has already; the output of a local shell has that of its call."""
    seen: set[str] = set()
    for index, item in items:
        id_ = item.get("id")
        if not isinstance(id_, str) or kind_of(item) in (ITEM_REFERENCE, "local_shell_call_output"):
            continue
        if id_ in seen:
            yield index, ID_DUPLICATE, f"Duplicate item found with id {id_}. Remove duplicate items from your input."
        seen.add(id_)


def _reasoning(
    items: Sequence[tuple[int, dict[str, Any]]], reasoned: Mapping[str, str]
) -> Iterator[tuple[int, str, str]]:
    """Yield reasoning without the item behind it, and items without the reasoning before them."""
    thoughts = [item.get("id") for _, item in items if kind_of(item) in (REASONING, ITEM_REFERENCE)]
    for place, (index, item) in enumerate(items):
        kind, id_ = kind_of(item), item.get("id")
        if kind == REASONING and (place + 1 == len(items) or not follows_reasoning(items[place + 1][1])):
            message = f"Item '{id_}' of type 'reasoning' was provided without its required following item."
            yield index, REASONING_ALONE, message
        needed = reasoned.get(id_) if isinstance(id_, str) else None
        if needed and needed not in thoughts:
            message = f"Item '{id_}' of type '{kind}' was provided without its required 'reasoning' item: '{needed}'."
            yield index, REASONING_MISSING, message


def follows_reasoning(item: dict[str, Any]) -> bool:
    """Tell whether an item is the model's, as everything is that follows its reasoning."""
    if kind_of(item) == "message":
        return item.get("role") == "assistant"
    return bool(call_id_of(item)) or (not answered_id_of(item) and speaker_of(item) == "assistant")


def _programs(items: Sequence[tuple[int, dict[str, Any]]]) -> Iterator[tuple[int, str, str]]:
    """Yield what belongs to a program that is not there."""
    seen: set[str] = set()
    for index, item in items:
        if kind_of(item) == PROGRAM:
            seen.add(str(item.get("call_id")))
        elif (program := program_of(item)) and program not in seen:
            yield index, PROGRAM_MISSING, f"No program found with call_id {program}."


def _trigger(items: Sequence[tuple[int, dict[str, Any]]]) -> Iterator[tuple[int, str, str]]:
    """Yield a trigger of a compaction that something follows."""
    for place, (index, item) in enumerate(items):
        if kind_of(item) == COMPACTION_TRIGGER and place + 1 < len(items):
            yield index, TRIGGER_NOT_LAST, "A compaction_trigger must be the last item of the input."
