"""Outputs of calls: items of many shapes, and the tool messages that say the same.

A tool message holds what a person would read. What else an item says stays in the message's note, and so does where
the parts of a longer text belong. A text that an engine wrote in its place fits into every kind of output.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from leporello.messages.responses.items import CALLS, OUTPUTS, Item, answered_id_of, call_kind, kind_of
from leporello.messages.responses.parts import note_of, part_of, without_note, written_part
from leporello.messages.types import RESPONSES_NOTE, Message, parts_of, text_of

if TYPE_CHECKING:
    from collections.abc import Callable

BLANK_IMAGE: Final = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYAAAAAYAAjCB0C8AAAAASUVORK5CYII="
)
"""One pixel: it stands in the place of a screenshot that was taken out of the window."""

APPROVED: Final = "approved"
DENIED: Final = "denied"
_YES: Final = (APPROVED, "approve", "yes", "true")
_STDERR: Final = "\n[stderr]\n"
_OF_PARTS: Final = frozenset({"function_call_output", "custom_tool_call_output"})


def result_of(item: Item) -> Message:
    """Return the tool message of an output item."""
    kind = kind_of(item)
    answers = CALLS[OUTPUTS[kind]].answers if kind in OUTPUTS else "call_id"
    content, rest = _content(item, kind)
    note = {key: value for key, value in rest.items() if key != answers}
    message: Message = {"role": "tool", "tool_call_id": answered_id_of(item), "content": content}
    if note != {"type": "function_call_output"}:
        message[RESPONSES_NOTE] = {"item": note}
    return message


def written_result(message: Message, called: str) -> Item:
    """Return the output item of a tool message; `called` is the kind of the call that it answers, as far as known."""
    note = note_of(message).get("item")
    fields = dict(note) if isinstance(note, dict) else {"type": call_kind(called or "function_call").output}
    kind = str(fields.get("type"))
    answers = CALLS[OUTPUTS[kind]].answers if kind in OUTPUTS else "call_id"
    item = {"type": kind, answers: message.get("tool_call_id"), **fields}
    return {**item, **_output(message, kind, fields)}


def _content(item: Item, kind: str) -> tuple[Any, Item]:
    """Return what an output says, and the fields that the note keeps."""
    rest = {key: value for key, value in item.items() if key not in ("output", "tools")}
    output = item.get("output")
    read = _READ.get(kind)
    content = read(item) if read else None
    if content is None and isinstance(output, str):
        content = output
    if content is None and isinstance(output, list) and kind in _OF_PARTS and all(map(_is_object, output)):
        content = [part_of(part, "tool") for part in output]
    if kind == "shell_call_output" and content is not None:
        rest["output"] = _places(item["output"])
    return [{**item, RESPONSES_NOTE: {"own": True}}] if content is None else content, rest


def _output(message: Message, kind: str, note: Item) -> Item:
    """Return the fields that say what a tool message says."""
    content = message.get("content")
    own = next((part for part in parts_of(message) if note_of(part).get("own")), None)
    if own is not None:
        return {key: value for key, value in without_note(own).items() if key not in ("type", "call_id")}
    if kind in _WRITE:
        return _WRITE[kind](message, note)
    if isinstance(content, list):
        parts = [part for part in (written_part(part, "tool") for part in content) if part is not None]
        return {"output": parts}
    return {"output": content if isinstance(content, str) else ""}


def _read_approval(item: Item) -> str:
    return APPROVED if item.get("approve") is True else DENIED


def _written_approval(message: Message, note: Item) -> Item:
    return {"approve": text_of(message).strip().lower().startswith(_YES), **note}


def _read_tools(item: Item) -> str | None:
    tools = item.get("tools")
    return json.dumps(tools, ensure_ascii=False) if isinstance(tools, list) else None


def _written_tools(message: Message, note: Item) -> Item:
    return {"execution": "client", **note, "tools": _tools(text_of(message))}


def _read_screenshot(item: Item) -> list[Any] | None:
    output = item.get("output")
    return [part_of({**output, "type": "input_image"}, "tool")] if isinstance(output, dict) else None


def _written_screenshot(message: Message, note: Item) -> Item:
    image = next((part for part in parts_of(message) if part.get("type") in ("image_url", "file")), None)
    written = {"image_url": BLANK_IMAGE} if image is None else written_part(image, "tool")
    if not note_of(image):
        written.pop("detail", None)
    return {"output": {**written, "type": "computer_screenshot"}}


def _written_patch(message: Message, note: Item) -> Item:
    return {"status": "completed", **note, "output": text_of(message)}


def _read_shell(item: Item) -> str | None:
    output = item.get("output")
    return _shell_text(output) if isinstance(output, list) and all(map(_is_printed, output)) else None


def _written_shell(message: Message, note: Item) -> Item:
    return {"output": _shell_output(text_of(message), note.get("output"))}


_READ: Final[dict[str, Callable[[Item], Any]]] = {
    "mcp_approval_response": _read_approval,
    "tool_search_output": _read_tools,
    "computer_call_output": _read_screenshot,
    "shell_call_output": _read_shell,
}
_WRITE: Final[dict[str, Callable[[Message, Item], Item]]] = {
    "mcp_approval_response": _written_approval,
    "tool_search_output": _written_tools,
    "computer_call_output": _written_screenshot,
    "shell_call_output": _written_shell,
    "apply_patch_call_output": _written_patch,
}
"""The kinds of outputs that are no text and no list of parts."""


def _tools(text: str) -> list[Any]:
    try:
        tools = json.loads(text)
    except ValueError:
        return []
    return tools if isinstance(tools, list) else []


def _is_object(part: Any) -> bool:
    return isinstance(part, dict)


def _is_printed(one: Any) -> bool:
    return isinstance(one, dict) and isinstance(one.get("stdout"), str) and isinstance(one.get("stderr"), str)


def _shell_text(output: list[Item]) -> str:
    """Return what a shell printed."""
    return "\n".join(map(_printed, output))


def _printed(one: Item) -> str:
    outcome = one.get("outcome")
    code = outcome.get("exit_code") if isinstance(outcome, dict) else None
    end = f"\n[exit code {code}]" if code else ""
    errors = f"{_STDERR}{one['stderr']}" if one["stderr"] else ""
    return f"{one['stdout']}{errors}{end}"


def _places(output: list[Item]) -> list[Item]:
    """Return the output of a shell with the lengths of its texts in their place."""
    return [{**one, "stdout": len(one["stdout"]), "stderr": len(one["stderr"])} for one in output]


def _shell_output(text: str, places: Any) -> list[Item]:
    """Return the output of a shell: as it was, or as one that printed this text."""
    found: list[Item] = []
    at = 0
    for one in places if isinstance(places, list) else []:
        begins = at + one["stdout"] + len(_STDERR)
        texts = {"stdout": text[at : at + one["stdout"]], "stderr": text[begins : begins + one["stderr"]]}
        found.append({**one, **texts})
        at += len(_printed(found[-1])) + 1
    if isinstance(places, list) and _shell_text(found) == text and _places(found) == places:
        return found
    return [{"stdout": text, "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]
