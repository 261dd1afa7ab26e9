"""The lossless engine: the window is a derived view of a branch in the store.

Under a session the session stores what is said and hands over its branch; `compress()` proposes a window. A host that
has no session hands over lists: they are stored first, and the window is committed at once.

What it keeps, whatever happens: a valid list (V1), the newest user message (V2), fewer tokens or no change (V3), a list
below the threshold or the names of what cannot be folded (V4), every message (V5), a usable conversation when the
summariser or the store fails (V6), bounded work (V7), a prefix that changes only when it is folded (V8), the caller's
list as it was (V10).
"""

from __future__ import annotations

import time
from copy import copy
from dataclasses import asdict
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from leporello.engine import CompactionReport, ContextEngine, normalise_usage, window_tokens
from leporello.errors import StaleWindowError, StoreError
from leporello.events import CompactionFinished, CompactionStarted, Notice, SummaryFellBack
from leporello.lcm.artifacts import Trail
from leporello.lcm.background import pool
from leporello.lcm.compaction import Compaction, Outcome, Run
from leporello.lcm.host_lists import HostLists, OwnStores
from leporello.lcm.preparing import Preparing
from leporello.lcm.settings import Settings
from leporello.lcm.status import status
from leporello.lcm.threshold import Meter, budgets, floor_share, price_shares
from leporello.lcm.tools import SCHEMAS, Toolbox
from leporello.lcm.view import choose_tail
from leporello.lcm.window import Held
from leporello.lcm.writing import Allowance, Writer
from leporello.messages import Message, leading_systems, repair, unread_start
from leporello.redact import redact
from leporello.store import FOLD, Branch, Request
from leporello.summary import Summariser
from leporello.summary.brake import fires_at, targets
from leporello.summary.last_fold import LastFold
from leporello.summary.sizes import Sizes, unfoldable

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from leporello.lcm.background import Executor
    from leporello.lcm.threshold import Budgets
    from leporello.llm import LLM
    from leporello.store import Store

DRAIN_SECONDS = 5.0
TRAILED_TOGETHER = 32  # messages


