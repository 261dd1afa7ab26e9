"""The built-in engine. `_fold` reads from top to bottom: plan what stays, summarise the rest, put both together.

The result is always a valid list with the newest user message, not longer than the input, and below the threshold, or
the report names what cannot be folded. The work is bounded, a failing summariser leaves the conversation usable, and
neither the caller's list nor what the model has not read yet is changed. A compaction that the threshold asks for is
not done when it would free little.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from leporello.compressor.budgets import ENOUGH_CONTENT, CompressorBudgets
from leporello.compressor.plan import FoldPlan, make_plan
from leporello.compressor.settings import CompressorSettings
from leporello.engine import Status, window_tokens
from leporello.events import Notice
from leporello.messages import Message, repair
from leporello.redact import redact, redact_messages
from leporello.summary import SummaryRequest
from leporello.summary.extract.name_list import LIST_SHARE, name_list, room_for_names, without_names
from leporello.summary.placement import Stripped, frame_tokens, is_marked, place, strip_summary
from leporello.summary.provenance import Written
from leporello.summary.refire import MODEL_WORTH, NOTHING_OLDER, Targets
from leporello.summary.sizes import Sizes
from leporello.summary.squeeze import Room
from leporello.summary.summarising_engine import SummarisingEngine
from leporello.tokens import count_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from leporello.llm import LLM
    from leporello.summary.run import CompactionRun

PROTECT_FIRST_N = 3
SHORTEST_WORTH_MAKING = 48  # tokens; a summary that must be shorter says nothing
CODEX_THRESHOLD = 0.85
CODEX_NOTICE = (
    "gpt-5.5 on Codex has a window of 272K: compaction now starts at 85 % of it instead of {share:.0%}. "
    "To keep your own threshold: leporello config set compression.codex_gpt55_autoraise false"
)


class ContextCompressor(SummarisingEngine):
    """Keep the beginning and the newest turns, and replace what is between them by one summary.

    `config` is a `leporello.Config`, its `compression` block, or a mapping of either; `llm=None` means that summaries
    are made without a model. Nothing is read from files or the environment.
    """

    def __init__(
        self,
        context_length: int = 0,
        *,
        config: Any = None,
        llm: LLM | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = CompressorSettings.of(config)
        settings = self._settings.compression
        super().__init__(
            llm,
            max_calls=settings.max_calls,
            deadline_seconds=settings.deadline_seconds,
            timeout_seconds=self._settings.timeout_seconds,
            answer_tokens=self._settings.answer_tokens,
            clock=clock,
        )
        self._written = Written()
        self._codex_notice_shown = False
        self.protect_first_n = PROTECT_FIRST_N
        self.protect_last_n: int = settings.protect_last_n
        self.threshold_percent: float = settings.threshold
        self._set_window(window_tokens(context_length))

    @property
    def name(self) -> str:
        """The name that no plugin can take."""
        return "compressor"

    def on_session_start(self, session_id: str, **kwargs: Any) -> None:
        """Begin or resume a conversation."""
        self._session_id = session_id
        self._last_fold.forget()

    def update_model(
        self,
        model: str,
        context_length: int,
        base_url: str = "",
        api_key: str = "",
        provider: str = "",
        api_mode: str = "",
    ) -> None:
        """Take over a model's window; a raise made for the model before is gone."""
        self.threshold_percent = self._settings.compression.threshold
        if self._settings.compression.codex_gpt55_autoraise and _is_codex_gpt55(model, provider):
            self._raise_for_codex()
        self._set_window(window_tokens(context_length))

    def has_content_to_compress(self, messages: list[Message]) -> bool:
        """Tell whether there is anything between head and tail."""
        anything = Targets(goal=None, most=None, least=1)
        return bool(self._plan(strip_summary(list(repair(messages).messages), self._written), Sizes(), anything).source)

    def note_written(self, messages: Iterable[Message]) -> None:
        """Take a host's word that an engine wrote these messages: a summary among them is updated and replaced."""
        self._written.note(messages)

    def clone_for_agent(self) -> ContextCompressor:
        """Return a compressor with the same settings and model for another conversation."""
        clone = ContextCompressor(
            self.context_length, config=self._settings, llm=self._summariser.llm, clock=self._clock
        )
        clone.on_event = self.on_event
        return clone

    def _fold(self, run: CompactionRun, messages: list[Message], focus: str, memory: str) -> list[Message]:
        """Fold the middle of the conversation into one summary, which replaces an earlier one."""
        valid = list(repair(messages).messages)
        earlier = strip_summary(valid, self._written)
        previous = without_names(earlier.previous)

        plan = self._plan(earlier, run.sizes, run.targets)
        budget = self._summary_budget(plan, run, previous)
        if budget < SHORTEST_WORTH_MAKING and run.asked:
            plan = self._plan(earlier, run.sizes, run.targets, all_that_can_be=True)
            budget = self._summary_budget(plan, run, previous)
        if budget < SHORTEST_WORTH_MAKING:
            nothing = NOTHING_OLDER if run.asked else "nothing between the first and the newest messages to fold"
            return self._finish(run, valid, "unchanged", run.targets.not_worth_it if plan.source else nothing)

        source = redact_messages(plan.source)
        summary = self._summariser.summarise(
            SummaryRequest(
                messages=source,
                budget_tokens=budget,
                previous=redact(previous),
                focus=redact(focus),
                memory=redact(memory),
            ),
            max_calls=None if run.tokens - plan.kept_tokens >= run.tokens * MODEL_WORTH else 0,
        )

        placed = place(plan.head, summary.text, plan.tail, done_for_newest=plan.done_for_newest)
        room = room_for_names([summary.text], run.sizes.total(placed), run.tokens, run.targets)
        if room and self._settings.compression.masked_zone:
            text = f"{summary.text}\n\n{name_list(source, redact(earlier.previous), placed, room)}"
            placed = place(plan.head, text, plan.tail, done_for_newest=plan.done_for_newest)
        result = list(repair(placed).messages)
        self._written.note(message for message in placed if is_marked(message) and message not in valid)
        freed = run.tokens - run.sizes.total(result)
        if freed < run.targets.least:
            return self._finish(run, valid, "refused", run.targets.not_worth_it, summary)
        self._last_fold.remember(messages, result, freed)
        status: Status = "fallback" if summary.fallback else "folded"
        shortened = set(map(id, plan.cut))
        cut = [index for index, message in enumerate(result) if id(message) in shortened]
        return self._finish(run, result, status, summary.fallback or summary.note, summary, cut=cut)

    def _set_window(self, context_length: int) -> None:
        self._budgets = CompressorBudgets.of(
            context_length, threshold=self.threshold_percent, target_ratio=self._settings.compression.target_ratio
        )
        self.context_length = context_length
        self.threshold_tokens: int = self._budgets.threshold_tokens
        self.tail_token_budget: int = self._budgets.tail_token_budget
        self.max_summary_tokens: int = self._budgets.max_summary_tokens
        self._fires_at = 0

    def _raise_for_codex(self) -> None:
        if self._settings.compression.threshold >= CODEX_THRESHOLD:
            return
        self.threshold_percent = CODEX_THRESHOLD
        if not self._codex_notice_shown:
            self._codex_notice_shown = True
            self.emit(
                Notice(
                    session_id=self._session_id, text=CODEX_NOTICE.format(share=self._settings.compression.threshold)
                )
            )

    def _plan(self, earlier: Stripped, sizes: Sizes, wanted: Targets, *, all_that_can_be: bool = False) -> FoldPlan:
        """Plan head and tail; an earlier summary is never part of the head, nor anything that came after it.

        With `all_that_can_be` only the system prompt, the newest user message and the newest messages that must stay
        are kept.
        """
        first_n = self.protect_first_n if earlier.position is None else min(self.protect_first_n, earlier.position)
        return make_plan(
            earlier.messages,
            sizes,
            protect_first_n=0 if all_that_can_be else first_n,
            protect_last_n=1 if all_that_can_be else self.protect_last_n,
            tail_budget=0 if all_that_can_be else self.tail_token_budget,
            zone_budget=0 if all_that_can_be else int(self.threshold_tokens * self._settings.compression.masked_zone),
            room=self._room(wanted),
        )

    def _room(self, wanted: Targets) -> Room | None:
        """Return the room for what is kept: beside the largest summary with its names, and beside the smallest."""
        if wanted.goal is None or wanted.most is None:
            return None
        names = int(wanted.goal * LIST_SHARE) if self._settings.compression.masked_zone else 0
        return Room(
            wanted=max(0, wanted.goal - self.max_summary_tokens - names - frame_tokens()),
            most=max(0, wanted.most - SHORTEST_WORTH_MAKING - frame_tokens()),
            names=names,
        )

    def _summary_budget(self, plan: FoldPlan, run: CompactionRun, previous: str) -> int:
        """Return the summary's budget: what the numbers allow, and so much less than what it replaces as is worth it.

        0 where only a much too short summary would leave enough free.
        """
        if not plan.source:
            return 0
        replaced = run.tokens - plan.kept_tokens
        # Much more than enough needs no count of its own.
        content = replaced if replaced > 2 * ENOUGH_CONTENT else run.sizes.total(plan.source) + count_text(previous)
        usual = self._budgets.summary_tokens(content) + plan.spare
        budget = min(usual, replaced - frame_tokens() - run.targets.least)
        if run.targets.most is not None:
            budget = min(budget, max(SHORTEST_WORTH_MAKING, run.targets.most - plan.kept_tokens - frame_tokens()))
        return 0 if run.targets.is_optional and budget < usual // 2 else budget


def _is_codex_gpt55(model: str, provider: str) -> bool:
    return provider == "openai-codex" and model.lower().rpartition("/")[2] == "gpt-5.5"
