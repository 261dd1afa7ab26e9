"""Items of the Responses API to messages in OpenAI's chat format, and back.

All that the model says between two turns of the client is one assistant message: its texts and calls, and every other
item as a part of its content, so that reasoning stays with what follows it. What the chat format cannot say (ids,
states, phases, annotations, the order of calls between texts) stays in private notes on the parts and the calls that it
belongs to; with them the way back gives equal items, without them items that say the same. A call that an output of the
client answers is a tool call; one that the provider answers itself stays a part, and so does its output.

`instructions` are the system prompt. Items of the role system or developer at the front belong to it too, and stay
items.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from leporello.errors import MessageError
from leporello.messages.fixed import STUB_RESULT
from leporello.messages.responses.items import (
    CALLS,
    COMPACTIONS,
    ITEM_REFERENCE,
    OF_THE_MODEL,
    PROGRAM,
    REASONING,
    Item,
    answered_id_of,
    call_id_of,
    call_kind,
    kind_of,
    program_of,
    speaker_of,
)
from leporello.messages.responses.outputs import result_of, written_result
from leporello.messages.responses.parts import note_of, part_of, without_note, written_part
from leporello.messages.rules import refusal_of
from leporello.messages.types import (
    RESPONSES_NOTE,
    THINKING_TYPES,
    Message,
    is_system,
    leading_systems,
    role_of,
    text_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_ILLEGAL_IN_NAME: Final = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST_NAME: Final = 64
_TYPED: Final[Item] = {"type": "message"}


def from_responses(request: dict[str, Any]) -> list[Message]:
    """Return the conversation of a request: its `instructions` and its `input`, a text or a list of items."""
    given = request.get("input")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    if not isinstance(items, list):
        raise MessageError("a text or a list of items is required", path="input")
    instructions = request.get("instructions")
    prompt: list[Message] = []
    if isinstance(instructions, str) and instructions:
        prompt = [{"role": "system", "content": instructions}]
    return [*prompt, *messages_of(items)]


def messages_of(items: Sequence[Any]) -> list[Message]:
    """Return the messages that a list of items says."""
    hosted = _hosted(items)
    reading = _Reading()
    for index, item in enumerate(items):
        kind = kind_of(item)
        if not kind:
            raise MessageError("an item is an object with a type, or a message", path=f"input[{index}]")
        reading.take(item, kind, inside=_call_or_output(item) in hosted)
    reading.close()
    return reading.messages


def answer_of(items: Sequence[Any]) -> Message:
    """Return the one assistant message of a response's output; whatever is in it, the model said it."""
    reading = _Reading()
    hosted = _hosted(items)
    for item in items:
        if not isinstance(item, dict):
            raise MessageError(f"an item is an object, not {type(item).__name__}", path="output")
        kind = kind_of(item)
        own = kind == "message" and item.get("role", "assistant") == "assistant"
        called = call_id_of(item) if kind else ""
        if own or (called and called not in hosted):
            reading.take({**item, "role": "assistant"} if own else item, kind, inside=False)
        else:
            reading.inside(item)
    reading.close()
    return reading.messages[0] if reading.messages else {"role": "assistant", "content": None}


def _hosted(items: Sequence[Any]) -> set[str]:
    """Return the ids of calls that the provider answers itself; "" is none."""
    calls = (item for item in items if isinstance(item, dict) and kind_of(item) in CALLS)
    ids = [item.get("call_id") for item in calls if not call_id_of(item)]
    return {id_ for id_ in ids if isinstance(id_, str) and id_}


def _call_or_output(item: Item) -> str:
    return call_id_of(item) or answered_id_of(item)


