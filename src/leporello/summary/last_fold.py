"""The last fold of an engine, applied again when a host goes on with the list from before it.

A host must go on with the list that `compress()` returns. One that keeps its own list instead hands over everything
again at the next request, and a fold from scratch would be due every time. So the engine remembers what its last fold
replaced: where a list still begins with that, the fold takes its place without being made anew, and whether the
shorter list is folded again is decided as if the host had used it.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from leporello.engine import CompactionReport
from leporello.errors import UnusedFoldWarning, warn_caller
from leporello.events import Notice
from leporello.messages import copied, fingerprint, leading_systems, role_of
from leporello.tokens import count_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leporello.engine import ContextEngine
    from leporello.messages import Message

UNUSED = (
    "the list that compress() returned was not used: the conversation went on with the longer list from before. "
    "Keep the result (messages = engine.compress(messages, ...)) and append to it. Until then the last fold is "
    "applied again to every list that is handed over."
)


@dataclass(frozen=True, kw_only=True)
class Reapplied:
    """A host's list with the last fold in place of what that one replaced."""

    given: Sequence[Message]
    messages: list[Message]
    saved_tokens: int

    def report(self, tokens: int) -> CompactionReport:
        """Report that nothing new was folded; `tokens` is the size of the list now."""
        return CompactionReport(
            status="unchanged",
            reason="the last fold was applied again: its result had not been used",
            tokens_before=tokens + self.saved_tokens,
            tokens_after=tokens,
            messages_before=len(self.given),
            messages_after=len(self.messages),
        )


class LastFold:
    """What the last fold of a conversation replaced, and by what."""

    def __init__(self, repaired: Callable[[list[Message]], list[Message]]) -> None:
        self._repaired = repaired
        self._told = False
        self.forget()

    def forget(self) -> None:
        """Turn to another conversation."""
        self._replaced = self._given = self._saved_tokens = 0
        self._digest = self._last = ""
        self._systems: list[str] = []
        self._by: list[Message] = []

    def remember(self, given: Sequence[Message], result: Sequence[Message], saved_tokens: int) -> None:
        """Note a fold; the end that both lists share was not replaced."""
        same = 0
        while same < min(len(given), len(result)) and given[-1 - same] == result[-1 - same]:
            same += 1
        first = leading_systems(given)
        replaced = given[first : len(given) - same]
        self._by = copied(list(result[: len(result) - same]))
        self._given, self._replaced = len(given) - first, len(replaced)
        self._saved_tokens = saved_tokens
        self._systems = [fingerprint(message) for message in given[:first]]
        self._digest = _digest(replaced)
        self._last = fingerprint(replaced[-1]) if replaced else ""

    def reapplied(self, messages: Sequence[Message]) -> Reapplied | None:
        """Return a list in which the conversation went on from before the fold, with the fold in its place."""
        first = leading_systems(messages)
        cut = first + self._replaced
        later = messages[first + self._given :]
        if not self._replaced or not any(role_of(message) == "assistant" for message in later):
            return None
        if fingerprint(messages[cut - 1]) != self._last or _digest(messages[first:cut]) != self._digest:
            return None
        by = copied(self._by)
        if self._systems != [fingerprint(message) for message in messages[:first]]:
            by = [*messages[:first], *by[leading_systems(by) :]]
        return Reapplied(given=messages, messages=[*by, *messages[cut:]], saved_tokens=self._saved_tokens)

    def compress(
        self,
        again: Reapplied,
        engine: ContextEngine,
        current_tokens: int | None,
        asked_about: int,
        *,
        focus_topic: str | None,
        force: bool,
        memory_context: str,
    ) -> list[Message]:
        """Return the shorter list, folded once more when that is due or a person asked for it.

        `asked_about` is the size of the request that the engine was asked about last.
        """
        own = count_messages(again.messages)
        now = max(own, max(current_tokens or 0, asked_about) - again.saved_tokens)
        if not (engine.should_compress(now) or focus_topic or force):
            engine.last_compaction = again.report(own)
            return self._repaired(again.messages)
        asked: dict[str, Any] = {"focus_topic": focus_topic, "force": force, "memory_context": memory_context}
        folds = engine.compression_count
        result = engine.compress(again.messages, now if current_tokens else None, **asked)
        report = engine.last_compaction
        if engine.compression_count > folds and report is not None:
            self.remember(again.given, result, again.saved_tokens + report.tokens_before - report.tokens_after)
        return result

    def tell(self, engine: ContextEngine, session_id: str) -> None:
        """Say once that a fold was not used; without a listener, as a warning at the line that called the engine."""
        if self._told:
            return
        self._told = True
        engine.emit(Notice(session_id=session_id, text=UNUSED))
        if engine.on_event is None:
            warn_caller(UNUSED, UnusedFoldWarning)


def _digest(messages: Sequence[Message]) -> str:
    return blake2b("".join(map(fingerprint, messages)).encode(), digest_size=16).hexdigest()
