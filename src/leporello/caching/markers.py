"""Cache markers on messages: making them, placing them, taking them away.

A marker is `cache_control` on a message, on a part of its content or on one of its calls. Only messages that gain or
lose a marker are copied, and of those only what is on the way to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from leporello.errors import ConfigError
from leporello.messages.blocks import can_carry_marker

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

CACHE_CONTROL = "cache_control"
BREAKPOINT = "prompt_cache_breakpoint"  # OpenAI's name for an explicit mark
MOST_MARKERS = 4  # Anthropic refuses a request with more

_HOLDERS = ("content", "tool_calls")  # where a message or a part holds others
_DEEPEST = 3  # a message, its parts, what is in a result among them; deeper no provider looks

ToolPlace: TypeAlias = Literal["message", "part", "none"]
"""Where a tool result carries its marker: on the message (a converter moves it), on its text, or not at all."""


def marker(ttl: str) -> dict[str, str]:
    """Return the marker for a lifetime of "5m" (which needs no word) or "1h"."""
    if ttl not in ("5m", "1h"):
        raise ConfigError(f"{ttl!r} is no lifetime of a cached prefix.", key="cache_ttl", hint="Use 5m or 1h.")
    return {"type": "ephemeral"} if ttl == "5m" else {"type": "ephemeral", "ttl": ttl}


def put(
    messages: Iterable[Any], places: Sequence[int], mark: dict[str, str], *, tools: ToolPlace, key: str = CACHE_CONTROL
) -> list[Any]:
    """Return the list with a marker at each place; the messages themselves are not changed."""
    marked = list(messages)
    for at in places:
        marked[at] = placed(marked[at], mark, tools=tools, key=key)
    return marked


def placed(message: Any, mark: dict[str, str], *, tools: ToolPlace, key: str = CACHE_CONTROL) -> Any:
    """Return the message with a marker where the table of the documentation puts it; itself when nothing can carry."""
    if not isinstance(message, dict):
        return message
    is_tool = message.get("role") == "tool"
    if is_tool and tools != "part":
        return {**message, key: dict(mark)} if tools == "message" else message
    content = message.get("content")
    if isinstance(content, str) and content.strip():
        return {**message, "content": [{"type": "text", "text": content, key: dict(mark)}]}
    if isinstance(content, list) and content:
        at = _last_carrier(content)
        if at is not None:
            part = {**content[at], key: dict(mark)}
            return {**message, "content": [*content[:at], part, *content[at + 1 :]]}
        return {**message, key: dict(mark)} if tools == "message" and message.get("tool_calls") else message
    return message if is_tool else {**message, key: dict(mark)}


def _last_carrier(content: list[Any]) -> int | None:
    return next((at for at in reversed(range(len(content))) if can_carry_marker(content[at])), None)


def has_words(message: Any) -> bool:
    """Tell whether the content of a message has something that can carry a marker on any wire."""
    content = message.get("content") if isinstance(message, dict) else None
    if isinstance(content, str):
        return bool(content.strip())
    return isinstance(content, list) and _last_carrier(content) is not None


def without_markers(messages: Iterable[Any]) -> list[Any]:
    """Return the messages without any cache marker; those that have none are the same objects."""
    listed = list(messages)
    if not _may_be_marked(listed):
        return listed
    return [_stripped(m) if isinstance(m, dict) and _any_marked([m]) else m for m in listed]


def _may_be_marked(messages: list[Any]) -> bool:
    """Tell whether a marker may be there; one plain loop, because most lists have none, and may be long."""
    try:
        for message in messages:
            if CACHE_CONTROL in message:
                return True
            content = message.get("content")
            if type(content) is list:
                for part in content:
                    if CACHE_CONTROL in part or "content" in part:
                        return True
            if "tool_calls" in message:
                for call in message["tool_calls"] or ():
                    if CACHE_CONTROL in call:
                        return True
    except (TypeError, AttributeError):  # something in there is no message
        return True
    return False


def _any_marked(values: list[Any], deep: int = _DEEPEST) -> bool:
    """Tell whether one of these messages, parts or calls carries a marker, or something in it."""
    for value in values:
        if isinstance(value, dict):
            if CACHE_CONTROL in value:
                return True
            if deep and any(_any_marked(inner, deep - 1) for inner in _held(value)):
                return True
    return False


def _held(value: dict[str, Any]) -> Iterator[list[Any]]:
    """Yield the lists that may hold further carriers; payloads are none of them."""
    for key in _HOLDERS:
        if type(inner := value.get(key)) is list:
            yield inner


def _stripped(value: dict[str, Any], deep: int = _DEEPEST) -> dict[str, Any]:
    """Return a message, part or call without markers, its parts and calls too."""
    kept = {key: item for key, item in value.items() if key != CACHE_CONTROL}
    for key in _HOLDERS if deep else ():
        if type(inner := kept.get(key)) is list and _any_marked(inner, deep - 1):
            kept[key] = [_stripped(item, deep - 1) if isinstance(item, dict) else item for item in inner]
    return kept


def tools_within_limit(tools: list[Any]) -> list[Any]:
    """Return the tools with their own marks if they have no more than a request may have, else with the last alone."""
    if count_markers(tools) <= MOST_MARKERS:
        return tools
    kept = next(tool for tool in reversed(tools) if isinstance(tool, dict) and CACHE_CONTROL in tool)
    return [_stripped(tool, 0) if isinstance(tool, dict) and tool is not kept else tool for tool in tools]


def count_markers(values: Iterable[Any]) -> int:
    """Count the markers on messages, parts and calls, or on tools."""
    return sum(1 for _ in _markers(values))


def lifetime(values: Iterable[Any]) -> str:
    """Return how long the prefixes shall live that messages, parts, calls or tools are marked for; "" without marks."""
    found = {mark.get("ttl") for mark in _markers(values) if isinstance(mark, dict)}
    return "1h" if "1h" in found else "5m" if found else ""


def _markers(values: Iterable[Any], deep: int = _DEEPEST) -> Iterator[Any]:
    for value in values:
        if isinstance(value, dict):
            if CACHE_CONTROL in value:
                yield value[CACHE_CONTROL]
            if deep:
                for inner in _held(value):
                    yield from _markers(inner, deep - 1)
