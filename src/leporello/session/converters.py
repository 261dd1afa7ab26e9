"""Converts requests to the provider's dialect; only the part of the window that has changed is converted again."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Final, Protocol

from leporello.caching import without_markers
from leporello.errors import SessionError
from leporello.messages import anthropic_request, from_anthropic, role_of, tools_to_anthropic
from leporello.messages.responses import items_of, kind_of, messages_of, settled, to_responses, tools_to_responses
from leporello.session.answers import as_dict

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from leporello.messages import Dialect, Message
    from leporello.session.conversation import Conversation, Tools
    from leporello.session.window import Window


class Converter(Protocol):
    """Converts between a dialect and OpenAI's chat format, in which a conversation is stored."""

    marks: bool
    """Whether its messages carry marks for the provider's cache."""

    def request(self, conversation: Conversation) -> dict[str, Any]:
        """Return the request for the provider's package, without model and limits."""

    def read(self, messages: Sequence[Any]) -> Sequence[Message]:
        """Return what a caller adds, in OpenAI's format."""


def converter_of(dialect: Dialect) -> Converter | None:
    """Return the converter of a dialect; None for OpenAI's chat format."""
    if dialect not in DIALECTS:
        raise SessionError(f"there is no dialect {dialect!r}: use {_NAMES}.")
    made = DIALECTS[dialect]
    return None if made is None else made()


class _Piecewise:
    """Converts the window in pieces, each from one assistant message to the next; unchanged pieces are kept.

    The messages are converted with their private keys, which hold what OpenAI's format has no field for.
    """

    def __init__(self) -> None:
        self._window: Window | None = None
        self._bare: list[Message] = []  # the messages of the window as they are converted
        self._starts: list[int] = []  # where each piece begins in the window
        self._places: list[int] = []  # where it begins in the request
        self._converted: list[dict[str, Any]] = []

    def _bring_up_to_date(self, window: Window, systems: int) -> None:
        """Convert the pieces that are new or have changed; the newest one may have grown."""
        changed = window.rewritten
        if window is not self._window or (self._starts and self._starts[0] != systems):
            changed = 0
        pieces = max(0, bisect_right(self._starts, changed) - 1)
        start = self._starts[pieces] if pieces else systems
        place = self._places[pieces] if pieces else 0
        del self._starts[pieces:], self._places[pieces:], self._converted[place:]
        known = start if pieces else 0
        self._bare[known:] = self._stripped(window.messages[known:])
        for begin, stop in _pieces(self._bare, start):
            self._starts.append(begin)
            self._places.append(len(self._converted))
            self._converted += self._convert(self._bare[begin:stop])
        self._window, window.rewritten = window, len(self._bare)

    def _stripped(self, messages: list[Message]) -> list[Message]:
        """Return messages as they are converted."""
        return messages

    def _convert(self, messages: list[Message]) -> list[dict[str, Any]]:
        """Convert a piece."""
        raise NotImplementedError