class _Reading:
    """Makes messages of items, one by one."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._parts: list[Any] = []
        self._calls: list[tuple[int, dict[str, Any]]] = []  # each with the number of parts before it
        self._programs: set[str] = set()
        self._continues = False

    def take(self, item: Item, kind: str, *, inside: bool) -> None:
        """Take the next item; one that is answered inside of the model's turn is a part of it."""
        if kind == "message":
            self._message(item)
        elif inside:
            self.inside(item)
        elif call_id_of(item) and _is_whole(item, kind):
            self._program(item)
            self._calls.append((len(self._parts), _call_of(item, kind)))
        elif answered_id_of(item):
            self.close()
            self.messages.append(result_of(item))
        elif speaker_of(item) == "assistant":
            self.inside(item)
        else:
            self.close()
            message: Message = {"role": speaker_of(item), "content": [_own(item)]}
            if is_system(message):
                message[RESPONSES_NOTE] = {"item": _TYPED}
            self.messages.append(message)

    def inside(self, item: Item) -> None:
        """Take an item as a part of the model's turn."""
        self._program(item)
        self._parts.append(_own(item))

    def close(self) -> None:
        """End the turn of the model."""
        if not self._parts and not self._calls:
            return
        message: Message = {"role": "assistant", "content": self._parts or None}
        if self._calls:
            message["tool_calls"] = [_placed(call, len(self._parts) - before) for before, call in self._calls]
        if self._continues:
            message[RESPONSES_NOTE] = {"continues": True}
        self.messages.append(message)
        self._parts, self._calls, self._programs, self._continues = [], [], set(), False

    def _program(self, item: Item) -> None:
        """Note that a program runs on from an earlier turn: the two must not be parted."""
        if kind_of(item) == PROGRAM:
            self._programs.add(str(item.get("call_id")))
        elif (program := program_of(item)) and program not in self._programs:
            self._continues = True

    def _message(self, item: Item) -> None:
        role, content = item.get("role"), item.get("content")
        if role != "assistant":
            self.close()
            self.messages.append(_message_of(item, str(role)))
        elif not content or not isinstance(content, (str, list)):
            self._parts.append(_own(item))
        else:
            fields = {key: value for key, value in item.items() if key not in ("role", "content")}
            self._parts += _answer_parts(content, fields)


def _own(item: Item) -> Item:
    return {**item, RESPONSES_NOTE: {"own": True}}


def _message_of(item: Item, role: str) -> Message:
    content = item.get("content")
    fields = {key: value for key, value in item.items() if key not in ("role", "content")}
    parts = [part_of(part, role) for part in content] if isinstance(content, list) else content
    message: Message = {"role": role, "content": parts}
    if fields != _TYPED or is_system(message):
        message[RESPONSES_NOTE] = {"item": fields}
    return message


def _answer_parts(content: Any, fields: Item) -> list[Any]:
    """Return the parts of a message of the model; the first one notes what else the message says."""
    if isinstance(content, str):
        return [{"type": "text", "text": content, RESPONSES_NOTE: {"message": fields, "alone": True}}]
    parts = [part_of(part, "assistant") for part in content]
    if not all(isinstance(part, dict) for part in parts):
        return [_own({**fields, "role": "assistant", "content": content})]
    notes: list[Item] = [{"message": fields}, *({"more": True} for _ in parts[1:])]
    return [{**part, RESPONSES_NOTE: {**note_of(part), **note}} for part, note in zip(parts, notes, strict=True)]


def _is_whole(item: Item, kind: str) -> bool:
    """Tell whether a call has what a tool call must have; another one stays an item."""
    if kind in ("function_call", "mcp_approval_request"):
        return isinstance(item.get("name"), str) and isinstance(item.get("arguments"), str)
    return kind != "custom_tool_call" or isinstance(item.get("name"), str)


def _call_of(item: Item, kind: str) -> dict[str, Any]:
    shape = call_kind(kind)
    name = str(item.get("name") or shape.name)
    legal = _ILLEGAL_IN_NAME.sub("_", name)[:_LONGEST_NAME] or kind
    if kind in ("function_call", "mcp_approval_request"):
        arguments, said = item["arguments"], {"arguments"}
    else:
        said = set(shape.payload) if kind in CALLS else item.keys() - {"type", "id", "name", "status", "caller"}
        said = said - {shape.id}
        payload = {key: value for key, value in item.items() if key in said}
        arguments = json.dumps(payload, ensure_ascii=False)
    rest = {key: value for key, value in item.items() if key not in said and key != shape.id}
    if legal == item.get("name"):
        del rest["name"]
    call = {"id": item[shape.id], "type": "function", "function": {"name": legal, "arguments": arguments}}
    return call if rest == {"type": "function_call"} else {**call, RESPONSES_NOTE: {"item": rest}}


def _placed(call: dict[str, Any], behind: int) -> dict[str, Any]:
    """Note how many parts of the content stand behind a call, if any do."""
    return {**call, RESPONSES_NOTE: {**note_of(call), "behind": behind}} if behind else call


def to_responses(messages: Sequence[Message]) -> dict[str, Any]:
    """Return the request of a conversation: `input`, and `instructions` if it begins with a system prompt."""
    prompt = 0
    while prompt < leading_systems(messages) and RESPONSES_NOTE not in messages[prompt]:
        prompt += 1
    request: dict[str, Any] = {"input": items_of(messages[prompt:])}
    instructions = "\n\n".join(text_of(message) for message in messages[:prompt])
    return {"instructions": instructions, **request} if instructions else request


