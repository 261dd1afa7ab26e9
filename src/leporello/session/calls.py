"""Ids of tool calls: each is made unique in the window, and results are matched with their calls, also late ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leporello.messages import call_ids_of, is_system, role_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.messages import Message
    from leporello.session.conversation import Conversation
    from leporello.session.window import Entry


def with_unique_ids(conversation: Conversation, message: Message) -> Message:
    """Rename calls of an answer whose ids the window has already: some models use `call_1` every time."""
    calls = message.get("tool_calls")
    if not isinstance(calls, list):
        return message
    fresh: set[str] = set()
    numbers: dict[str, int] = {}
    own = [_unique(call, conversation.validity.ids, fresh, conversation.renamed, numbers) for call in calls]
    return message if all(new is old for new, old in zip(own, calls, strict=True)) else {**message, "tool_calls": own}


def _unique(call: Any, taken: set[str], fresh: set[str], renamed: dict[str, str], numbers: dict[str, int]) -> Any:
    if not isinstance(call, dict):
        return call
    came_as = call.get("id")
    given = came_as if isinstance(came_as, str) else ""
    own, number = given or "call_1", numbers.get(given, 1)
    while own in taken or own in fresh:
        number += 1
        own = f"{given or 'call'}_{number}"
    numbers[given] = number
    fresh.add(own)
    renamed.pop(given, None)
    if own == came_as:
        return call
    renamed[given] = own
    return {**call, "id": own}


def renamed_calls(messages: Sequence[Message]) -> dict[str, str]:
    """Return the open calls of a loaded window that `with_unique_ids` renamed, by the ids that they came with."""
    taken = {id_ for message in messages for id_ in call_ids_of(message)}
    named = [(own.rpartition("_"), own) for own in open_call_ids(messages)]
    return {given: own for (given, _, number), own in named if number.isdigit() and given in taken}


def with_renamed_ids(conversation: Conversation, messages: Sequence[Message]) -> list[Message]:
    """Rename the call ids of tool results as those of their calls were renamed."""
    waiting = open_call_ids(conversation.window.messages) if conversation.renamed else set()
    return [_with_renamed_id(message, conversation.renamed, waiting) for message in messages]


def _with_renamed_id(message: Message, renamed: dict[str, str], waiting: set[str]) -> Message:
    call_id = _answered_call(message)
    own = renamed.get(call_id)
    return {**message, "tool_call_id": own} if own in waiting and call_id not in waiting else message


def add_entries(conversation: Conversation, new: Sequence[Entry]) -> None:
    """Append entries to the window; a late result replaces the stub that was sent for it."""
    waiting = open_call_ids(conversation.window.messages)
    stubs: dict[str, int] | None = None
    late: dict[int, Entry] = {}
    added: list[Entry] = []
    for entry in new:
        call_id = _answered_call(entry.message)
        if call_id and call_id not in waiting:
            stubs = _stubs(conversation.window.entries, added) if stubs is None else stubs
            if call_id in stubs:
                late[stubs.pop(call_id)] = entry
                continue
        added.append(entry)
        if entry.role != "tool" and not is_system(entry.message):
            waiting = set(call_ids_of(entry.message))
        elif call_id:
            waiting.discard(call_id)
            (stubs or {}).pop(call_id, None)
    if late:
        first = min(late)
        entries = [late.get(place, entry) for place, entry in enumerate(conversation.window.entries[first:], first)]
        conversation.change(first, entries, "a late tool result")
    conversation.window.extend(added)


def open_call_ids(messages: Sequence[Message]) -> set[str]:
    """Return the ids of the newest answer's calls that have no result yet."""
    answered: set[str] = set()
    for message in reversed(messages):
        if is_system(message):
            continue
        if role_of(message) != "tool":
            return {id_ for id_ in call_ids_of(message) if id_ not in answered}
        answered.add(_answered_call(message))
    return set()


def key_of_calls(message: Message) -> tuple[str, ...]:
    """Return what a message is apart from its text: the result of a call, or an answer with these; () for any other."""
    if role_of(message) == "tool":
        return ("tool", str(message.get("tool_call_id")))
    ids = call_ids_of(message)
    return ("calls", *ids) if ids else ()


def _answered_call(message: Message) -> str:
    """Return the id of the call that a message is the result of, "" if it is none."""
    call_id = message.get("tool_call_id") if role_of(message) == "tool" else None
    return call_id if isinstance(call_id, str) else ""


def _stubs(entries: Sequence[Entry], added: Sequence[Entry]) -> dict[str, int]:
    """Return the indexes of the stubs of missing results by call id, without those whose result is in `added`."""
    newest = {_answered_call(entry.message): place for place, entry in enumerate(entries) if entry.role == "tool"}
    came = {_answered_call(entry.message) for entry in added}
    return {id_: place for id_, place in newest.items() if id_ not in came and not entries[place].sources}
