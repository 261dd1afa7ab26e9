"""What the last fold of an engine replaced: where a list still begins with that, the fold takes its place again."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

from leporello.engine import CompactionReport
from leporello.messages import copied, fingerprint, leading_systems, role_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.messages import Message


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

    def __init__(self) -> None:
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


def _digest(messages: Sequence[Message]) -> str:
    return blake2b("".join(map(fingerprint, messages)).encode(), digest_size=16).hexdigest()
