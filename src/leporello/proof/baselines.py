"""What any policy must beat: no management, the newest messages, observation masking, and lists of names.

Each is a pure function from a history and a number of tokens to a window; the first three are engines too, so that they
are driven like any other.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Final

from leporello.engine import CompactionReport, ContextEngine, normalise_usage
from leporello.messages import groups, leading_systems, repair, role_of
from leporello.proof.exact_values import content_words, values_in
from leporello.proof.lines import units_of
from leporello.summary.masking import masked as cleared
from leporello.tokens import count_messages, count_text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leporello.messages import Message

LATEST: Final = 10
"""How many tool outputs masking leaves as they are."""

_WORDS = 3
_MASKED_SHARE = 0.85


def newest(messages: Sequence[Message], budget: int) -> list[Message]:
    """Return the system prompt and the newest messages that fit, with the newest message of the user in any case."""
    return _fitting(list(messages), budget)


def masked(messages: Sequence[Message], budget: int) -> list[Message]:
    """Return the newest messages that fit when all but the latest tool outputs are cleared.

    Where the latest ones do not fit, they are cleared, too.
    """
    outputs = [at for at, message in enumerate(messages) if role_of(message) == "tool"]
    old = set(outputs[:-LATEST])
    return _fitting(
        [cleared(message) if at in old else message for at, message in enumerate(messages)], budget, shorter=cleared
    )


def names(messages: Sequence[Message], budget: int) -> list[Message]:
    """Return a bare list of names, one to a line, those said most often and most recently first."""
    return _listed(_ranked(messages), budget)


def names_and_words(messages: Sequence[Message], budget: int) -> list[Message]:
    """Return a list of names, each with three words that stood beside it."""
    return _listed(_ranked(messages, words=_WORDS), budget)


def names_and_shuffled_words(messages: Sequence[Message], budget: int) -> list[Message]:
    """Return the same list with every word beside a name that it did not stand beside: a planted failure."""
    lines = _ranked(messages, words=_WORDS)
    words = [word for _, beside in lines for word in beside]
    Random(0).shuffle(words)  # noqa: S311 - reproducible, no cryptography
    return _listed([(name, [words.pop() for _ in beside]) for name, beside in lines], budget)


def masked_and_names(messages: Sequence[Message], budget: int) -> list[Message]:
    """Return masking in 85 % of the room, and in the rest names, each with three words that stood beside it."""
    window = masked(messages, int(budget * _MASKED_SHARE))
    said = names_and_words(messages, max(0, budget - count_messages(window)))
    systems = leading_systems(window)
    return [*window[:systems], *said, *window[systems:]]


AT_EQUAL_TOKENS: Final[dict[str, Callable[[Sequence[Message], int], list[Message]]]] = {
    "window": newest,
    "mask": masked,
    "names": names,
    "names+words": names_and_words,
    "names+shuffled words": names_and_shuffled_words,
    "mask+names": masked_and_names,
}
"""The baselines that are asked what they would hold in as many tokens as an engine's window has."""


class Baseline(ContextEngine):
    """An engine that folds at half of the window, down to half of that."""

    label: ClassVar[str]
    threshold_percent: float = 0.5

    def __init__(self, context_length: int = 0) -> None:
        self.context_length = context_length
        self.threshold_tokens: int = int(context_length * self.threshold_percent)

    @property
    def name(self) -> str:
        """The name on the command line."""
        return self.label

    def update_from_response(self, usage: dict[str, Any]) -> None:
        """Take the usage of a model call."""
        counts = normalise_usage(usage)
        self.last_prompt_tokens: int = counts["prompt_tokens"]
        self.last_completion_tokens: int = counts["completion_tokens"]
        self.last_total_tokens: int = counts["total_tokens"]

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Tell whether half of the window is full."""
        tokens = self.last_prompt_tokens if prompt_tokens is None else prompt_tokens
        return 0 < self.threshold_tokens <= tokens

    def compress(
        self, messages: list[Message], current_tokens: int | None = None, focus_topic: str | None = None
    ) -> list[Message]:
        """Return what the policy keeps; the list as it is when that is not less."""
        before = count_messages(messages)
        kept = self.keep(messages, self.threshold_tokens // 2)
        after = count_messages(kept)
        report = CompactionReport(
            status="unchanged",
            tokens_before=before,
            tokens_after=before,
            messages_before=len(messages),
            messages_after=len(messages),
        )
        if after >= before:
            self.last_compaction: CompactionReport | None = report
            return list(messages)
        self.compression_count: int = self.compression_count + 1
        self.last_compaction = replace(report, status="folded", tokens_after=after, messages_after=len(kept))
        return kept

    @abstractmethod
    def keep(self, messages: Sequence[Message], budget: int) -> list[Message]:
        """Return what is kept within a number of tokens."""


class NoManagement(Baseline):
    """Sends everything, whether it fits or not."""

    label = "none"

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Never."""
        return False

    def keep(self, messages: Sequence[Message], budget: int) -> list[Message]:
        """Keep everything."""
        return list(messages)


