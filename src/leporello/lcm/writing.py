"""Writing nodes: three levels, the first that is shorter than its source is taken.

1. detailed, by the model; 2. half as long, by the model; 3. extractive, without a model. A few words are quoted as
they are, which no model can better.

What was written without the model although there is one carries the mark `remake`: it is written again from the
originals at a later fold.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from functools import reduce
from typing import TYPE_CHECKING, Any, Literal

from leporello.lcm.dag import Piece, covers_of, flat_text, views
from leporello.messages import role_of
from leporello.redact import redact, redact_messages
from leporello.store.records import Node
from leporello.summary import SummaryRequest
from leporello.summary.answers import neutralised
from leporello.summary.model import extractive_text
from leporello.summary.template import Sections, cut, merge, parse, render, trim
from leporello.tokens import count_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import TypeAlias

    from leporello.redact import RedactedMessage
    from leporello.store.records import Stored
    from leporello.summary import Summariser, Summary

    Views: TypeAlias = list[RedactedMessage]

LEAF_SHARE, CONDENSED_SHARE = 0.20, 0.40  # of the source
READ_SHARE = 0.25  # of a leaf, for names that only stood in outputs: with many leaves they would fill the window
SMALLEST_TEXT = 48
TELLING_TEXT = 160  # what a leaf may have in any case, if that is at most half of its source
SMALLEST_SOURCE = 2 * SMALLEST_TEXT  # up to here the messages themselves say it best
REMAKE = "remake"  # the note on a node that was written without the model
CALLS, PAID = "model_calls", "cost_usd"  # notes on a node: what was spent for it in the background
_SECONDS_FOR_A_CALL = 1.0
_PASSAGE, _PINS = "about the focus: ", 3
_MOST_REQUESTS = 9
# How the extractive summary labels requests.
_REQUEST = re.compile(r"^(?:First request|Then|Latest instruction of these turns, quoted as history): ")


class Allowance:
    """How many calls and how much time one fold may still spend, and what it has spent."""

    def __init__(self, clock: Callable[[], float], *, max_calls: int, seconds: float) -> None:
        self._clock = clock
        self._ends = clock() + seconds
        self._seconds = seconds
        self._max_calls = max_calls
        self.calls = 0
        self.cost_usd: float | None = 0.0
        self._billed = 0
        self.fallback = ""
        self.retry_in: float | None = None

    @property
    def calls_left(self) -> int:
        """How many calls may still be made."""
        return max(0, self._max_calls - self.calls)

    @property
    def seconds_left(self) -> float:
        """How much time is left; a clock that was set back gives no more than there was."""
        return min(self._seconds, max(0.0, self._ends - self._clock()))

    @property
    def open(self) -> bool:
        """Whether the model may be asked again."""
        return self.calls_left > 0 and self.seconds_left >= _SECONDS_FOR_A_CALL

    def spend(self, summary: Summary) -> None:
        """Take note of what a summary has cost."""
        self.calls += summary.model_calls
        self.charge(summary.cost_usd)
        if summary.fallback:
            self.fallback, self.retry_in = summary.fallback, summary.retry_in

    def bill(self) -> tuple[int, float | None]:
        """Return the calls, and what they cost, since the last bill."""
        calls, cost_usd = self.calls - self._billed, self.cost_usd
        self._billed, self.cost_usd = self.calls, 0.0
        return calls, cost_usd

    def add(self, node: Node) -> None:
        """Add what was spent for a node in the background."""
        self.calls += node.meta.get(CALLS, 0)
        self.charge(node.meta.get(PAID, 0.0))

    def charge(self, cost_usd: float | None) -> None:
        """Add US dollars; None, when the price of something is not known, leaves the sum unknown."""
        self.cost_usd = None if cost_usd is None or self.cost_usd is None else self.cost_usd + cost_usd


class Writer:
    """Write nodes within an allowance; with `use_model` off nothing waits."""

    def __init__(
        self, summariser: Summariser, allowance: Allowance, *, use_model: bool, focus: str = "", memory: str = ""
    ) -> None:
        self._summariser = summariser
        self._allowance = allowance
        self._use_model = use_model
        self._focus = redact(focus)
        self._memory = redact(memory)

    def leaf(self, pieces: Sequence[Piece]) -> Node:
        """Write the summary of messages."""
        source = sum(piece.tokens for piece in pieces)
        text, made_by, mark = self._told(views(pieces), source)
        first, *_ = stored = [piece.stored for piece in pieces]
        return Node(
            level=0,
            text=text,
            tokens=count_text(text),
            source_tokens=source,
            made_by=made_by,
            covers=covers_of(pieces),
            first_seq=min(s.seq for s in stored),
            last_seq=max(s.seq for s in stored),
            messages=len(stored),
            time_from=min(s.time for s in stored),
            time_to=max(s.time for s in stored),
            meta={**mark, "counts": counts(stored), "begins": first.id},
        )

    def condensed(self, children: Sequence[Node], budget: int) -> Node:
        """Write one node over several."""
        source = sum(child.tokens for child in children)
        texts = [child.text for child in children]
        budget = max(SMALLEST_TEXT, min(budget, int(source * CONDENSED_SHARE)))
        messages = redact_messages({"role": "assistant", "content": text} for text in texts if text)
        text, made_by = self._written(messages, budget, source, lambda tokens: _joined(texts, tokens, self._focus))
        total: Counter[str] = Counter()
        for child in children:
            total.update(child.meta.get("counts", {}))
        return Node(
            level=max(child.level for child in children) + 1,
            text=text,
            tokens=count_text(text),
            source_tokens=sum(child.source_tokens for child in children),
            made_by=made_by,
            children=tuple(child.id for child in children),
            first_seq=min(child.first_seq for child in children),
            last_seq=max(child.last_seq for child in children),
            messages=sum(child.messages for child in children),
            time_from=min(child.time_from for child in children),
            time_to=max(child.time_to for child in children),
            meta={**self._meta(made_by), "counts": dict(total), "begins": children[0].meta.get("begins", "")},
        )

    def _told(self, messages: Views, source: int) -> tuple[str, Literal["model", "extract"], dict[str, Any]]:
        """Return the text of a leaf, who made it, and its mark."""
        quote = _quoted(messages) if source <= SMALLEST_SOURCE else ""
        if 0 < count_text(quote) < source:
            return quote, "extract", {}
        budget = max(SMALLEST_TEXT, min(max(TELLING_TEXT, int(source * LEAF_SHARE)), source // 2))
        text, made_by = self._written(messages, budget, source, lambda tokens: self._extract(messages, tokens))
        text = self._pinned(text, messages, source // 2) if made_by == "model" else text
        text = text or redact(cut(_quoted(messages), source // 2))  # what cannot be summed up is quoted in part
        return text, made_by, self._meta(made_by)

    def _written(
        self, messages: Views, budget: int, source: int, extract: Callable[[int], str]
    ) -> tuple[str, Literal["model", "extract"]]:
        for tokens in (budget, max(SMALLEST_TEXT, budget // 2)):
            summary = self._asked(messages, tokens)
            if summary is None or summary.fallback:
                break
            if not summary.partly_extractive and 0 < count_text(summary.text) < source:
                return summary.text, "model"
        for tokens in (budget, budget // 2, source // 3):
            text = extract(tokens) if tokens > 0 else ""
            if count_text(text) < source:
                return text, "extract"
        return "", "extract"

    def _asked(self, messages: Views, budget: int) -> Summary | None:
        asks = self._use_model and self._summariser.llm is not None and not self._allowance.fallback
        if not (asks and messages and self._allowance.open):
            return None
        request = SummaryRequest(
            messages=messages,
            budget_tokens=budget,
            focus=self._focus,
            memory=self._memory,
            complete=True,
            read_share=READ_SHARE,
        )
        summary = self._summariser.summarise(
            request, max_calls=self._allowance.calls_left, deadline_seconds=self._allowance.seconds_left
        )
        self._allowance.spend(summary)
        return summary

    def _pinned(self, text: str, messages: Views, budget: int) -> str:
        """Add the passages that speak most of the focus, word for word; the extractive summary has them already."""
        if not self._focus:
            return text
        found = parse(self._extract(messages, budget)).critical
        passages = tuple(line for line in found if line.startswith(_PASSAGE))[:_PINS]
        pinned = merge(parse(text), Sections(critical=passages))
        return redact(render(trim(pinned, budget, focus=self._focus.split())))

    def _extract(self, messages: Views, budget: int) -> str:
        request = SummaryRequest(messages=messages, budget_tokens=budget, focus=self._focus, read_share=READ_SHARE)
        return extractive_text(request)

    def _meta(self, made_by: str) -> dict[str, Any]:
        return {REMAKE: True} if made_by == "extract" and self._summariser.llm is not None else {}


def _quoted(messages: Views) -> str:
    """Return what was said, word for word; what was quoted in it can pass for no other message and no heading."""
    texts = ((role_of(message), neutralised(flat_text(message)).splitlines()) for message in messages)
    return redact("\n".join(f"{role}: " + "\n| ".join(lines) for role, lines in texts))


def counts(stored: Sequence[Stored]) -> dict[str, int]:
    """Count what can be found: messages of people and assistants by role, results by tool."""
    return dict(Counter(redact((s.tool or "tool result") if s.role == "tool" else s.role) for s in stored))


def _joined(texts: Sequence[str], budget: int, focus: str) -> str:
    """Join summaries without a model: newer lines update older ones, the least important ones go first."""
    sections = reduce(merge, [parse(text) for text in texts])
    sections = replace(sections, goal=tuple(_goals(sections.goal)))
    return redact(render(trim(sections, budget, focus=focus.split())))


def _goals(lines: Sequence[str]) -> Iterator[str]:
    """Tell how the requests developed over all of the summaries: one is the first, one the latest."""
    requests = list(dict.fromkeys(_REQUEST.sub("", line) for line in lines if _REQUEST.match(line)))
    requests = [*requests[:1], *requests[1:][-_MOST_REQUESTS:]]
    yield from (line for line in lines if not _REQUEST.match(line))
    for number, request in enumerate(requests):
        if number == len(requests) - 1:
            yield f"Latest instruction of these turns, quoted as history: {request}"
        else:
            yield f"{'Then' if number else 'First request'}: {request}"
