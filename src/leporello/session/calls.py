"""Tool calls and their results: every call has an id of its own, and a result finds its call, even a late one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leporello.messages import call_ids_of, role_of

if TYPE_CHECKING:
    from leporello.messages import Message
    from leporello.session.conversation import Conversation


def with_own_ids(talk: Conversation, message: Message) -> Message:
    """Give each call of an answer an id that no call in the window has: some models number them anew every time."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return message
    fresh: set[str] = set()
    own = [_own(call, talk.sound.ids, fresh, talk.renamed) for call in calls]
    return message if all(new is old for new, old in zip(own, calls, strict=True)) else {**message, "tool_calls": own}


def _own(call: Any, taken: set[str], fresh: set[str], renamed: dict[str, str]) -> Any:
    if not isinstance(call, dict):
        return call
    came_as = call.get("id")
    given = came_as if isinstance(came_as, str) else ""
    own, number = given or "call_1", 1
    while own in taken or own in fresh:
        number += 1
        own = f"{given or 'call'}_{number}"
    fresh.add(own)
    renamed.pop(given, None)
    if own == came_as:
        return call
    renamed[given] = own
    return {**call, "id": own}


def known_call(talk: Conversation, message: Message) -> Message:
    """Let a result that names its call as the provider did answer the call as it is called here."""
    call_id = message.get("tool_call_id")
    own = talk.renamed.get(call_id) if role_of(message) == "tool" and isinstance(call_id, str) else None
    waiting = _open_ids(talk) if own else []
    return {**message, "tool_call_id": own} if own in waiting and call_id not in waiting else message


def stub_of(talk: Conversation, message: Message) -> int | None:
    """Return the place of the line that stands for a result which had not come when the window was sent."""
    if role_of(message) != "tool" or message.get("tool_call_id") in _open_ids(talk):
        return None
    lines = talk.window.lines
    for place in range(len(lines) - 1, -1, -1):
        line = lines[place]
        if line.role == "tool" and line.message.get("tool_call_id") == message.get("tool_call_id"):
            return None if line.said else place
    return None


def open_calls_of(messages: list[Message]) -> list[str]:
    """Return the ids of the newest answer's calls that have no result yet."""
    answered: set[str] = set()
    for message in reversed(messages):
        if role_of(message) != "tool":
            return [id_ for id_ in call_ids_of(message) if id_ not in answered]
        answered.add(str(message.get("tool_call_id")))
    return []


def _open_ids(talk: Conversation) -> list[str]:
    return open_calls_of(talk.window.messages)
