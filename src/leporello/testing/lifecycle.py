"""For tests of hosts: an engine that notes every call on it, and a conversation that every host can play.

    engine = RecordingEngine(fires_at=FIRES_AT)
    ...                                  # the host says SAID to a model server that plays SCRIPT, and ends as "story"
    assert engine.story() == expected_calls("story")

The calls are the same on every host.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from leporello.engine import ContextEngine, normalise_usage
from leporello.messages import leading_systems, role_of
from leporello.testing.model_server.script import Step, Use

if TYPE_CHECKING:
    from collections.abc import Collection

    from leporello.messages import Message

RECALL: dict[str, Any] = {
    "name": "recall",
    "description": "Recall what was said before.",
    "parameters": {"type": "object", "properties": {"about": {"type": "string"}}},
}


_NAMED = ("on_session_start", "on_session_end", "handle_tool_call")


@dataclass(frozen=True, kw_only=True)
class EngineCall:
    """One call on the engine: the method, and what it was given."""

    method: str
    args: tuple[Any, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)


class RecordingEngine(ContextEngine):
    """An engine that notes every call, and folds when the test says so.

    `fires_at` are the numbers of the questions, counted from 1, to which `should_compress` says yes. It offers one
    tool, `recall`, and keeps the system prompt and the newest turn when it folds.
    """

    def __init__(self, context_length: int = 100_000, *, fires_at: Collection[int] = ()) -> None:
        self.context_length: int = context_length
        self.calls: list[EngineCall] = []
        self._fires_at = set(fires_at)
        self._asked = 0

    @property
    def name(self) -> str:
        """The name."""
        return "recording"

    def methods(self) -> list[str]:
        """Return the methods that were called, in order."""
        return [call.method for call in self.calls]

    def story(self) -> list[str]:
        """Return the calls as short lines, without what differs from host to host: sizes, models, homes."""
        return [f"{call.method} {call.args[0]}" if call.method in _NAMED else call.method for call in self.calls]

    def update_from_response(self, usage: dict[str, Any]) -> None:
        """Note the count."""
        self._note("update_from_response", usage)
        counted = normalise_usage(usage)
        self.last_prompt_tokens: int = counted["prompt_tokens"]
        self.last_completion_tokens: int = counted["completion_tokens"]
        self.last_total_tokens: int = counted["total_tokens"]

    def should_compress_preflight(self, messages: list[Message]) -> bool:
        """Note the question; the answer is always no."""
        self._note("should_compress_preflight", list(messages))
        return False

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Note the question, and say yes when the test wants it."""
        self._note("should_compress", prompt_tokens)
        self._asked += 1
        return self._asked in self._fires_at

    def compress(
        self,
        messages: list[Message],
        current_tokens: int | None = None,
        focus_topic: str | None = None,
        force: bool = False,
    ) -> list[Message]:
        """Keep the system prompt and the newest turn."""
        self._note("compress", list(messages), current_tokens=current_tokens, focus_topic=focus_topic, force=force)
        self.compression_count: int = self.compression_count + 1
        newest = max(at for at, message in enumerate(messages) if role_of(message) == "user")
        return [*messages[: leading_systems(messages)], *messages[newest:]]

    def on_session_start(self, session_id: str, **kwargs: Any) -> None:
        """Note the beginning."""
        self._note("on_session_start", session_id, **kwargs)

    def on_session_end(self, session_id: str, messages: list[Message]) -> None:
        """Note the end."""
        self._note("on_session_end", session_id, list(messages))

    def on_session_reset(self) -> None:
        """Note the reset."""
        self._note("on_session_reset")
        super().on_session_reset()

    def update_model(
        self,
        model: str,
        context_length: int,
        base_url: str = "",
        api_key: str = "",
        provider: str = "",
        api_mode: str = "",
    ) -> None:
        """Note the model."""
        self._note("update_model", model, context_length)
        self.context_length = context_length

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Offer one tool."""
        return [dict(RECALL)]

    def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Note the call and answer it."""
        self._note("handle_tool_call", name, dict(args), messages=list(kwargs.get("messages") or []))
        return json.dumps({"recalled": args})

    def on_turn_complete(self, messages: list[Message], usage: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Note the end of a model call."""
        self._note("on_turn_complete", list(messages), usage=usage)

    def close(self) -> None:
        """Note the closing."""
        self._note("close")

    def _note(self, method: str, *args: Any, **options: Any) -> None:
        self.calls.append(EngineCall(method=method, args=args, options=options))


SAID = ("What is in the log?", "And what did the crane do?", "Thank you.")
"""What the user says, one turn each."""

SCRIPT = (
    Step(tool_calls=[Use(name="read_file", arguments={"path": "log.txt"})]),
    "The log names a crane.",
    Step(tool_calls=[Use(name="recall", arguments={"about": "crane"})]),
    "It moved a container.",
    "You are welcome.",
)
"""What the model answers: a call of the host's tool `read_file`, one of the engine's, and texts."""

LOG = "crane 4 moved container 17\n"
"""What the file log.txt holds."""

FIRES_AT = frozenset({5})
"""The conversation is folded before the last answer."""

CALLS = (
    "update_model",
    "on_session_start {id}",
    *("should_compress_preflight", "should_compress", "update_from_response", "on_turn_complete") * 2,
    "should_compress_preflight",
    "should_compress",
    "update_from_response",
    "handle_tool_call recall",
    "on_turn_complete",
    *("should_compress_preflight", "should_compress", "update_from_response", "on_turn_complete"),
    "should_compress_preflight",
    "should_compress",
    "compress",
    "update_from_response",
    "on_turn_complete",
    "on_session_end {id}",
)
"""The calls that a host makes on its engine when it plays this conversation from beginning to end."""


def expected_calls(session_id: str) -> list[str]:
    """Return what `RecordingEngine.story` tells after the conversation was played under this name."""
    return [call.format(id=session_id) for call in CALLS]
