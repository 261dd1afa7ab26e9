"""Writes the text of nodes: the first of three texts that is shorter than its source.

1. a summary of the model; 2. one half as long; 3. an extractive summary, without a model. Short messages are quoted
instead. A node that was written without the model although there is one has `remake` in its meta: a later fold writes
it again.
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
from leporello.summary.extract.story import is_trivial
from leporello.summary.extract.summary import FIRST_REQUEST, LATER_REQUEST, LATEST_REQUEST, REQUEST_LABEL
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
SMALLEST_TEXT = 48
TELLING_TEXT = 160  # tokens that a leaf may always have, if that is at most half of its source
REQUEST_TEXT = 4 * TELLING_TEXT  # tokens that a leaf of what the user asked may have then
MOST_SHARED = 4 * TELLING_TEXT  # tokens of small neighbours that share a leaf
SMALLEST_SOURCE = 2 * SMALLEST_TEXT  # up to here the messages are quoted
REMAKE = "remake"  # in the meta of a node that was written without the model
CALLS, PAID = "model_calls", "cost_usd"  # in the meta of a node: the model calls in the background, and their cost
_SECONDS_FOR_A_CALL = 1.0
_PASSAGE, _PINS = "about the focus: ", 3
_MOST_REQUESTS = 9
_NEXT_QUOTED = re.compile(r"\n(?!\| )")


class CallBudget:
    """The model calls and the time that one fold may spend, and what it has spent."""

    def __init__(self, clock: Callable[[], float], *, max_calls: int, seconds: float) -> None:
        self._clock = clock
        self._ends = clock() + seconds
        self._seconds = seconds
        self._max_calls = max_calls
        self.model_calls: int = 0
        self.cost_usd: float | None = 0.0
        self._billed = 0
        self.fallback = ""
        self.retry_in: float | None = None

    @property
    def calls_left(self) -> int:
        """How many calls may still be made."""
        return max(0, self._max_calls - self.model_calls)

    @property
    def seconds_left(self) -> float:
        """How many seconds are left, never more than at first, even if the clock was set back."""
        return min(self._seconds, max(0.0, self._ends - self._clock()))

    @property
    def open(self) -> bool:
        """Whether the model may be asked again."""
        return self.calls_left > 0 and self.seconds_left >= _SECONDS_FOR_A_CALL

    def spend(self, calls: int, cost_usd: float | None) -> None:
        """Add calls and US dollars; None, when the price of something is not known, leaves the sum unknown."""
        self.model_calls += calls
        self.cost_usd = None if cost_usd is None or self.cost_usd is None else self.cost_usd + cost_usd

    def bill(self) -> tuple[int, float | None]:
        """Return the calls, and what they cost, since the last bill."""
        calls, cost_usd = self.model_calls - self._billed, self.cost_usd
        self._billed, self.cost_usd = self.model_calls, 0.0
        return calls, cost_usd


class NodeWriter:
    """Writes nodes within a budget of model calls; without `use_model` none is made."""

    def __init__(
        self, summariser: Summariser, call_budget: CallBudget, *, use_model: bool, focus: str = "", memory: str = ""
    ) -> None:
        self._summariser = summariser
        self.call_budget = call_budget
        self.use_model = use_model
        self._focus = redact(focus)
        self._memory = redact(memory)

    @property
    def has_focus(self) -> bool:
        """Whether a topic was named that is to be kept in most detail."""
        return bool(self._focus)

    @property
    def has_model(self) -> bool:
        """Whether there is a model that could write nodes, now or later."""
        return self._summariser.llm is not None

    @property
    def may_ask(self) -> bool:
        """Whether there is a model to ask, within the limits, that has not failed."""
        return self.use_model and self.has_model and self.call_budget.open and not self.call_budget.fallback

    def leaves(self, packed: Sequence[Sequence[Piece]]) -> list[Node]:
        """Write a leaf of each of these stretches of messages, the newest first.

        Without a model small neighbours share a leaf; what a model writes is prepared one leaf at a time.
        """
        written = [self.leaf(pieces) for pieces in reversed(packed)][::-1]
        if self.has_model:
            return written
        runs: list[list[tuple[Sequence[Piece], Node]]] = []
        for pieces, node in zip(packed, written, strict=True):
            together = runs and all(map(_is_small, (runs[-1][-1][1], node)))
            if together and sum(held.tokens for _, held in runs[-1]) + node.tokens <= MOST_SHARED:
                runs[-1].append((pieces, node))
            else:
                runs.append([(pieces, node)])
        return [self._shared(run) if len(run) > 1 else run[0][1] for run in runs]

    def leaf(self, pieces: Sequence[Piece]) -> Node:
        """Write the summary of messages."""
        text, made_by, mark = self._told(views(pieces), sum(piece.tokens for piece in pieces))
        return _leaf(pieces, text, made_by, mark)

    def _shared(self, run: Sequence[tuple[Sequence[Piece], Node]]) -> Node:
        """Return one leaf that tells what several told."""
        text = _joined([node.text for _, node in run], sum(node.tokens for _, node in run), self._focus)
        return _leaf([piece for pieces, _ in run for piece in pieces], text, "extract", {})

    def condensed(self, children: Sequence[Node], budget: int) -> Node:
        """Write one node over several."""
        source = sum(child.tokens for child in children)
        texts = [child.text for child in children]
        budget = max(SMALLEST_TEXT, min(budget, int(source * CONDENSED_SHARE)))
        messages = redact_messages({"role": "assistant", "content": text} for text in texts if text)
        text, made_by = self._written(messages, budget, source, lambda tokens: _joined(texts, tokens, self._focus))
        counted = sum((Counter(child.meta.get("counts", {})) for child in children), Counter[str]())
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
            meta={**self._meta(made_by), "counts": dict(counted), "begins": children[0].meta.get("begins", "")},
        )

    def _told(self, messages: Views, source: int) -> tuple[str, Literal["model", "extract"], dict[str, Any]]:
        """Return the text of a leaf, who made it, and its meta."""
        quote = _quoted(messages) if source <= SMALLEST_SOURCE else ""
        if 0 < count_text(quote) < source:
            return quote, "extract", {}
        least = REQUEST_TEXT if all(role_of(message) == "user" for message in messages) else TELLING_TEXT
        budget = max(SMALLEST_TEXT, min(max(least, int(source * LEAF_SHARE)), source // 2))
        text, made_by = self._written(messages, budget, source, lambda tokens: self._extracted(messages, tokens))
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
        if not messages or not self.may_ask:
            return None
        call_budget = self.call_budget
        summary = self._summariser.summarise(
            self._request(messages, budget), max_calls=call_budget.calls_left, deadline_seconds=call_budget.seconds_left
        )
        call_budget.spend(summary.model_calls, summary.cost_usd)
        if summary.fallback:
            call_budget.fallback, call_budget.retry_in = summary.fallback, summary.retry_in
        return summary

    def _extracted(self, messages: Views, budget: int) -> str:
        return extractive_text(self._request(messages, budget))

    def _request(self, messages: Views, budget: int) -> SummaryRequest:
        return SummaryRequest(
            messages=messages,
            budget_tokens=budget,
            focus=self._focus,
            memory=self._memory,
            complete=True,
            names_listed=True,
        )

    def _pinned(self, text: str, messages: Views, budget: int) -> str:
        """Add the passages with most words of the focus, verbatim; the extractive summary has them already."""
        if not self._focus:
            return text
        found = parse(self._extracted(messages, budget)).critical
        passages = tuple(line for line in found if line.startswith(_PASSAGE))[:_PINS]
        pinned = merge(parse(text), Sections(critical=passages))
        return redact(render(trim(pinned, budget, focus=self._focus.split())))

    def _meta(self, made_by: str) -> dict[str, Any]:
        return {REMAKE: True} if made_by == "extract" and self.has_model else {}


def _leaf(pieces: Sequence[Piece], text: str, made_by: Literal["model", "extract"], mark: dict[str, Any]) -> Node:
    stored = list({piece.stored.seq: piece.stored for piece in pieces}.values())
    return Node(
        level=0,
        text=text,
        tokens=count_text(text),
        source_tokens=sum(piece.tokens for piece in pieces),
        made_by=made_by,
        covers=covers_of(pieces),
        first_seq=min(s.seq for s in stored),
        last_seq=max(s.seq for s in stored),
        messages=len(stored),
        time_from=min(s.time for s in stored),
        time_to=max(s.time for s in stored),
        meta={**mark, "counts": _counts(stored), "begins": stored[0].id},
    )


def _is_small(node: Node) -> bool:
    """Tell whether a block would say little; a quotation is no summary that could be joined with another."""
    return node.tokens <= TELLING_TEXT and node.text.startswith("## ")


def _quoted(messages: Views) -> str:
    """Return the messages verbatim, escaped so that a quoted text cannot pass for a message or a heading."""
    texts = ((role_of(message), neutralised(flat_text(message)).splitlines()) for message in messages)
    return redact("\n".join(f"{role}: " + "\n| ".join(lines) for role, lines in texts))


def _counts(stored: Sequence[Stored]) -> dict[str, int]:
    """Count messages by role, and results by tool."""
    return dict(Counter(redact((s.tool or "tool result") if s.role == "tool" else s.role) for s in stored))


def _joined(texts: Sequence[str], budget: int, focus: str) -> str:
    """Merge summaries without a model: newer lines replace older ones, and the least important ones are dropped."""
    sections = reduce(merge, map(_sections, texts))
    sections = replace(sections, goal=tuple(_goals(sections.goal)))
    return redact(render(trim(sections, budget, focus=focus.split())))


def _sections(text: str) -> Sections:
    """Read the text of a node; a request that is quoted in it is its goal."""
    if text.startswith("## "):
        return parse(text)
    requests, others = [], []
    for quoted in _NEXT_QUOTED.split(text):
        role, _, words = quoted.partition(": ")
        request = " ".join(words.replace("\n| ", " ").split())
        if role == "user" and not is_trivial(request):
            requests.append(LATEST_REQUEST + request)
        else:
            others.append(quoted)
    return replace(parse("\n".join(others)), goal=tuple(requests))


def _goals(lines: Sequence[str]) -> Iterator[str]:
    """Yield the goal lines of merged summaries, with one first and one latest request."""
    requests = list(dict.fromkeys(REQUEST_LABEL.sub("", line) for line in lines if REQUEST_LABEL.match(line)))
    requests = [*requests[:1], *requests[1:][-_MOST_REQUESTS:]]
    yield from (line for line in lines if not REQUEST_LABEL.match(line))
    for number, request in enumerate(requests):
        if number == len(requests) - 1:
            yield f"{LATEST_REQUEST}{request}"
        else:
            yield f"{LATER_REQUEST if number else FIRST_REQUEST}{request}"
