"""The abstract base class of every context engine.

An engine decides when a conversation must shrink and does it. The host calls it in this order:

    construct → on_session_start → (should_compress_preflight, should_compress → compress when either is true
    → model call → update_from_response → on_turn_complete)* → on_session_end

`/new` and `/reset` do on_session_end(old) → on_session_reset → on_session_start(new) on the same instance.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from leporello.events import Event, Sink, log_event

if TYPE_CHECKING:
    from leporello.engine.report import CompactionReport
    from leporello.messages import Message

_MOST_UNHEARD = 16  # events


class ContextEngine(ABC):
    """What every context engine offers; four members must be implemented, the rest have working defaults.

    Hosts read and set plain attributes on engines, so a subclass must not define `__slots__`.
    """

    last_prompt_tokens: int = 0
    last_completion_tokens: int = 0
    last_total_tokens: int = 0
    threshold_tokens: int = 0
    context_length: int = 0
    compression_count: int = 0

    threshold_percent: float = 0.75
    protect_first_n: int = 3
    protect_last_n: int = 6

    last_compaction: CompactionReport | None = None

    _sink: Sink | None = None
    _unheard: tuple[Event, ...] = ()

    @property
    def on_event(self) -> Sink | None:
        """The sink for events; a new one is first given those that were emitted while there was none."""
        return self._sink

    @on_event.setter
    def on_event(self, sink: Sink | None) -> None:
        self._sink = sink
        if sink is not None:
            unheard, self._unheard = self._unheard, ()
            for event in unheard:
                sink(event)

    @property
    @abstractmethod
    def name(self) -> str:
        """The short identifier that `context.engine` in config.yaml names."""

    @abstractmethod
    def update_from_response(self, usage: dict[str, Any]) -> None:
        """Take the usage of a model call; sets the three `last_*` counters."""

    @abstractmethod
    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Tell whether the conversation must shrink before the next model call."""

    @abstractmethod
    def compress(
        self,
        messages: list[Message],
        current_tokens: int | None = None,
        focus_topic: str | None = None,
    ) -> list[Message]:
        """Return a new, possibly shorter, valid OpenAI-format list; the input stays as it is.

        `focus_topic` comes from `/compress <focus>`. An engine may also take `force` and `memory_context`: a host
        passes only what the signature accepts.
        """

    def on_session_start(self, session_id: str, **kwargs: Any) -> None:  # noqa: B027 - optional by contract
        """Begin or resume a conversation.

        An engine with `works_on_branch = True` is handed `branch`, that of the session (`leporello.store.Branch`): it
        may read it and propose windows, which the session commits.
        """

    def on_session_end(self, session_id: str, messages: list[Message]) -> None:  # noqa: B027 - the same
        """End a conversation at a real boundary: exit, reset, expiry."""

    def on_session_reset(self) -> None:
        """Forget the counters of the conversation that ended."""
        self.last_prompt_tokens = 0
        self.last_completion_tokens = 0
        self.last_total_tokens = 0
        self.compression_count = 0

    def update_model(
        self,
        model: str,
        context_length: int,
        base_url: str = "",
        api_key: str = "",
        provider: str = "",
        api_mode: str = "",
    ) -> None:
        """Take over a model and its window."""
        self.context_length = context_length
        self.threshold_tokens = int(context_length * self.threshold_percent)

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Return the schemas of the tools this engine offers to the model."""
        return []

    def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Answer a call of one of this engine's tools with a JSON string."""
        return json.dumps({"error": f"Unknown tool: {name}"})

    def should_compress_preflight(self, messages: list[Message]) -> bool:
        """Tell from the messages alone whether to compress before this call; asked once per request."""
        return False

    def get_status(self) -> dict[str, Any]:
        """Return the counters, the threshold, the window and how much of it is used."""
        used = max(self.last_prompt_tokens, 0)
        return {
            "last_prompt_tokens": used,
            "last_completion_tokens": self.last_completion_tokens,
            "last_total_tokens": self.last_total_tokens,
            "threshold_tokens": self.threshold_tokens,
            "context_length": self.context_length,
            "usage_percent": min(100.0, used / self.context_length * 100) if self.context_length else 0.0,
            "compression_count": self.compression_count,
        }

    def has_content_to_compress(self, messages: list[Message]) -> bool:
        """Tell whether a manual compaction could find anything to fold."""
        return True

    def should_defer_preflight_to_real_usage(self, rough_tokens: int) -> bool:
        """Tell whether to wait for the provider's count instead of trusting a rough estimate."""
        return False

    def on_turn_complete(  # noqa: B027 - optional by contract
        self, messages: list[Message], usage: dict[str, Any] | None = None, **kwargs: Any
    ) -> None:
        """Take note that a turn is over."""

    def clone_for_agent(self) -> ContextEngine | None:
        """Return a fresh engine for another conversation, or None to let the loader make one."""
        return None

    def carry_over_new_session_context(self, old_session_id: str, new_session_id: str) -> None:  # noqa: B027 - optional
        """Take what is worth keeping from one conversation to the next."""

    def close(self) -> None:  # noqa: B027 - optional by contract
        """Give back what the engine holds: connections, threads, files."""

    def emit(self, event: Event) -> None:
        """Hand an event to the sink; without one it is logged, and kept for the sink to come."""
        if self.on_event is not None:
            self.on_event(event)
            return
        log_event(event)
        self._unheard = (*self._unheard, event)[-_MOST_UNHEARD:]
