"""Did the prefix of the request move, why, and what did it cost."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from itertools import compress, count
from operator import is_not
from typing import TYPE_CHECKING, Any, Final

from leporello.messages import fingerprint, leading_systems
from leporello.tokens import count_message, count_tools

if TYPE_CHECKING:
    from collections.abc import Sequence


NOT_MOVED: Final = ("first request", "grew", "unchanged", "cut back")


@dataclass(frozen=True, kw_only=True)
class PrefixChange:
    """How one request differs from the one before it.

    moved        whether something changed that the provider's cache held
    index        the first changed message; None when no message changed
    reason       why: "first request", "grew", "unchanged", "cut back" (nothing moved); the host's own word,
                 "model changed", "tools changed", "system prompt changed", "message edited", "history rewritten"
    tokens_lost  the tokens of the earlier request from the change on: what the cache can no longer give (estimated)
    hash         a name for the whole request, with cache markers removed, for the journal
    """

    moved: bool
    index: int | None
    reason: str
    tokens_lost: int
    hash: str


@dataclass(frozen=True, kw_only=True)
class _Opening:
    """What stands before the messages of a request."""

    model: str = ""
    tools: list[Any] | None = None
    system: Any = None
    fingerprint: str = ""
    tool_tokens: int = 0
    tokens: int = 0

    def again(self, model: str, tools: Sequence[Any] | None, system: Any) -> _Opening:
        """Return the opening of the next request: this one when nothing in it is new."""
        listed = list(tools) if tools else None
        if self.fingerprint and (model, listed, system) == (self.model, self.tools, self.system):
            return self
        tool_tokens = count_tools(listed or [])
        return _Opening(
            model=model,
            tools=listed,
            system=system,
            fingerprint=fingerprint({"model": model, "tools": listed, "system": system}),
            tool_tokens=tool_tokens,
            tokens=tool_tokens + (count_message({"role": "system", "content": system}) if system else 0),
        )


class PrefixTracker:
    """Compares each request with the one before it; the cost grows with what is new.

    A message counts as unchanged when it is the same object as before, or says the same. So a message that is changed
    in place is not noticed: replace it by a new one instead.
    """

    def __init__(self) -> None:
        self._opening = _Opening()
        self._messages: list[Any] = []
        self._hashes: list[bytes] = []  # of everything up to and including each message
        self._weights: list[int] = []  # the tokens of each message

    def see(
        self,
        messages: Sequence[Any],
        tools: Sequence[Any] | None = None,
        *,
        system: Any = None,
        model: str = "",
        why: str | None = None,
        unchanged: int = 0,
        weights: Sequence[int] | None = None,
    ) -> PrefixChange:
        """Take the next request and tell how it differs from the one before it.

        `why` is the host's own word for what it has just done ("compaction", "undo"); it counts when something moved.
        `unchanged` is its word that this number of messages at the front are the same as before, which saves looking at
        them. `weights` are the tokens of each message, where they are known already.
        """
        before = self._opening
        opening = before.again(model, tools, system)
        same = _first_change(self._messages, messages, unchanged)
        edited = same < min(len(self._messages), len(messages))
        moved = edited or (before.fingerprint not in ("", opening.fingerprint))
        reason = self._reason(opening, messages, same)
        lost = self._tokens_lost(opening, same) if moved else 0
        self._remember(opening, messages, same, weights)
        return PrefixChange(
            moved=moved,
            index=same if edited else None,
            reason=why if moved and why else reason,
            tokens_lost=lost,
            hash=self._hash(),
        )

    def _reason(self, opening: _Opening, messages: Sequence[Any], same: int) -> str:
        before, known, given = self._opening, len(self._messages), len(messages)
        if not before.fingerprint:
            return "first request"
        if opening.model != before.model:
            return "model changed"
        if opening.tools != before.tools:
            return "tools changed"
        edited = same < min(known, given)
        if opening is not before or (edited and same < leading_systems(self._messages)):
            return "system prompt changed"
        if edited:
            return "history rewritten" if given < known else "message edited"
        return "grew" if given > known else "cut back" if given < known else "unchanged"

    def _tokens_lost(self, opening: _Opening, same: int) -> int:
        """Count what stood behind the change: tools come first, then the system prompt, then the messages."""
        before = self._opening
        if opening is before:
            return sum(self._weights[same:])
        kept = before.tool_tokens if (opening.model, opening.tools) == (before.model, before.tools) else 0
        return before.tokens + sum(self._weights) - kept

    def _remember(
        self, opening: _Opening, messages: Sequence[Any], same: int, weights: Sequence[int] | None = None
    ) -> None:
        self._opening = opening
        new = messages[same:]
        self._messages[same:] = new
        self._weights[same:] = map(count_message, new) if weights is None else weights[same:]
        del self._hashes[same:]
        rolling = self._hashes[-1] if self._hashes else b""
        for message in new:
            rolling = _rolled(rolling, fingerprint(message))
            self._hashes.append(rolling)

    def _hash(self) -> str:
        return _rolled(self._hashes[-1] if self._hashes else b"", self._opening.fingerprint).hex()


def _first_change(known: list[Any], given: Sequence[Any], start: int) -> int:
    """Return how many messages at the beginning of both lists say the same; up to `start` it is known that they do."""
    if start >= len(known) or _equal(known[start:], given[start : len(known)]):
        return len(known)
    for at in compress(count(start), map(is_not, known[start:], given[start:])):
        if not _says_the_same(known[at], given[at]):
            return at
    return min(len(known), len(given))


def _says_the_same(one: Any, other: Any) -> bool:
    return _equal(one, other) or fingerprint(one) == fingerprint(other)


def _equal(one: Any, other: Any) -> bool:
    try:
        return bool(one == other)
    except RecursionError:  # nested too deeply to compare; fingerprints cope
        return False


def _rolled(before: bytes, name: str) -> bytes:
    return blake2b(before + name.encode(), digest_size=16).digest()
