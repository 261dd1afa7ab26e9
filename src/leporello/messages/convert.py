"""OpenAI's format to Anthropic's and back.

What Anthropic's format cannot say (names, timestamps, unknown fields, the exact text of arguments) goes into a
residue; with it the way back gives equal messages, without it equal ones in canonical form. What OpenAI's format cannot
say (the order of calls between texts, `is_error`, `caller`) stays with the message in a private note, which leads back
to equal blocks.

The system prompt is the field `system`. A system message behind it stays at its place: as the marked text of the user's
turn that it stands in, which every model takes. One that came in Anthropic's format was sent to a model that takes the
role `system`, and goes out like that again where the API allows it: at the end of a turn of the user.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from leporello.errors import MessageError
from leporello.messages.blocks import (
    anthropic_id,
    block_of,
    call_of,
    can_carry_marker,
    normal_part,
    note_of,
    part_of,
    result_of,
    tool_result_of,
    tool_use_of,
)
from leporello.messages.fixed import SYSTEM_TEXT
from leporello.messages.identity import fingerprint, without_private
from leporello.messages.rules import is_thinking, refusal_of
from leporello.messages.types import (
    ANTHROPIC_NOTE,
    THINKING_TYPES,
    Message,
    Part,
    is_system,
    leading_systems,
    role_of,
)
from leporello.messages.values import parse_arguments

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_NATIVE = "native"  # in the note: this system message stood among the messages of an Anthropic request
_NATIVE_FIELDS = ("clear_at", "output_config")


def to_anthropic(messages: Sequence[Message]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the Anthropic request (`system` only if there is any, `messages`) and the residue for the way back.

    The list should be valid (see `violations`); MessageError names the place of what cannot be converted at all.
    """
    request = anthropic_request(messages)
    return request, _residue(messages, from_anthropic(request))


def anthropic_request(messages: Sequence[Message]) -> dict[str, Any]:
    """Return the Anthropic request alone, without the way back."""
    front = leading_systems(messages)
    system = [block for message in messages[:front] for block in _blocks(_content(message))]
    turns = _Turns()
    for index in range(front, len(messages)):
        message, path = messages[index], f"messages[{index}]"
        role = role_of(message)
        if is_system(message):
            turns.system(message, native=_is_native(messages, index))
        elif role == "tool":
            turns.result(tool_result_of(message, path))
        elif role == "user":
            turns.user(_content(message))
        elif role == "assistant":
            turns.assistant(_assistant_content(message, path))
        else:
            raise MessageError(f"a message of role {role!r} cannot be converted; repair() repairs it", path=path)
    return {"system": system, "messages": turns.messages} if system else {"messages": turns.messages}


class _Turns:
    """The messages of a request: all that stands between two answers is one message of the user, as far as it can be.

    The user speaks once in it, and tool results come first.
    """

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self._open = False  # whether the newest message is the user's and takes more
        self._spoken = False  # whether the user has spoken in it

    def result(self, block: Any) -> None:
        """Add a tool result."""
        self._add([block], begins=self._spoken)

    def user(self, content: Any) -> None:
        """Add what the user said: alone as it is, or behind what stands in the turn already."""
        self._add(content, begins=self._spoken)
        self._spoken = True

    def system(self, message: Mapping[str, Any], *, native: bool) -> None:
        """Add a system message: as text of the turn, or by its role when it ends one."""
        if not native or not self.messages or (not self._open and self.messages[-1]["role"] != "system"):
            self._add([_marked_as_system(block) for block in _blocks(_content(message))])
            return
        fields = {key: message[key] for key in _NATIVE_FIELDS if key in message}
        if self.messages[-1]["role"] == "system":  # two of them side by side are refused
            before = self.messages.pop()
            joined = [*_blocks(before["content"]), *_blocks(_content(message))]
            self.messages.append({**before, **fields, "content": joined})
        else:
            self.messages.append({"role": "system", "content": _content(message), **fields})
        self._open = False

    def assistant(self, content: Any) -> None:
        """Add an answer, which ends the turn."""
        self.messages.append({"role": "assistant", "content": content})
        self._open = False

    def _add(self, content: Any, *, begins: bool = False) -> None:
        if self._open and not begins:
            last = self.messages[-1]
            last["content"] = [*_blocks(last["content"]), *_blocks(content)]
            return
        self.messages.append({"role": "user", "content": content})
        self._open, self._spoken = True, False


def _is_native(messages: Sequence[Message], index: int) -> bool:
    """Tell whether a system message came by its role and nothing but others like it stands between it and an answer."""
    for message in messages[index:]:
        if role_of(message) == "assistant":
            break
        if not is_system(message) or not note_of(message).get(_NATIVE):
            return False
    return True