class LCMEngine(ContextEngine):
    """Keep every message in a store, and fold the older ones into a DAG of summaries that can be unfolded again.

    `config` is a `leporello.Config`, its `lcm` block, or a mapping of either; `llm=None` means that summaries are made
    without a model. `store` is a path, an address or a Store; None keeps everything in memory. Nothing is read,
    opened or created before the first message.
    """

    works_on_branch = True

    def __init__(
        self,
        context_length: int = 0,
        *,
        config: Any = None,
        llm: LLM | None = None,
        store: Store | str | os.PathLike[str] | None = None,
        clock: Callable[[], float] = time.monotonic,
        executor: Executor | None = None,
    ) -> None:
        self._settings = Settings.of(config)
        self._clock = clock
        self._executor = executor
        self._summariser = Summariser(
            llm,
            clock=clock,
            max_calls=self._settings.lcm.max_calls,
            deadline_seconds=self._settings.lcm.deadline_seconds,
            timeout_seconds=self._settings.timeout_seconds,
        )
        self._stores = OwnStores(self._settings, store if store is not None else self._settings.lcm.store)
        self._model, self._provider = "", ""
        self._last_fold = LastFold(self._repaired)
        self._begin_with_lists(_private_name())
        self._set_window(window_tokens(context_length))

    @property
    def name(self) -> str:
        """The name in `context.engine`."""
        return "lcm"

    @property
    def store(self) -> Store:
        """The store in use."""
        return self._branch.store

    @property
    def conversation(self) -> str:
        """The conversation in the store: the session's id, or a private name before a session has started."""
        return self._branch.conversation

    @property
    def branch(self) -> Branch:
        """The branch that is folded: the session's, or the head of a conversation whose lists are handed over."""
        return self._branch

    def on_session_start(
        self, session_id: str, *, branch: Branch | None = None, owner: str | None = None, **kwargs: Any
    ) -> None:
        """Begin or resume a conversation; `owner` says whom it belongs to.

        `branch` is that of a session, which stores what is said; an engine with another store keeps to its own.
        """
        if branch is not None and self._stores.gives_way_to(branch):
            self._begin_conversation(branch, lists=None)
        else:
            self._begin_with_lists(session_id, owner or "")

    def on_session_end(self, session_id: str, messages: list[Message]) -> None:
        """Store what is new, let the work in the background finish for a while, and mark the end."""
        try:
            if self._lists is not None:
                self._lists.take(self._lists.readable(messages))
            self._preparing.drain(DRAIN_SECONDS)
            self._trail.catch_up()
            if self._lists is not None:
                self._lists.end()
        except StoreError as error:
            self._tell(error)

    def on_session_reset(self) -> None:
        """Forget the conversation that ended; what it stored stays."""
        super().on_session_reset()
        self.last_compaction = None
        self._begin_with_lists(_private_name())
        self._set_window(self.context_length)

    def on_turn_complete(self, messages: list[Message], usage: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Store what the turn added."""
        self._store_new(messages)

    def update_model(
        self,
        model: str,
        context_length: int,
        base_url: str = "",
        api_key: str = "",
        provider: str = "",
        api_mode: str = "",
    ) -> None:
        """Take over a model's window and prices."""
        self._model, self._provider = model, provider
        self._set_window(window_tokens(context_length))

    def use_model(self, llm: LLM | None) -> None:
        """Make summaries with another model or key from now on; what went wrong with the one before is forgotten."""
        self._summariser.configure(llm)

    def update_from_response(self, usage: dict[str, Any]) -> None:
        """Take the provider's count; an empty one says nothing and changes nothing."""
        counted = normalise_usage(usage)
        if not counted["total_tokens"]:
            return
        self.last_prompt_tokens = counted["prompt_tokens"]
        self.last_completion_tokens = counted["completion_tokens"]
        self.last_total_tokens = counted["total_tokens"]
        self._meter.observe(counted["prompt_tokens"])
        self._set_budgets()

    def should_compress_preflight(self, messages: list[Message]) -> bool:
        """Store what is new, and prepare leaves in the background when the window is filling; never fires by itself."""
        if self._store_new(messages):
            self._work_ahead()
        return False

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Fire at the threshold, and after a fold only when the window has grown again."""
        tokens = self.last_prompt_tokens if prompt_tokens is None else prompt_tokens
        self._asked_about = max(tokens, 0)
        self._fired = 0 < self.threshold_tokens <= tokens and tokens >= self._fires_at
        return self._fired

    def has_content_to_compress(self, messages: list[Message]) -> bool:
        """Tell whether anything stands before the tail."""
        valid = repair(messages).messages
        held = [Held(message=message, ids=()) for message in valid[leading_systems(valid) :]]
        unread = unread_start([one.message for one in held])
        tail = choose_tail(held, Sizes(), unread=unread, budget=self._budgets.tail, room=None)
        return len(tail.kept) < len(held)

    def compress(
        self,
        messages: list[Message],
        current_tokens: int | None = None,
        focus_topic: str | None = None,
        force: bool = False,
        memory_context: str = "",
    ) -> list[Message]:
        """Fold everything before the tail into the DAG and return the window.

        A fold that the window asked for does not wait for the model when leaves are prepared in the background; one
        that somebody asked for does, within its limits.
        """
        again = self._last_fold.reapplied(messages)
        if again is not None:
            self._store_new(messages)
            self._last_fold.tell(self, self.conversation)
            return self._last_fold.compress(
                again,
                self,
                current_tokens,
                self._asked_about,
                focus_topic=focus_topic,
                force=force,
                memory_context=memory_context,
            )
        run = self._begin(messages, current_tokens, focus_topic or "", memory_context, forced=force)
        compaction = Compaction(self._branch, self._settings.lcm, self._budgets)
        try:
            if self._lists is None:
                outcome = self._propose(compaction, messages, run)
            else:
                outcome = self._commit(compaction, self._lists, messages, run)
        except StoreError as error:
            self._tell(error)
            reason = f"the store could not be used: {error}"
            outcome = Outcome(messages=self._repaired(messages), status="refused", reason=reason)
        if outcome.folded:
            self._plans_at = 0
            self._meter.folded(self.threshold_tokens)
        return self._finish(run, outcome)

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Return the tools that search and unfold the history."""
        return [dict(schema) for schema in SCHEMAS]

    def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Answer a tool call; what the live list holds is stored first, so that it can be found."""
        messages = kwargs.get("messages")
        if isinstance(messages, list):
            self._store_new(messages)
        return self._toolbox.call(name, args)

    def get_status(self) -> dict[str, Any]:
        """Return the counters, the inputs of the threshold, and how the summariser is doing."""
        return {
            **super().get_status(),
            "conversation": self.conversation,
            "threshold": self._threshold_inputs(),
            "summariser": self._summariser.status(),
        }

    def clone_for_agent(self) -> LCMEngine:
        """Return an engine with the same settings, model and store for another conversation."""
        clone = LCMEngine(
            self.context_length,
            config=self._settings,
            llm=self._summariser.llm,
            store=self._stores.address,
            clock=self._clock,
            executor=self._executor,
        )
        clone.on_event = self.on_event
        return clone

    def close(self) -> None:
        """Let the work in the background finish for a while, and give the store back; the next use opens it again."""
        self._preparing.drain(DRAIN_SECONDS)
        self._executor_in_use().drain(self._trail.name, DRAIN_SECONDS)
        self._stores.close()

    def _begin_with_lists(self, conversation: str, owner: str = "") -> None:
        """Begin a conversation whose host hands over lists; nothing is opened before its first message."""
        branch = Branch(lambda: self._stores.of(conversation), conversation, owner)
        self._begin_conversation(branch, HostLists(branch))

    def _begin_conversation(self, branch: Branch, lists: HostLists | None) -> None:
        self._branch, self._lists = branch, lists
        self._last_fold.forget()
        self._meter = Meter(floor_share(self._settings.lcm), self._settings.lcm.masked_zone)
        self._fires_at = 0
        self._asked_about = 0
        self._fired = False
        self._plans_at = 0
        self._untrailed = self._listed = 0
        self._told = ""
        self._preparing = Preparing(branch, self._summariser, self._settings.lcm, self._clock, self._executor_in_use)
        self._trail = Trail(lambda: branch.store, branch.conversation, branch.owner)
        self._toolbox = Toolbox(branch, self._settings.lcm, self._summariser, self._trail, self._status)

    def go_on_from(self, parent: LCMEngine) -> None:
        """Go on on a fork from where the engine of its parent stands: its last fold is not made anew at once."""
        self._fires_at = parent._fires_at
        self._meter = copy(parent._meter)
        self.last_prompt_tokens = parent.last_prompt_tokens

    def _set_window(self, context_length: int) -> None:
        self.context_length = context_length
        self._fires_at = 0
        self._set_budgets()

    def _set_budgets(self) -> None:
        inputs = self._meter.inputs(price_shares(self._model, self._provider))
        self._inputs = inputs
        self._budgets: Budgets = budgets(self._settings.lcm, self.context_length, inputs)
        self.threshold_tokens = self._budgets.threshold if self.context_length else 0
        self.threshold_percent = self._budgets.threshold / self.context_length if self.context_length else 0.0

    @property
    def _works_in_background(self) -> bool:
        return self._settings.lcm.background and self._summariser.llm is not None

    def _executor_in_use(self) -> Executor:
        return self._executor if self._executor is not None else pool()

    def _work_ahead(self) -> None:
        """Have done in the background what can be: the trail, and above the soft mark the next nodes.

        Nodes are planned anew only when the window has grown by what the next leaf lacks.
        """
        if not self._settings.lcm.background:
            return
        if self._untrailed >= TRAILED_TOGETHER:
            self._untrailed = 0
            self._executor_in_use().submit(self._trail.catch_up, self._trail.name)
        if self._summariser.llm is None or self.last_prompt_tokens < self._budgets.soft:
            return
        if self.last_prompt_tokens < self._plans_at:
            self._preparing.go_on()
            return
        try:
            self._plans_at = self.last_prompt_tokens + self._preparing.plan(self._budgets)
        except StoreError as error:
            self._tell(error)

    def _store_new(self, messages: list[Message]) -> bool:
        """Store what is new in a host's list; a store that cannot be used is reported once, and the host goes on.

        Under a session everything is stored already.
        """
        try:
            new = len(messages) - self._listed if self._lists is None else self._taken(self._lists, messages)
        except StoreError as error:
            self._tell(error)
            return False
        self._untrailed += max(0, new)
        self._listed = len(messages)
        self._told = ""
        return True

    def _taken(self, lists: HostLists, messages: list[Message]) -> int:
        """Store what is new in a list, and return how many messages that were."""
        return len(lists.take(lists.readable(messages)).added)

    def _tell(self, error: StoreError) -> None:
        """Report once that the store cannot be used; a session does so itself."""
        if self._lists is not None and str(error) != self._told:
            self._told = str(error)
            text = f"the conversation is not stored at the moment: {error}"
            self.emit(Notice(session_id=self.conversation, text=text))

    def _begin(
        self, messages: list[Message], current_tokens: int | None, focus: str, memory: str, *, forced: bool
    ) -> Run:
        waits = not self._fired or not self._works_in_background or bool(focus) or forced
        self._fired = False
        sizes = Sizes()
        tokens = sizes.total(messages)
        prompt_tokens = max(current_tokens or 0, self._asked_about, tokens)
        settings = self._settings.lcm
        allowance = Allowance(self._clock, max_calls=settings.max_calls, seconds=settings.deadline_seconds)
        run = Run(
            sizes=sizes,
            messages=len(messages),
            tokens=tokens,
            prompt_tokens=prompt_tokens,
            targets=targets(
                tokens,
                prompt_tokens,
                threshold=self.threshold_tokens,
                window=self.context_length,
                answer=self._settings.answer_tokens,
                asked=forced or bool(focus),
            ),
            started=self._clock(),
            allowance=allowance,
            writer=Writer(self._summariser, allowance, use_model=waits, focus=focus, memory=memory),
            waits=waits,
        )
        reason = (
            f"asked for, with focus on {redact(focus)}" if focus else "asked for" if forced else "the window is filling"
        )
        self.emit(CompactionStarted(session_id=self.conversation, reason=reason, messages=len(messages), tokens=tokens))
        return run

    def _propose(self, compaction: Compaction, messages: list[Message], run: Run) -> Outcome:
        """Compact the branch of a session, which commits the window or drops it."""
        sources = [tuple(filter(None, ids)) for ids in self._branch.sources]
        if len(sources) != len(messages):
            raise StoreError("the list is not the one of the conversation that this engine has begun.")
        if any(None in ids for ids in self._branch.sources):
            raise StoreError("not everything that was said is stored yet.")
        outcome = compaction.fold(messages, sources, run)
        if outcome.proposal is not None:
            self._branch.propose(outcome.proposal)
        return outcome

    def _commit(self, compaction: Compaction, lists: HostLists, messages: list[Message], run: Run) -> Outcome:
        """Compact a host's list and commit the window; when it was replaced meanwhile, once more from there."""
        messages = lists.readable(messages, full=True)
        try:
            outcome = self._committed(compaction, lists, messages, run)
        except StaleWindowError:
            outcome = self._committed(compaction, lists, messages, run)
        lists.handed_out(outcome.origins)
        if outcome.folded:
            self._last_fold.remember(messages, outcome.messages, run.tokens - run.sizes.total(outcome.messages))
        return outcome

    def _committed(self, compaction: Compaction, lists: HostLists, messages: list[Message], run: Run) -> Outcome:
        ingested = lists.take(messages, full=True)
        outcome = compaction.fold(messages, [ingested.origins(index) for index in range(len(messages))], run)
        if outcome.proposal is not None:
            row = Request(
                reason=FOLD,
                keep=0,
                added=(),
                cost_usd=run.allowance.cost_usd,
                report={
                    "tokens_before": run.tokens,
                    "tokens_after": run.sizes.total(outcome.messages),
                    "model_calls": run.allowance.calls,
                },
            )
            self._branch.commit(outcome.proposal, row)
        return outcome

    def _repaired(self, messages: list[Message]) -> list[Message]:
        """Return a valid list without the store's help; what had to be changed is noted there later."""
        if self._lists is None:
            return messages
        given = self._lists.readable(messages, full=True)
        valid = list(repair(given).messages)
        self._lists.owe(given, valid)
        return valid

    def _finish(self, run: Run, outcome: Outcome) -> list[Message]:
        """Report a compaction, set the brake, and hand over the result."""
        result = outcome.messages
        report = CompactionReport(
            status=outcome.status,
            reason=outcome.reason,
            tokens_before=run.tokens,
            tokens_after=run.sizes.total(result),
            messages_before=run.messages,
            messages_after=len(result),
            model_calls=run.allowance.calls,
            seconds=self._clock() - run.started,
            cost_usd=run.allowance.cost_usd,
            unfoldable=unfoldable(result, run.sizes, run.targets.goal, cut=outcome.cut),
        )
        self.last_compaction = report
        self._asked_about = 0
        self.compression_count += outcome.folded
        self._fires_at = fires_at(
            report,
            run.prompt_tokens,
            threshold=self.threshold_tokens,
            window=self.context_length,
            answer=self._settings.answer_tokens,
        )
        if run.allowance.fallback:
            allowance = run.allowance
            self.emit(
                SummaryFellBack(session_id=self.conversation, error=allowance.fallback, retry_in=allowance.retry_in)
            )
        fields = {key: value for key, value in asdict(report).items() if key != "unfoldable"}
        self.emit(CompactionFinished(session_id=self.conversation, **fields))
        return list(result)

    def _threshold_inputs(self) -> dict[str, Any]:
        return {
            "mode": self._settings.lcm.threshold,
            "base": self._inputs.base,
            "floor": self._inputs.floor,
            "growth": round(self._inputs.growth, 1),
            "rewrite": round(self._inputs.rewrite),
            "read_price": self._inputs.read_price,
            "held_price": round(self._inputs.held_price, 4),
            "excess": self._inputs.excess,
            "soft_tokens": self._budgets.soft,
        }

    def _status(self) -> dict[str, Any]:
        return status(self._branch, self.get_status())


def _private_name() -> str:
    return f"private-{uuid4().hex[:12]}"
