"""Messages as providers take them: a list of them, one per line, or objects that hold such a list.

Whether they are in OpenAI's or in Anthropic's format is seen in the messages. Trajectories of SWE-agent hold theirs
under `history`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from leporello.messages import Message, role_of, text_of
from leporello.transcripts.blocks import Joined, has_blocks
from leporello.transcripts.model import Skipped, Transcript, timed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from leporello.transcripts.model import OnSkip
    from leporello.transcripts.records import Record

_LISTS = ("messages", "history", "traj", "conversation")
_NAMES = ("id", "instance_id", "conversation_id", "session_id", "task_id", "name")
_TIMES = ("timestamp", "ts", "created_at", "time")
_FOREIGN = frozenset({"ts", "created_at", "time", "id", "agent", "message_type", "is_demo", "thought", "action"})


def knows(value: Any) -> bool:
    """Tell whether a value is a message, a list of messages, or an object with such a list."""
    return _is_message(value) or bool(_messages(value))


def read(values: Iterable[Record], path: Path, on_skip: OnSkip) -> Iterator[Transcript]:
    """Yield the conversations: messages that follow each other are one, lists and objects are one each."""
    loose: list[Any] = []
    for number, value in values:
        if _is_message(value):
            loose.append(value)
        elif messages := _messages(value):
            fields = value if isinstance(value, dict) else {}
            yield _transcript(messages, fields, path, number)
        else:
            on_skip(Skipped(file=str(path), line=number, reason="neither a message nor a conversation"))
    if loose:
        yield _transcript(loose, {}, path, 0)


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("role"), str)


def _messages(value: Any) -> list[Any]:
    """Return the messages that a value holds; [] when it is no conversation."""
    if isinstance(value, dict):
        found = next((value[key] for key in _LISTS if isinstance(value.get(key), list) and value[key]), None)
        value = found if found is not None else []
    if not isinstance(value, list):
        return []
    return [one for one in value if _is_message(one)]


def _transcript(messages: list[Any], fields: dict[str, Any], path: Path, number: int) -> Transcript:
    joined = Joined()
    if system := fields.get("system"):
        joined.add({"role": "system", "content": text_of({"content": system})})
    for message in _current(messages):
        joined.add(_usual(message), str(message.get("id") or ""))
    named = next((str(fields[key]) for key in _NAMES if fields.get(key) not in (None, "")), "")
    tools = fields.get("tools")
    return Transcript(
        name=named or (f"{path.stem}-{number}" if number else path.stem),
        format=_format(messages, fields),
        messages=joined.finished(),
        tools=tuple(tool for tool in tools if isinstance(tool, dict)) if isinstance(tools, list) else (),
        model=str(fields.get("model") or ""),
    )


def _format(messages: list[Any], fields: dict[str, Any]) -> str:
    if "trajectory" in fields or any("message_type" in one or "thought" in one for one in messages):
        return "swe-agent"
    return "anthropic" if "system" in fields or has_blocks(messages) else "openai"


def _current(messages: list[Any]) -> Iterator[dict[str, Any]]:
    """Yield messages as of today: calls and results of functions were written otherwise before there were tools."""
    newest = ""
    for at, message in enumerate(messages):
        call = message.get("function_call")
        if message["role"] == "assistant" and isinstance(call, dict):
            newest = f"function_{at}"
            said = {key: value for key, value in message.items() if key != "function_call"}
            yield {**said, "tool_calls": [{"id": newest, "type": "function", "function": call}]}
        elif message["role"] == "function":
            said = {key: value for key, value in message.items() if key != "name"}
            yield {**said, "role": "tool", "tool_call_id": newest or f"function_{at}"}
        else:
            yield message


def _usual(message: dict[str, Any]) -> Message:
    """Return a message with its time under the usual name, and without what a program noted for itself."""
    time = next((message[key] for key in _TIMES if message.get(key)), None)
    said = {key: value for key, value in message.items() if key not in _FOREIGN}
    if role_of(said) == "tool" and "tool_call_ids" in said:
        ids = said.pop("tool_call_ids")
        if "tool_call_id" not in said and isinstance(ids, list) and ids:
            said["tool_call_id"] = ids[0]
    said.pop("tool_call_ids", None)
    if said.get("tool_calls") is None:
        said.pop("tool_calls", None)
    return timed(cast("Message", said), time)