class AnthropicRequests(_Piecewise):
    """Requests for Anthropic's messages, in which an assistant message always begins a message."""

    marks = True

    def __init__(self) -> None:
        super().__init__()
        self._tools: tuple[Tools | None, list[dict[str, Any]]] = (None, [])  # the last ones, and as they were converted

    def request(self, conversation: Conversation) -> dict[str, Any]:
        """Return `messages` and, if there are any, `system` and `tools`."""
        systems = conversation.window.systems()
        tools = self._converted_tools(conversation.tools)
        self._bring_up_to_date(conversation.window, systems)
        marked = conversation.caching.marked(self._bare, tools=tools)
        request: dict[str, Any] = {"messages": self._messages(marked, systems)}
        if systems:
            opening = [marked.get(at, self._bare[at]) for at in range(systems)]
            request = {"system": anthropic_request(opening)["system"], **request}
        return {**request, "tools": list(tools)} if tools else request

    def read(self, messages: Sequence[Any]) -> Sequence[Message]:
        """Return messages in Anthropic's format as OpenAI's, where the two differ."""
        return [
            read
            for message in messages
            for read in (from_anthropic({"messages": [message]}) if _BLOCKS & _part_types(message) else [message])
        ]

    def _stripped(self, messages: list[Message]) -> list[Message]:
        stripped: list[Message] = without_markers(messages)
        return stripped

    def _convert(self, messages: list[Message]) -> list[dict[str, Any]]:
        converted: list[dict[str, Any]] = anthropic_request(messages)["messages"]
        return converted

    def _messages(self, marked: Mapping[int, Message], systems: int) -> list[dict[str, Any]]:
        """Return the converted messages, with the pieces that hold marked messages converted as they are marked."""
        messages = list(self._converted)
        for piece in {bisect_right(self._starts, at) - 1 for at in marked if at >= systems}:
            start = self._starts[piece]
            stop = self._starts[piece + 1] if piece + 1 < len(self._starts) else len(self._bare)
            converted = self._convert([marked.get(at, self._bare[at]) for at in range(start, stop)])
            messages[self._places[piece] : self._places[piece] + len(converted)] = converted
        return messages

    def _converted_tools(self, tools: Tools) -> list[dict[str, Any]]:
        if self._tools[0] is not tools:
            self._tools = (tools, tools_to_anthropic(tools.merged))
        return self._tools[1]


class ResponsesRequests(_Piecewise):
    """Requests for OpenAI's Responses API; its provider caches by itself, so nothing is marked."""

    marks = False

    def request(self, conversation: Conversation) -> dict[str, Any]:
        """Return `input` and, if there are any, `instructions` and `tools`."""
        window = conversation.window
        systems = window.systems()
        self._bring_up_to_date(window, systems)
        opening = to_responses(window.messages[:systems])
        request = {**opening, "input": settled([*opening["input"], *self._converted])}
        tools = tools_to_responses(conversation.tools.merged)
        return {**request, "tools": tools} if tools else request

    def read(self, messages: Sequence[Any]) -> Sequence[Message]:
        """Return items, as objects of the package or as dicts, in OpenAI's format; messages in it stay as they are."""
        found: list[Message] = []
        items: list[Any] = []
        for message in messages:
            item: Any = as_dict(message) if hasattr(message, "model_dump") else message
            if _is_item(item):
                items.append(item)
                continue
            found += messages_of(items)
            found.append(item)
            items = []
        return [*found, *messages_of(items)]

    def _convert(self, messages: list[Message]) -> list[dict[str, Any]]:
        return items_of(messages)


DIALECTS: Final[dict[str, type[AnthropicRequests | ResponsesRequests] | None]] = {
    "openai": None,
    "anthropic": AnthropicRequests,
    "responses": ResponsesRequests,
}
_BLOCKS: Final = frozenset({"tool_use", "tool_result"})
"""The parts by which a message in Anthropic's format differs."""

_NAMES: Final = "'openai', 'anthropic' or 'responses'"


def _pieces(messages: list[Message], start: int) -> Iterator[tuple[int, int]]:
    """Yield where pieces begin and end: at assistant messages."""
    for at in range(start + 1, len(messages) + 1):
        if at == len(messages) or role_of(messages[at]) == "assistant":
            yield start, at
            start = at


def _is_item(message: Any) -> bool:
    """Tell whether this is an item of the Responses API, where it is not written as a chat message is."""
    if not isinstance(message, dict) or role_of(message) == "tool":
        return False
    if kind_of(message) != "message" or "type" in message:
        return bool(kind_of(message))
    return any(kind.startswith(("input_", "output_")) for kind in _part_types(message) if isinstance(kind, str))


def _part_types(message: Any) -> set[Any]:
    content = message.get("content") if isinstance(message, dict) else None
    return {part.get("type") for part in content if isinstance(part, dict)} if isinstance(content, list) else set()
