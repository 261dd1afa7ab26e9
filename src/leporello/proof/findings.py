"""What is wrong with a policy, in words: what it lost, made up, left empty, and where it broke the cached prefix."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from leporello.messages import fingerprint, is_system, role_of, text_of
from leporello.proof.exact_values import content_words, values_in
from leporello.proof.lines import Units, units_of
from leporello.redact import redact

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leporello.messages import Message
    from leporello.proof.probes import Probed

_EXACT = frozenset({"path", "hash", "url"})
_FEWEST_WORDS = 12  # what a block or summary that stands for something says at least
_OFTEN = 0.2  # of the requests: folding at more of them is thrashing
_NAMED = 3


class Watch:
    """Watches one policy in one conversation."""

    def __init__(self, messages: Sequence[Message]) -> None:
        self._messages = messages
        self._said = {fingerprint({"role": role_of(one), "content": text_of(one)}) for one in messages}
        self._garbled: dict[str, int] = {}
        self._empty: list[int] = []
        self._moved: Counter[str] = Counter()
        self._moved_at: list[int] = []
        self._folds = 0
        self._refused: Counter[str] = Counter()
        self._replaced: Counter[str] = Counter()
        self._mended: Counter[str] = Counter()

    def folded(self, window: Sequence[Message], at: int) -> None:
        """Look at the window after a compaction; a value that is cut off is shortened, not garbled."""
        self._folds += 1
        made = [message for message in window if self._is_made(message)]
        said = "\n".join(Units.of(self._messages[:at]).units)
        for message in made:
            text = "\n".join(units_of(message))
            for value, kind in values_in(text):
                if kind in _EXACT and value.rstrip("….") not in said:
                    self._garbled.setdefault(value, at)
        words = {word for message in made for word in content_words(text_of(message))}
        if made and len(words & content_words(said)) < _FEWEST_WORDS:
            self._empty.append(at)

    def refused(self, reason: str) -> None:
        """Take down a compaction that came to nothing."""
        self._refused[reason] += 1

    def replaced(self, reason: str) -> None:
        """Take down a compaction that the built-in engine made in the place of this one."""
        self._replaced[reason] += 1

    def mended(self, reason: str) -> None:
        """Take down a compaction whose result had to be mended before it could be used."""
        self._mended[reason] += 1

    def moved(self, reason: str, at: int) -> None:
        """Take down that the prefix of a request is another one although nothing was folded."""
        self._moved[reason] += 1
        self._moved_at.append(at)

    def findings(self, probes: Iterable[Probed], requests: int) -> list[str]:
        """Return what was found, one sentence each, without secrets: reports are passed around."""
        found = [
            *self._lost(probes),
            *self._made_up(),
            *self._left_empty(),
            *self._prefix(requests),
            *self._misbehaved(),
        ]
        return [redact(finding) for finding in found]

    def _is_made(self, message: Message) -> bool:
        if is_system(message) or role_of(message) == "tool":
            return False
        return fingerprint({"role": role_of(message), "content": text_of(message)}) not in self._said

    def _lost(self, probes: Iterable[Probed]) -> list[str]:
        lost = [one.probe for one in probes if one.outcome == "lost"]
        if not lost:
            return []
        named = "; ".join(f"{probe.kind} {probe.text[:80]!r} (message {probe.at})" for probe in lost[:_NAMED])
        return [f"lost: {len(lost)} of what was said can neither be seen nor found again: {named}"]

    def _made_up(self) -> list[str]:
        if not self._garbled:
            return []
        named = ", ".join(f"{value!r} (fold before message {at})" for value, at in list(self._garbled.items())[:_NAMED])
        return [f"garbled: the window holds {len(self._garbled)} exact value(s) that no message had: {named}"]

    def _left_empty(self) -> list[str]:
        if not self._empty:
            return []
        often = f"{len(self._empty)} of {self._folds} folds put nothing in the place of what they took out"
        return [f"empty: {often}, the first before message {self._empty[0]}"]

    def _misbehaved(self) -> list[str]:
        said = (
            (self._refused, "refused: {} compaction(s) could not be used"),
            (self._replaced, "replaced: {} fold(s) are the built-in engine's, and so are figures after them"),
            (self._mended, "mended: what it returned at {} fold(s) broke the rules of providers or of hosts"),
        )
        return [
            f"{text.format(reasons.total())}, mostly because: {reasons.most_common(1)[0][0]}"
            for reasons, text in said
            if reasons
        ]

    def _prefix(self, requests: int) -> list[str]:
        found = []
        if self._moved_at:
            why = ", ".join(f"{reason} ({count})" for reason, count in self._moved.most_common())
            found.append(
                f"prefix: it moved without a fold at {len(self._moved_at)} of {requests} requests, "
                f"the first before message {self._moved_at[0]}: {why}"
            )
        if requests and self._folds > _OFTEN * requests and self._folds > _NAMED:
            found.append(
                f"prefix: {self._folds} folds in {requests} requests: the cached prefix is rewritten all the time"
            )
        return found