class NewestMessages(Baseline):
    """Keeps the newest messages."""

    label = "window"

    def keep(self, messages: Sequence[Message], budget: int) -> list[Message]:
        """Keep the newest messages."""
        return newest(messages, budget)


class ObservationMasking(Baseline):
    """Clears tool outputs but the latest ten, and keeps the newest messages of what is left."""

    label = "mask"

    def keep(self, messages: Sequence[Message], budget: int) -> list[Message]:
        """Mask, and drop the oldest messages if that is not enough."""
        return masked(messages, budget)


ENGINES: Final[dict[str, type[Baseline]]] = {
    engine.label: engine for engine in (NoManagement, NewestMessages, ObservationMasking)
}


def _fitting(
    messages: list[Message], budget: int, shorter: Callable[[Message], Message] | None = None
) -> list[Message]:
    """Return the newest groups within a budget, behind the system prompt and the newest message of the user."""
    first = leading_systems(messages)
    systems, rest = messages[:first], messages[first:]
    asked = max((at for at, message in enumerate(rest) if role_of(message) == "user"), default=-1)
    question = rest[asked : asked + 1] if asked >= 0 else []
    left = budget - count_messages(systems) - count_messages(question)
    kept: list[Message] = []
    for group in reversed(groups(rest)):
        if group.start == asked:
            kept, question = [*question, *kept], []
            continue
        found = rest[group.start : group.stop]
        if shorter and count_messages(found) > left:
            found = [shorter(message) if role_of(message) == "tool" else message for message in found]
        if (tokens := count_messages(found)) > left:
            break
        left -= tokens
        kept = [*found, *kept]
    window = [*systems, *question, *kept]
    return repair(window).messages if window else window


def _ranked(messages: Sequence[Message], words: int = 0) -> list[tuple[str, list[str]]]:
    """Return the names: those that user and assistant said before those of outputs, often and recently said ones first.

    Each comes with words that stood beside it.
    """
    weight: Counter[str] = Counter()
    beside: dict[str, Counter[str]] = {}
    for at, message in enumerate(messages):
        spoken = role_of(message) in ("user", "assistant")
        for unit in units_of(message):
            for value in {value for value, _ in values_in(unit)}:
                weight[value] += (_SPOKEN if spoken else 1) * (1 + _RECENT * at // len(messages))
                if words and len(unit) <= _LONGEST_UNIT:
                    beside.setdefault(value, Counter()).update(content_words(unit.replace(value, " ")))
    return [
        (value, [word for word, _ in beside.get(value, Counter()).most_common(words)])
        for value, _ in weight.most_common()
    ]


_SPOKEN = 1_000  # a name that was said comes before those that only stand in outputs
_RECENT = 4  # a name at the end counts this much more than one at the beginning
_LONGEST_UNIT = 2_000


def _listed(lines: Sequence[tuple[str, Sequence[str]]], budget: int) -> list[Message]:
    listed: list[str] = []
    left = budget
    for name, words in lines:
        line = " ".join((name, *words))
        left -= count_text(line) + 1
        if left < 0:
            break
        listed.append(line)
    return [{"role": "user", "content": "\n".join(listed)}] if listed else []
