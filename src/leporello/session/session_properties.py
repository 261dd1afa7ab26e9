"""What can be read of a session at any time; `Session` and `AsyncSession` share it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leporello.messages import copied, text_of
from leporello.store import ROOT

if TYPE_CHECKING:
    from leporello.engine import ContextEngine
    from leporello.messages import Message, ToolCall
    from leporello.plugins import EngineSource
    from leporello.session.factory import OpenedSession
    from leporello.store import Store


class SessionProperties:
    """The properties of a session."""

    def __init__(self, opened: OpenedSession) -> None:
        self._opened = opened

    @property
    def id(self) -> str:
        """The name of the conversation."""
        return self._opened.conversation.id

    @property
    def owner(self) -> str:
        """Whose conversation it is."""
        return self._opened.conversation.branch.owner

    @property
    def engine(self) -> ContextEngine:
        """The engine of this conversation."""
        return self._opened.conversation.engine.engine

    @property
    def engine_source(self) -> EngineSource | None:
        """Where the engine is from, to give to `open` for more conversations like this one; None for one of yours."""
        return self._opened.source

    @property
    def store(self) -> Store:
        """The store that keeps this conversation."""
        return self._opened.conversation.branch.store

    @property
    def unstored(self) -> int:
        """How many messages the store could not take; they wait here, and are stored as soon as it can."""
        return len(self._opened.conversation.persistence.unstored)

    @property
    def model(self) -> str:
        """The model that the conversation is sent to, "" when none is named."""
        return self._opened.conversation.route.model

    @property
    def context_length(self) -> int:
        """The model's window in tokens."""
        return self._opened.conversation.route.context_length

    @property
    def caching(self) -> str:
        """The line that says what is done for the provider's prompt cache; "" when there is nothing to say."""
        return self._opened.conversation.caching.line()

    @property
    def done(self) -> bool:
        """Whether the newest answer needs nothing more: no result of a call, no further request."""
        return self._opened.conversation.done

    @property
    def calls(self) -> list[ToolCall]:
        """The calls of the newest answer that wait for a result of yours; what `record` returned."""
        conversation = self._opened.conversation
        return [call for call in conversation.open_calls() if call.name not in conversation.tools.owned]

    @property
    def answer(self) -> str:
        """The text of the newest answer in the window, "" when there is none and for one that only calls tools."""
        entries = reversed(self._opened.conversation.window.entries)
        newest = next((entry for entry in entries if entry.sources and entry.role == "assistant"), None)
        return text_of(newest.message) if newest else ""

    @property
    def window(self) -> list[Message]:
        """A copy of the messages that the model sees, in OpenAI's format."""
        return [copied(message) for message in self._opened.conversation.window.messages]

    @property
    def branch(self) -> int:
        """The branch that this session is on."""
        return self._opened.conversation.branch.number or ROOT
