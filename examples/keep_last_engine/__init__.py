"""The context engine `keep_last_engine`: keeps the newest turns that fit, and a summary of the older ones.

Without a model it is honest and forgetful: the older turns are dropped. Make it yours: `compress` is where an engine
thinks.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from leporello import CompactionReport, ContextEngine
from leporello.engine import normalise_usage
from leporello.messages import Message, leading_systems, repair, role_of
from leporello.redact import redact, redact_messages
from leporello.summary import Summariser, SummaryRequest
from leporello.tokens import count_messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello.llm import LLM

KEEP = 0.5  # of the threshold: what a compaction aims at
SUMMARY = 0.1  # of the threshold: the longest summary
REGROWTH = 0.1  # of the threshold: how much a window must grow before it is folded again


class KeepLastEngine(ContextEngine):
    """Keep the newest turns: a turn is a user message and everything up to the next one."""

    def __init__(
        self,
        context_length: int = 0,
        *,
        config: dict[str, Any] | None = None,
        llm: LLM | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        # The block of config.yaml with the engine's name comes here as it is: `keep_last_engine: {keep: 0.3}`
        self.keep = float((config or {}).get("keep", KEEP))
        # Its calls of the model are limited in number and time; while the model fails, it summarises without one.
        self._summariser = Summariser(llm, clock=clock)
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
        """Keep the system prompt, a summary, the newest turn whatever it costs, and before it as many turns as fit."""
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
        dropped = turns[: len(turns) - len(kept)]
        result = head + self._summary(_messages(dropped), focus_topic or "") + _messages(kept)
        self._report(messages, result, current_tokens or 0)
        return result

    def _summary(self, dropped: list[Message], focus: str) -> list[Message]:
        """Return a summary of these messages, as two messages; nothing where it would not be shorter."""
        if self._summariser.llm is None or not dropped:
            return []
        request = SummaryRequest(
            messages=redact_messages(dropped),  # no secret goes to the model
            budget_tokens=int(self.threshold_tokens * SUMMARY),
            focus=redact(focus),
        )
        text = f"Summary of the earlier turns, for reference:\n\n{self._summariser.summarise(request).text}"
        summary: list[Message] = [
            {"role": "user", "content": text},
            {"role": "assistant", "content": "Understood."},
        ]
        return summary if count_messages(summary) < count_messages(dropped) else []

    def _report(self, before: list[Message], after: list[Message], request_tokens: int) -> None:
        """Say what was done, and wait until it is worth doing again."""
        tokens, tokens_before = count_messages(after), count_messages(before)
        overhead = max(request_tokens - tokens_before, 0)  # what else the request holds, such as tools
        self.compression_count += 1
        self._folds_at = tokens + overhead + int(self.threshold_tokens * REGROWTH)
        self.last_compaction = CompactionReport(
            status="folded" if tokens < tokens_before else "unchanged",
            reason="older turns were folded" if tokens < tokens_before else "there is nothing to fold",
            tokens_before=tokens_before,
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


def _messages(turns: list[list[Message]]) -> list[Message]:
    return [message for turn in turns for message in turn]
