"""The context engine `keep_last_engine`: keeps the newest turns that fit and drops the older ones.

It is honest and forgetful: what it drops is gone from the window. Make it yours: `compress` is where an engine thinks.
"""

from __future__ import annotations

from typing import Any

from leporello import CompactionReport, ContextEngine
from leporello.engine import normalise_usage
from leporello.messages import Message, leading_systems, repair, role_of
from leporello.tokens import count_messages

KEEP = 0.5  # of the threshold: what a compaction aims at
REGROWTH = 0.1  # of the threshold: how much a window must grow before it is folded again


class KeepLastEngine(ContextEngine):
    """Keep the newest turns: a turn is a user message and everything up to the next one."""

    def __init__(self, context_length: int = 0, *, config: dict[str, Any] | None = None) -> None:
        # The block of config.yaml with the engine's name comes here as it is: `keep_last_engine: {keep: 0.3}`
        self.keep = float((config or {}).get("keep", KEEP))
        self._folds_at = 0
        self.update_model("", context_length)

    @property
    def name(self) -> str:
        """The value of `context.engine`."""
        return "keep_last_engine"

    def update_from_response(self, usage: dict[str, Any]) -> None:
        """Take the provider's count."""
        counted = normalise_usage(usage)
        self.last_prompt_tokens = counted["prompt_tokens"]
        self.last_completion_tokens = counted["completion_tokens"]
        self.last_total_tokens = counted["total_tokens"]

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Fire at the threshold, and after a compaction only when the window has grown again."""
        tokens = self.last_prompt_tokens if prompt_tokens is None else prompt_tokens
        return 0 < self.threshold_tokens <= tokens and tokens >= self._folds_at

    def on_session_reset(self) -> None:
        """Forget the conversation that ended."""
        super().on_session_reset()
        self._folds_at = 0

    def compress(
        self,
        messages: list[Message],
        current_tokens: int | None = None,
        focus_topic: str | None = None,
    ) -> list[Message]:
        """Keep the system prompt, the newest turn whatever it costs, and before it as many turns as fit."""
        valid = list(repair(messages).messages)
        first = leading_systems(valid)  # a system message that comes later belongs to its turn
        head, turns = valid[:first], _turns(valid[first:])
        room = int(self.threshold_tokens * self.keep) - count_messages(head)
        kept: list[list[Message]] = []
        for turn in reversed(turns):
            room -= count_messages(turn)
            if kept and room < 0:
                break
            kept.insert(0, turn)
        result = head + [message for turn in kept for message in turn]
        self._report(messages, result, overhead=max((current_tokens or 0) - count_messages(messages), 0))
        return result

    def _report(self, before: list[Message], after: list[Message], *, overhead: int) -> None:
        """Say what was done, and wait until it is worth doing again; `overhead` is what else the request holds."""
        tokens = count_messages(after)
        self.compression_count += 1
        self._folds_at = tokens + overhead + int(self.threshold_tokens * REGROWTH)
        self.last_compaction = CompactionReport(
            status="folded" if len(after) < len(before) else "unchanged",
            reason="older turns were dropped" if len(after) < len(before) else "there is only one turn",
            tokens_before=count_messages(before),
            tokens_after=tokens,
            messages_before=len(before),
            messages_after=len(after),
            unfoldable=tuple(range(len(after))) if tokens >= self.threshold_tokens > 0 else (),
        )


def _turns(messages: list[Message]) -> list[list[Message]]:
    """Split where a user speaks: there nothing that belongs together is cut, no call from its results."""
    turns: list[list[Message]] = []
    for message in messages:
        if role_of(message) == "user" or not turns:
            turns.append([])
        turns[-1].append(message)
    return turns
