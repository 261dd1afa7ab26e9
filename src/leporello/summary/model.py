"""A summary by a model, inside the model's own window: in one call when everything fits, else in parts that are joined.

    digest ─▶ fits? ─▶ one call
                └▶ chunks ─▶ map: a summary of each ─▶ reduce: join neighbours until one is left
    + the earlier summary, updated by the last call
    + files, names, errors and exact values, taken from the originals without a model: the last call is told to keep
      them, and what it leaves out is added to its answer

Whatever the model cannot do, because a limit is reached or because it fails, is done without it and joined with the
rest, so that no turn is ever dropped. The newest parts are given to the model first: they matter most for going on
with the work.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property, partial, reduce
from typing import TYPE_CHECKING

from leporello.errors import ContextTooLongError
from leporello.redact import redact
from leporello.summary.answers import accepted, neutralised
from leporello.summary.artifacts import collect_turns
from leporello.summary.artifacts.reading import read_turns
from leporello.summary.digest import DEFAULT_LIMIT, digest, packed, sizes
from leporello.summary.extract import extract_summary
from leporello.summary.extract.context import exact_sections
from leporello.summary.outline import outline
from leporello.summary.prompting import Task, prompt
from leporello.summary.request import Summary, SummaryRequest
from leporello.summary.template import Sections, cut, merge, parse, render, trim
from leporello.summary.user_demands import users_only
from leporello.tokens import count_messages, count_text

if TYPE_CHECKING:
    from leporello.redact import Redacted
    from leporello.summary.calls import Calls

EXACT_SHARE, MOST_EXACT_SHARE = 0.25, 0.50
"""The share of a budget kept for what is taken from the originals without a model, and what it may grow to when the
model leaves room."""

# Shares of the window: token counts are estimates, and an answer needs its room, as does thinking before it.
_MARGIN, _ANSWER_SHARE, _PART_SHARE = 0.10, 0.25, 0.10
_THINKING_SHARE, _MOST_THINKING = 0.125, 4_096
# Shares of what a prompt can hold, at most; a longer earlier summary is updated without the model.
_EARLIER_SHARE, _MEMORY_SHARE, _TRAIL_SHARE = 0.33, 0.10, 0.10
_SMALLEST_PART = 256
_PART_LABEL = 16
_SMALLEST_ANSWER = 64
_SMALLEST_ROOM = 256
_WINDOW_CORRECTIONS = 2


def summarise_with_model(calls: Calls, request: SummaryRequest) -> Summary:
    """Return a summary of the request, by the model as far as it answers within its limits, and without it beyond."""
    work = _Work(calls, request)
    sections = work.sections()
    return Summary(
        text=extractive_text(request) if sections is None else work.finished(sections),
        model_calls=calls.made,
        cost_usd=calls.cost_usd,
        usage=calls.usage,
        partly_extractive=work.partly_extractive,
        note="" if calls.error else work.note or calls.weakness,
        error=calls.error,
    )


def extractive_text(request: SummaryRequest) -> Redacted:
    """Return a summary of the request that needs no model."""
    text = extract_summary(
        request.messages,
        budget_tokens=request.budget_tokens,
        previous=request.previous,
        focus=request.focus,
        names_listed=request.names_listed,
    )
    return _harmless(text, request)


class _Work:
    """One request on its way through the model."""

    def __init__(self, calls: Calls, request: SummaryRequest) -> None:
        self._calls = calls
        self._request = request
        self._older = None if request.complete else outline(request.messages)
        self._turns = digest(request.messages, limit=None if request.complete else DEFAULT_LIMIT, older=self._older)
        self._code = self._turns[0].code if self._turns else ""
        self._sizes = sizes(self._turns)
        self._source_tokens = sum(self._sizes)
        self._previous = request.previous
        self._budget = self._asked_for()
        self._updated = False
        self.partly_extractive = False
        self.note = ""

    def _asked_for(self) -> int:
        """Return the length to ask for: the budget less the share of exact values, and clearly less than the source."""
        half = (self._source_tokens + count_text(self._previous)) // 2
        return max(_SMALLEST_ANSWER, min(int(self._request.budget_tokens * (1 - EXACT_SHARE)), half))

    def sections(self) -> Sections | None:
        """Return what the model made, with what was made without it; None when it made nothing."""
        made = self._made() if self._turns else None
        if made is None or not self._calls.answers:
            self.partly_extractive = True
            return None
        earlier = parse(self._previous)
        made = users_only(made, self._request.messages, earlier)
        return made if self._updated or not self._previous else merge(earlier, made)

    def finished(self, sections: Sections) -> Redacted:
        """Return the text of a summary with the exact values of the originals, within its budget."""
        budget = self._request.budget_tokens
        free = budget - count_text(render(sections))
        least, most = (int(budget * share) for share in (EXACT_SHARE, MOST_EXACT_SHARE))
        exact = trim(self._with_earlier(self._exact), max(least, min(free, most)))
        return _harmless(render(merge(sections, exact)), self._request)

    @cached_property
    def _exact(self) -> Sections:
        """What no summary may change: files with what happened to them, names, values, and errors as they stood."""
        turns = list(read_turns(self._request.messages, self._older.stop if self._older else 0))
        artifacts = collect_turns(turns, self._older, decisions=False)
        budget, names_listed = self._request.budget_tokens, self._request.names_listed
        return exact_sections(turns, artifacts, budget, names_listed=names_listed)

    def _with_earlier(self, found: Sections) -> Sections:
        """Return what is exact in the earlier summary, updated."""
        if not self._previous:
            return found
        earlier = parse(self._previous)
        return merge(Sections(files=earlier.files, critical=earlier.critical), found)

    def _trail(self, most: int) -> str:
        """Return what the model is told to keep, within the share of the budget that it has in the summary."""
        return redact(render(trim(self._exact, min(most, int(self._request.budget_tokens * MOST_EXACT_SHARE)))))

    def _made(self) -> Sections | None:
        """Do the work; a provider that names a smaller window is believed, and the work begins again."""
        for _ in range(_WINDOW_CORRECTIONS):
            try:
                return self._once()
            except ContextTooLongError as error:
                self._calls.shrink(error)
                refused = error
        self._calls.close(refused)
        return None

    def _once(self) -> Sections | None:
        """Summarise in one call when everything fits into it, else in parts; None when the one call brought nothing."""
        self.partly_extractive, self.note = False, ""
        task = self._last_task("summarise")
        room = self._room(task)
        if self._source_tokens <= room and len(chunks := packed(self._turns, room, self._sizes)) == 1:
            return self._ask(task, chunks[0].text, self._source_tokens)
        return self._joined(self._mapped())

    def _mapped(self) -> list[Sections]:
        """Summarise the parts, the newest first; what is beyond the limits is one part without the model."""
        largest = self._answer_tokens(_PART_SHARE)
        chunks = packed(self._turns, self._room(self._task("map", largest)), self._sizes)
        budget = self._part_budget(len(chunks), largest)
        parts: list[Sections] = []
        for number in range(len(chunks), len(chunks) - self._affordable(len(chunks), budget), -1):
            chunk = chunks[number - 1]
            task = self._task("map", budget, number=number, count=len(chunks))
            part = self._ask(task, chunk.text, chunk.tokens)
            if part is None and not self._calls.open:
                break
            parts.append(part or self._extracted(chunk.start, chunk.stop, budget))
        if len(parts) < len(chunks):
            rest = chunks[: len(chunks) - len(parts)]
            self.note = f"{len(rest)} of {len(chunks)} parts were summarised without the model: {self._calls.bounds}"
            parts.append(self._extracted(rest[0].start, rest[-1].stop, self._rest_budget(budget * len(rest))))
        return parts[::-1]

    def _joined(self, parts: list[Sections]) -> Sections:
        """Join neighbours until one summary is left; the call that makes it also updates the earlier one."""
        last = self._last_task("reduce")
        while len(parts) > 1 and self._calls.open:
            groups = _grouped(parts, self._room(last))
            budget = self._part_budget(len(groups), self._answer_tokens(_ANSWER_SHARE))
            task = last if len(groups) == 1 else self._task("reduce", budget)
            parts = [self._reduced(task, group) for group in groups]
        if len(parts) > 1:
            self.partly_extractive = True
            self.note = self.note or f"the parts were joined without the model: {self._calls.bounds}"
        return reduce(merge, parts)

    def _reduced(self, task: Task, parts: list[Sections]) -> Sections:
        if len(parts) == 1:
            return parts[0]
        material = "\n\n".join(
            f"[part {number} · {self._code}]\n{render(part)}" for number, part in enumerate(parts, 1)
        )
        answer = self._ask(replace(task, count=len(parts)), material, self._source_tokens)
        return answer or trim(reduce(merge, parts), task.budget)

    def _ask(self, task: Task, material: str, source_tokens: int) -> Sections | None:
        answer = self._calls.ask(
            prompt(task, material),
            max_tokens=self._output_tokens(task),
            read=partial(accepted, source_tokens=source_tokens + count_text(task.previous), budget=task.budget),
        )
        self._updated = self._updated or bool(answer and task.previous)
        self.partly_extractive = self.partly_extractive or answer is None
        return answer

    def _extracted(self, start: int, stop: int, budget: int) -> Sections:
        self.partly_extractive = True
        messages = self._request.messages[start:stop]
        return parse(extract_summary(messages, budget_tokens=budget, focus=self._request.focus))

    def _last_task(self, name: str) -> Task:
        """Return the task whose answer is the summary: it knows the earlier summary, the memory and the trail."""
        bare = self._task(name, self._answer_tokens(_ANSWER_SHARE))
        room = self._room(bare)
        fits = count_text(self._previous) <= room * _EARLIER_SHARE
        return replace(
            bare,
            previous=self._previous if fits else "",
            memory=cut(self._request.memory, int(room * _MEMORY_SHARE)),
            trail=self._trail(int(room * _TRAIL_SHARE)),
        )

    def _task(self, name: str, budget: int, *, number: int = 1, count: int = 1) -> Task:
        return Task(name=name, budget=budget, focus=self._request.focus, number=number, count=count, code=self._code)

    def _answer_tokens(self, share: float) -> int:
        return max(1, min(self._budget, int(self._calls.window * share)))

    def _output_tokens(self, task: Task) -> int:
        """Return `max_tokens` of a call: the answer, and what a model may think before it."""
        return task.budget + min(_MOST_THINKING, int(self._calls.window * _THINKING_SHARE))

    def _room(self, task: Task) -> int:
        """Return how many tokens of material the prompt of a task can hold."""
        window = self._calls.window
        room = int(window * (1 - _MARGIN)) - self._output_tokens(task) - count_messages(prompt(task, "-"))
        if room < _SMALLEST_ROOM:
            raise ContextTooLongError(f"a window of {window:,} tokens is too small to summarise in", limit=window)
        return room

    def _rest_budget(self, wanted: int) -> int:
        """Return the budget of what the model did not read: much, but so that it can be joined with the other parts."""
        room = self._room(self._last_task("reduce"))
        return max(1, min(wanted, self._request.budget_tokens, room // 2 - _PART_LABEL))

    def _part_budget(self, parts: int, largest: int) -> int:
        """Return the budget of a part, such that all of them fit into one prompt where that is possible."""
        room = self._room(self._last_task("reduce"))
        return max(1, min(largest, room // 2 - _PART_LABEL, max(_SMALLEST_PART, room // parts - _PART_LABEL)))

    def _affordable(self, chunks: int, budget: int) -> int:
        """Return how many chunks the model can be given so that calls are left to join the results."""
        fan_in = max(2, self._room(self._last_task("reduce")) // (budget + _PART_LABEL))
        left = self._calls.left
        for mapped in range(min(chunks, left), 1, -1):
            if mapped + _joins(mapped + (mapped < chunks), fan_in) <= left:
                return mapped
        return min(1, left)


def _joins(parts: int, fan_in: int) -> int:
    """Return how many calls join this many parts."""
    calls = 0
    while parts > 1:
        parts = -(-parts // fan_in)
        calls += parts
    return calls


def _grouped(parts: list[Sections], room: int) -> list[list[Sections]]:
    """Group neighbours that fit into one prompt, at least two by two."""
    groups: list[list[Sections]] = [[]]
    size = 0
    for part in parts:
        tokens = count_text(render(part)) + _PART_LABEL
        if len(groups[-1]) > 1 and size + tokens > room:
            groups.append([])
            size = 0
        groups[-1].append(part)
        size += tokens
    return groups


def _harmless(text: str, request: SummaryRequest) -> Redacted:
    """Return a summary that holds no secret and no command and keeps to its budget."""
    sections = parse(neutralised(redact(text)))
    return redact(render(trim(sections, request.budget_tokens, focus=request.focus.split())))