def _marked_as_system(block: Any) -> Any:
    text = block.get("text") if isinstance(block, dict) and block.get("type") == "text" else None
    return {**block, "text": SYSTEM_TEXT.format(text)} if isinstance(text, str) else block


def _content(message: Mapping[str, Any]) -> Any:
    return _marked(message, _converted(message.get("content")))


def _converted(content: Any) -> Any:
    return [block_of(part) for part in content] if isinstance(content, list) else content


def _blocks(content: Any) -> list[Any]:
    if isinstance(content, list):
        return content
    return [{"type": "text", "text": content}] if content else []


def _marked(message: Mapping[str, Any], content: Any) -> Any:
    """Put a message's cache marker on the last block that can carry it; without one it is dropped."""
    marker = message.get("cache_control")
    if not marker:
        return content
    blocks = _blocks(content)
    for index in reversed(range(len(blocks))):
        if can_carry_marker(blocks[index]):
            blocks[index] = {**blocks[index], "cache_control": marker}
            return blocks
    return content


def _assistant_content(message: Message, path: str) -> Any:
    calls = message.get("tool_calls") or []
    uses = [tool_use_of(call, f"{path}.tool_calls[{n}]") for n, call in enumerate(calls)]
    if uses and message.get("cache_control"):
        uses[-1] = {**uses[-1], "cache_control": message["cache_control"]}
    content = message.get("content")
    if isinstance(content, str) and not uses and content and not message.get("thinking_blocks"):
        return _marked(message, content)
    blocks = _answer_blocks(message, content)
    return _in_order(message, blocks, uses) if uses else _marked(message, blocks)


def _answer_blocks(message: Message, content: Any) -> list[Any]:
    """Return the blocks of all that is not a call: thinking first, a refusal in place of a missing answer."""
    parts = content if isinstance(content, list) else [{"type": "text", "text": content}] if _has_words(content) else []
    signed = message.get("thinking_blocks")
    if isinstance(signed, list) and not any(is_thinking(part) for part in parts):
        parts = [*signed, *parts]
    if all(is_thinking(part) for part in parts) and (refusal := refusal_of(message)):
        parts = [*parts, {"type": "text", "text": refusal}]
    return [block_of(part) for part in parts]


def _has_words(content: Any) -> bool:
    return isinstance(content, str) and bool(content.strip())


def _in_order(message: Message, blocks: list[Any], uses: list[Any]) -> list[Any]:
    """Return blocks and calls in the order in which they were made, if a note knows it; else the calls last."""
    order = note_of(message).get("order")
    if not isinstance(order, str) or (order.count("p"), order.count("c")) != (len(blocks), len(uses)):
        return blocks + uses
    queues = {"p": iter(blocks), "c": iter(uses)}
    ordered = [next(queues[kind]) for kind in order]
    return blocks + uses if is_thinking(ordered[-1]) else ordered


def _residue(messages: Sequence[Message], back: list[Message]) -> dict[str, Any]:
    """Return the originals that the way back does not give, each guarded by what it does give in their place."""
    originals = _sharing(messages)
    if len(originals) != len(back):
        return {"originals": [_entry(0, back, list(messages))]}
    lost = [_entry(at, [new], old) for at, (new, old) in enumerate(zip(back, originals, strict=True)) if [new] != old]
    return {"originals": lost}


def _sharing(messages: Sequence[Message]) -> list[list[Message]]:
    """Return the messages in groups of which the way back makes one: the system prompt, and what a turn joins."""
    front = leading_systems(messages)
    shared: list[list[Message]] = [list(messages[:front])] if front else []
    takes_more = spoken = False
    for message in messages[front:]:
        role = role_of(message)
        joins = is_system(message) or (role == "user" and not spoken)
        if takes_more and joins:
            shared[-1].append(message)
        else:
            shared.append([message])
            takes_more, spoken = is_system(message) or role == "user", False
        spoken = spoken or role == "user"
    return shared


def _entry(at: int, given: list[Message], originals: list[Message]) -> dict[str, Any]:
    return {"at": at, "span": len(given), "guard": fingerprint(given), "messages": originals}


def from_anthropic(request: dict[str, Any], residue: dict[str, Any] | None = None) -> list[Message]:
    """Return the messages of an Anthropic request.

    With a residue the originals come back, except where the request says something else by now.
    """
    messages = request.get("messages")
    if not isinstance(messages, list):
        raise MessageError("an Anthropic request holds a list of messages", path="messages")
    result = _system_messages(request.get("system"))
    for index, message in enumerate(messages):
        if not isinstance(message, dict):
            raise MessageError(f"a message is a dict, not {type(message).__name__}", path=f"messages[{index}]")
        result += [cast("Message", each) for each in _messages_of(message)]
    return _restored(result, residue["originals"]) if residue else result


