"""The request in the provider's dialect; converting it costs what is new, not what is old."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Final, Protocol

from leporello.caching import without_markers
from leporello.errors import SessionError
from leporello.messages import anthropic_request, role_of, tools_to_anthropic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from leporello.messages import Message
    from leporello.session.conversation import Conversation, Tools
    from leporello.session.window import Window

DIALECTS: Final = ("openai", "anthropic")


class Requests(Protocol):
    """Makes requests of one dialect."""

    def request(self, conversation: Conversation) -> dict[str, Any]:
        """Return what the provider's package takes beside the model and the limits."""


def requests_in(dialect: str) -> Requests:
    """Return who makes requests in a dialect."""
    if dialect not in DIALECTS:
        raise SessionError(f"there is no dialect {dialect!r}: use 'openai' or 'anthropic'.")
    return AnthropicRequests() if dialect == "anthropic" else OpenAIRequests()


class OpenAIRequests:
    """Requests for chat completions."""

    def request(self, conversation: Conversation) -> dict[str, Any]:
        """Return `messages` and, if there are any, `tools`."""
        return conversation.openai_request()


class AnthropicRequests:
    """Requests for Anthropic's messages.

    An assistant message always begins a message of the request. So the list is converted in pieces, each from one
    assistant message to the next, and a piece that has not changed is not converted again. What is converted are the
    messages with their private notes: those hold what OpenAI's format has no name for (failed results, citations).
    """

    def __init__(self) -> None:
        self._window: Window | None = None
        self._bare: list[Message] = []  # the messages of the window without markers
        self._starts: list[int] = []  # where each piece begins in the window
        self._places: list[int] = []  # where it begins in the request
        self._converted: list[Message] = []
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

    def _bring_up_to_date(self, window: Window, systems: int) -> None:
        """Convert what is new or has changed since the last time; the newest piece may have grown."""
        changed = window.rewritten
        if window is not self._window or (self._starts and self._starts[0] != systems):
            changed = 0
        pieces = max(0, bisect_right(self._starts, changed) - 1)
        start = self._starts[pieces] if pieces else systems
        place = self._places[pieces] if pieces else 0
        del self._starts[pieces:], self._places[pieces:], self._converted[place:]
        known = start if pieces else 0
        self._bare[known:] = without_markers(window.messages[known:])
        for begin, stop in _pieces(self._bare, start):
            self._starts.append(begin)
            self._places.append(len(self._converted))
            self._converted += anthropic_request(self._bare[begin:stop])["messages"]
        self._window, window.rewritten = window, len(self._bare)

    def _messages(self, marked: Mapping[int, Message], systems: int) -> list[Message]:
        """Return the converted messages, with the pieces that hold marked messages converted as they are marked."""
        messages = list(self._converted)
        for piece in {bisect_right(self._starts, at) - 1 for at in marked if at >= systems}:
            start = self._starts[piece]
            stop = self._starts[piece + 1] if piece + 1 < len(self._starts) else len(self._bare)
            converted = anthropic_request([marked.get(at, self._bare[at]) for at in range(start, stop)])["messages"]
            messages[self._places[piece] : self._places[piece] + len(converted)] = converted
        return messages

    def _converted_tools(self, tools: Tools) -> list[dict[str, Any]]:
        if self._tools[0] is not tools:
            self._tools = (tools, tools_to_anthropic(tools.merged))
        return self._tools[1]


def _pieces(messages: list[Message], start: int) -> Iterator[tuple[int, int]]:
    """Yield where pieces begin and end: at assistant messages."""
    for at in range(start + 1, len(messages) + 1):
        if at == len(messages) or role_of(messages[at]) == "assistant":
            yield start, at
            start = at
