"""A message of a host's list, with the fields that matching needs."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from leporello.errors import MessageError
from leporello.messages.identity import fingerprint
from leporello.messages.types import role_of, text_of

if TYPE_CHECKING:
    from leporello.messages.types import Message

KNOWN_PREFIXES: Final = ("[CONTEXT COMPACTION", "[CONTEXT SUMMARY]")
SUMMARY_NOTE: Final = "_compressed_summary"  # Hermes Agent's private key on a summary


class ListedMessage(NamedTuple):
    """The fields of a message for matching: `system` for the system prompt, `marked` for the prefix of a summary.

    `call_key` identifies its calls, or the call that it answers; `size` is the length of its text or arguments.
    """

    fingerprint: str
    call_key: str | None
    size: int
    role: str
    system: bool
    marked: bool


def read_message(message: Message, path: str = "message", *, system: bool = False) -> ListedMessage:
    """Return the fields of a message; raises MessageError, with the path, for what is none.

    `system` is set for the system prompt; any other system message is matched like other messages.
    """
    if not isinstance(message, dict):
        raise MessageError(f"a message is a dict, not {type(message).__name__}.", path=path)
    role = role_of(message)
    text = text_of(message)
    calls = raw_calls(message) if role == "assistant" and "tool_calls" in message else []
    return ListedMessage(
        fingerprint=fingerprint(message),
        call_key=_call_key(message, role, text, calls) if calls or role == "tool" else None,
        size=sum(len(arguments) for _, _, arguments in calls) if calls else len(text),
        role=role,
        system=system,
        marked=text.startswith(KNOWN_PREFIXES) or bool(message.get(SUMMARY_NOTE)),
    )


def raw_calls(message: Any) -> list[tuple[str, str, str]]:
    """Return id, name and arguments of an assistant's calls; "" for a value that is no text."""
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    found = []
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        values = [call.get("id"), function.get("name"), function.get("arguments")] if isinstance(function, dict) else []
        if values:
            id_, name, arguments = (value if isinstance(value, str) else "" for value in values)
            found.append((id_, name, arguments))
    return found


def _call_key(message: Message, role: str, text: str, calls: list[tuple[str, str, str]]) -> str | None:
    """Return the key of a tool result, from the call it answers, or of calls, from their ids and the text."""
    if role == "tool":
        call_id = message.get("tool_call_id")
        return _digest("result", call_id) if isinstance(call_id, str) and call_id else None
    ids = [id_ for id_, _, _ in calls]
    return _digest("calls", *ids, text) if all(ids) else None


def _digest(*values: str) -> str:
    return blake2b("\0".join(values).encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