def _restored(messages: list[Message], entries: list[dict[str, Any]]) -> list[Message]:
    by_place = {entry["at"]: entry for entry in entries}
    restored: list[Message] = []
    at = 0
    while at < len(messages):
        entry = by_place.get(at)
        if entry and fingerprint(messages[at : at + entry["span"]]) == entry["guard"]:
            restored += entry["messages"]
            at += max(1, entry["span"])
        else:
            restored.append(messages[at])
            at += 1
    return restored


def _system_messages(system: Any) -> list[Message]:
    if not system:
        return []
    parts = [part_of(block) for block in system] if isinstance(system, list) else system
    return [{"role": "system", "content": _alone(parts)}]


def _alone(content: Any) -> Any:
    """Return the text of a single text part, anything else as it is."""
    if (
        isinstance(content, list)
        and len(content) == 1
        and isinstance(content[0], dict)
        and content[0] == {"type": "text", "text": content[0].get("text")}
    ):
        return content[0]["text"]
    return content


def _messages_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    if is_system(message):
        message = {**message, ANTHROPIC_NOTE: {_NATIVE: True}}
    content = message.get("content")
    if not isinstance(content, list):
        return [dict(message)]
    if role_of(message) == "assistant":
        return [_assistant_message(message, content)]
    fields = {key: value for key, value in message.items() if key not in ("role", "content")}
    results = [{**result_of(block), **fields} for block in content if _is(block, "tool_result")]
    parts = [part_of(block) for block in content if not _is(block, "tool_result")]
    if results and not parts:
        return results
    return [*results, {**message, "content": _alone(parts) if results else parts}]


def _assistant_message(message: dict[str, Any], content: list[Any]) -> dict[str, Any]:
    calls = [call_of(block) for block in content if _is(block, "tool_use")]
    parts = [part_of(block) for block in content if not _is(block, "tool_use")]
    if not calls:
        return {**message, "content": parts}
    answer = {**message, "content": _alone(parts) if parts else None, "tool_calls": calls}
    order = "".join("c" if _is(block, "tool_use") else "p" for block in content)
    if "cp" in order:
        answer[ANTHROPIC_NOTE] = {"order": order}
    return answer


def _is(block: Any, kind: str) -> bool:
    return isinstance(block, dict) and block.get("type") == kind


def canonical(messages: Sequence[Message]) -> list[Message]:
    """Return what a conversation says, in the one form that survives the way to Anthropic's format and back.

    One system prompt, later system messages as text of the user's turn; role, content, calls and ids only; text alone
    rather than a single part; arguments without needless space and with sorted keys; no cache markers, no private keys.
    """
    front = leading_systems(messages)
    system = [part for message in messages[:front] for part in _canonical_parts(message.get("content"))]
    rest = [_canonical_turn(group) for group in _sharing(messages)[bool(front) :]]
    return [{"role": "system", "content": _alone(system)}, *rest] if system else rest


def _canonical_turn(messages: list[Message]) -> Message:
    if len(messages) == 1 and not is_system(messages[0]):
        return _canonical(messages[0])
    parts: list[Part] = []
    for message in messages:
        said = _canonical_parts(message.get("content"))
        parts += [_marked_as_system(part) for part in said] if is_system(message) else said
    return {"role": "user", "content": _alone(parts)}


def _canonical(message: Message) -> Message:
    parts = _canonical_parts(message.get("content"))
    role = role_of(message)
    if role == "tool":
        content = _alone(parts) if parts else ""
        return {"role": "tool", "tool_call_id": anthropic_id(message["tool_call_id"]), "content": content}
    if role != "assistant":
        return {"role": role, "content": _alone(parts)}
    signed = message.get("thinking_blocks") or []
    if not any(part["type"] in THINKING_TYPES for part in parts):
        parts = _canonical_parts(signed) + parts
    if all(part["type"] in THINKING_TYPES for part in parts) and refusal_of(message):
        parts.append({"type": "text", "text": refusal_of(message)})
    answer: Message = {"role": "assistant", "content": _alone(parts) if parts else None}
    if message.get("tool_calls"):
        answer["tool_calls"] = [_canonical_call(call) for call in message["tool_calls"]]
    return answer


def _canonical_parts(content: Any) -> list[Part]:
    if isinstance(content, list):
        return [without_private(normal_part(part)) for part in content]
    return [{"type": "text", "text": content}] if _has_words(content) else []


def _canonical_call(call: dict[str, Any]) -> dict[str, Any]:
    arguments = parse_arguments(call["function"]["arguments"])
    text = json.dumps(arguments, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    function = {"name": call["function"]["name"], "arguments": text}
    return {"id": anthropic_id(call["id"]), "type": "function", "function": function}