def items_of(messages: Iterable[Message]) -> list[Item]:
    """Return the items that messages say."""
    items: list[Item] = []
    kinds: dict[str, str] = {}
    for message in messages:
        role = role_of(message)
        if role == "tool":
            item = written_result(message, kinds.get(str(message.get("tool_call_id")), ""))
            if item["type"] != "mcp_approval_response" or message.get("content") != STUB_RESULT:
                items.append(item)  # a call without an output stays one
            continue
        if role == "assistant":
            for call in message.get("tool_calls") or ():
                kinds[call["id"]] = _call_item_kind(call)
        items += _assistant_items(message) if role == "assistant" else _message_items(message)
    return items


def _message_items(message: Message) -> list[Item]:
    """Return the items of a message of the client: one, unless an engine wrote something beside an item."""
    role, content = message.get("role"), message.get("content")
    fields = note_of(message).get("item")
    fields = fields if isinstance(fields, dict) else _TYPED
    if not isinstance(content, list):
        return [{**fields, "role": role, "content": content}]
    items: list[Item] = []
    said: list[Any] = []
    for part in content:
        if _is_own(part):
            items.append(without_note(part))
        elif (written := written_part(part, str(role))) is not None:
            said.append(written)
    return [*items, {**fields, "role": role, "content": said}] if said or not items else items


def _assistant_items(message: Message) -> list[Item]:
    parts = _content_parts(message)
    calls = [(_place(call, len(parts)), call) for call in message.get("tool_calls") or ()]
    items: list[Item] = []
    opened: Item | None = None  # the message that the next part may belong to
    for index, part in enumerate([*parts, None]):
        due = [_call_item(call) for place, call in calls if place == index]
        if due:
            items += due
            opened = None
        if part is None:
            break
        if _is_own(part):
            items.append(without_note(part))
            opened = None
            continue
        note = note_of(part)
        written = written_part(part, "assistant")
        if opened is not None and note.get("more"):
            opened["content"].append(written)
            continue
        fields = note.get("message")
        fields = fields if isinstance(fields, dict) else _TYPED
        alone = note.get("alone") or (RESPONSES_NOTE not in part and part.get("type") == "text")
        opened = {**fields, "role": "assistant", "content": part["text"] if alone else [written]}
        items.append(opened)
        opened = None if alone else opened
    return items


def _content_parts(message: Message) -> list[Any]:
    """Return what an assistant message says, as parts that items can hold."""
    content = message.get("content")
    if isinstance(content, str):
        parts = [{"type": "text", "text": content}] if content.strip() else []
    else:
        parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    parts = [part for part in parts if part.get("type") not in THINKING_TYPES]
    if not parts and (refusal := refusal_of(message)):
        parts = [{"type": "refusal", "refusal": refusal}]
    return parts


def _is_own(part: Any) -> bool:
    """Tell whether a part is an item by itself."""
    if not isinstance(part, dict):
        return False
    return bool(note_of(part).get("own")) or (RESPONSES_NOTE not in part and part.get("type") in OF_THE_MODEL)


def _place(call: dict[str, Any], parts: int) -> int:
    behind = note_of(call).get("behind")
    return max(0, parts - behind) if isinstance(behind, int) else parts


def _call_item_kind(call: dict[str, Any]) -> str:
    rest = note_of(call).get("item")
    return str(rest.get("type")) if isinstance(rest, dict) else "function_call"


def _call_item(call: dict[str, Any]) -> Item:
    rest = note_of(call).get("item")
    rest = rest if isinstance(rest, dict) else {"type": "function_call"}
    kind = str(rest.get("type"))
    shape = call_kind(kind)
    name, arguments = call["function"]["name"], call["function"]["arguments"]
    if kind in ("function_call", "mcp_approval_request"):
        return {"type": kind, shape.id: call["id"], "name": name, "arguments": arguments, **rest}
    named = {"name": name} if kind == "custom_tool_call" else {}
    return {"type": kind, shape.id: call["id"], **named, **_payload(arguments), **rest}


def _payload(arguments: str) -> Item:
    try:
        payload = json.loads(arguments)
    except ValueError:
        return {}
    return payload if isinstance(payload, dict) else {}


def compaction_of(message: Message) -> Message | None:
    """Return a message with nothing of this one but the provider's own compaction, and the reasoning that led to it.

    None when it holds none.
    """
    content = message.get("content")
    kinds = [kind_of(part) for part in content] if isinstance(content, list) else []
    stop = max((at + 1 for at, kind in enumerate(kinds) if kind in COMPACTIONS), default=0)
    start = stop - 1
    while start > 0 and kinds[start - 1] == REASONING:
        start -= 1
    return {"role": "assistant", "content": message["content"][start:stop]} if stop else None


def reference_of(item: Any) -> str:
    """Return the id of the item that a reference stands for; "" for any other item."""
    id_ = item.get("id") if kind_of(item) == ITEM_REFERENCE else None
    return id_ if isinstance(id_, str) else ""
