"""The lossless engine: the window is a view of a branch in the store.

With a session, the session stores the messages and passes its branch; `compress()` proposes a window. A host without a
session passes lists: the engine stores their messages first, and commits the window itself (`host_lists.py`).
"""

from __future__ import annotations

import time
from copy import copy
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from leporello.engine import normalise_usage, window_tokens
from leporello.errors import StoreError
from leporello.events import Notice
from leporello.lcm.artifacts import ArtifactTrail
from leporello.lcm.background import pool
from leporello.lcm.compaction import Compaction, Outcome
from leporello.lcm.host_lists import HostLists, OwnStores
from leporello.lcm.node_writer import CallBudget, NodeWriter
from leporello.lcm.preparation import NodePreparation
from leporello.lcm.settings import LCMSettings
from leporello.lcm.status import status
from leporello.lcm.threshold import UsageMeter, budgets, floor_share, price_shares
from leporello.lcm.tools import SCHEMAS, LCMTools
from leporello.lcm.view import KeptMessage, choose_tail
from leporello.messages import Message, leading_systems, repair, unread_start
from leporello.store import Branch
from leporello.summary.sizes import Sizes
from leporello.summary.summarising_engine import SummarisingEngine

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from leporello.lcm.background import Executor
    from leporello.lcm.threshold import LCMBudgets
    from leporello.llm import LLM
    from leporello.store import Store
    from leporello.summary.run import CompactionRun

DRAIN_SECONDS = 5.0
GATHER_EVERY = 32  # messages


class LCMEngine(SummarisingEngine):
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
        self._settings = LCMSettings.of(config)
        super().__init__(
            llm,
            max_calls=self._settings.lcm.max_calls,
            deadline_seconds=self._settings.lcm.deadline_seconds,
            timeout_seconds=self._settings.timeout_seconds,
            answer_tokens=self._settings.answer_tokens,
            clock=clock,
        )
        self._executor = pool() if executor is None else executor
        self._stores = OwnStores(self._settings, store if store is not None else self._settings.lcm.store)
        self._model, self._provider = "", ""
        self._route: dict[str, str] = {}
        self._begin_with_lists()
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
        """The name of the conversation in the store: the session's id, or a private name before a session starts."""
        return self._branch.conversation

    @property
    def branch(self) -> Branch:
        """The branch that is folded: the session's, or the head of a host's conversation."""
        return self._branch

    def on_session_start(
        self, session_id: str, *, branch: Branch | None = None, owner: str | None = None, **kwargs: Any
    ) -> None:
        """Begin or resume a conversation of an owner.

        `branch` is that of a session; an engine that was given another store uses that instead.
        """
        if branch is not None and self._stores.accepts(branch):
            self._begin_conversation(branch, lists=None)
        else:
            self._begin_with_lists(session_id, owner or "")

    def on_session_end(self, session_id: str, messages: list[Message]) -> None:
        """Store new messages, wait a while for the background work, and mark the conversation as ended."""
        try:
            if self._lists is not None:
                self._lists.ingest(messages)
            self._preparation.drain(DRAIN_SECONDS)
            self._trail.catch_up()
            if self._lists is not None:
                self._lists.end()
        except StoreError as error:
            self._report(error)

    def on_session_reset(self) -> None:
        """Begin another conversation; the messages of the last one stay stored."""
        super().on_session_reset()
        self._begin_with_lists()
        self._set_window(self.context_length)

    def on_turn_complete(self, messages: list[Message], usage: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Store the messages that the turn added."""
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
        self._route = {"model": model, "provider": provider, "base_url": base_url}
        self._preparation.route = self._route
        self._set_window(window_tokens(context_length))

    def update_from_response(self, usage: dict[str, Any]) -> None:
        """Take the provider's count; an empty one says nothing and changes nothing."""
        super().update_from_response(usage)
        if normalise_usage(usage)["total_tokens"]:
            self._meter.observe(self.last_prompt_tokens)
            self._set_budgets()

    def should_compress_preflight(self, messages: list[Message]) -> bool:
        """Store new messages, and prepare leaves in the background when the window is filling; returns False."""
        if self._store_new(messages):
            self._prepare_in_background()
        return False

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Fire at the threshold, and after a fold only when the window has grown again."""
        self._fired = super().should_compress(prompt_tokens)
        if self._lists is None and not self._fired and self._asked_about > self.last_prompt_tokens:
            self._prepare_in_background(self._asked_about)  # another process may have had the turns before this one
        return self._fired

    def has_content_to_compress(self, messages: list[Message]) -> bool:
        """Tell whether anything stands before the tail."""
        valid = repair(messages).messages
        held = [KeptMessage(message=message, ids=()) for message in valid[leading_systems(valid) :]]
        unread = unread_start([one.message for one in held])
        tail = choose_tail(held, Sizes(), unread=unread, budget=self._budgets.tail)
        return len(tail.kept) < len(held)

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """Return the tools that search and unfold the history."""
        return [dict(schema) for schema in SCHEMAS]

    def handle_tool_call(self, name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Answer a tool call; new messages of the live list are stored first, so that they can be found."""
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
        """Wait a while for the background work, and close the store; the next use opens it again."""
        self._preparation.drain(DRAIN_SECONDS)
        self._executor.drain(self._trail.name, DRAIN_SECONDS)
        self._stores.close()

    def _fold(self, run: CompactionRun, messages: list[Message], focus: str, memory: str) -> list[Message]:
        """Fold everything before the tail into the DAG, and return the window.

        A fold at the threshold does not wait for the model when leaves are prepared in the background; one that a
        person asked for does, within its limits.
        """
        writer = self._writer(focus, memory, asked=run.asked)
        compaction = Compaction(self._branch, self._budgets, self._settings.lcm.fan_in, run, writer)
        try:
            if self._lists is None:
                outcome = self._propose(compaction, messages)
            else:
                given = self._lists.readable(messages, full=True)
                outcome = self._lists.compact(compaction, given)
                if outcome.folded:
                    self._last_fold.remember(given, outcome.messages, outcome.freed)
        except StoreError as error:
            self._report(error)
            reason = f"the store could not be used: {error}"
            outcome = Outcome(messages=self._repaired(messages), status="refused", reason=reason)
        if outcome.folded:
            self._next_plan_at = 0
            self._meter.folded(self.threshold_tokens)
        return self._finish(run, outcome.messages, outcome.status, outcome.reason, writer.call_budget, cut=outcome.cut)

    def _note_unused(self, messages: list[Message]) -> None:
        """Store what is new in a list from before the last fold."""
        self._store_new(messages)
        super()._note_unused(messages)

    def _begin_with_lists(self, session_id: str | None = None, owner: str = "") -> None:
        """Begin a conversation whose host passes lists; the store is opened at its first message."""
        conversation = f"private-{uuid4().hex[:12]}" if session_id is None else session_id
        branch = Branch(lambda: self._stores.of(conversation), conversation, owner)
        self._begin_conversation(branch, HostLists(branch))

    def _begin_conversation(self, branch: Branch, lists: HostLists | None) -> None:
        self._branch, self._lists = branch, lists
        self._session_id = branch.conversation
        self._forget_folds()
        self._meter = UsageMeter(floor_share(self._settings.lcm), self._settings.lcm.masked_zone)
        self._fired = False
        self._next_plan_at = 0
        self._ungathered = self._listed = 0
        self._reported = ""
        self._preparation = NodePreparation(branch, self._summariser, self._settings.lcm, self._clock, self._executor)
        self._preparation.route = self._route
        self._trail = ArtifactTrail(lambda: branch.store, branch.conversation, branch.owner)
        self._toolbox = LCMTools(branch, self._settings.lcm, self._summariser, self._trail, self._status)

    def go_on_from(self, parent: LCMEngine) -> None:
        """Take over the token counts of the parent's engine on a fork, so that it is not folded again at once."""
        super().go_on_from(parent)
        self._meter = copy(parent._meter)

    def _set_window(self, context_length: int) -> None:
        self.context_length = context_length
        self._fires_at = 0
        self._set_budgets()

    def _set_budgets(self) -> None:
        self._inputs = self._meter.inputs(price_shares(self._model, self._provider, self._settings.own_prices))
        self._budgets: LCMBudgets = budgets(self._settings.lcm, self.context_length, self._inputs)
        self.threshold_tokens: int = self._budgets.threshold if self.context_length else 0
        self.threshold_percent: float = self._budgets.threshold / self.context_length if self.context_length else 0.0

    def _prepare_in_background(self, tokens: int = 0) -> None:
        """Gather artifacts, and above the soft threshold prepare the next nodes, in the background.

        Nodes are planned again when the window has grown enough for the next leaf.
        """
        if not self._settings.lcm.background:
            return
        if self._ungathered >= GATHER_EVERY:
            self._ungathered = 0
            self._executor.submit(self._trail.catch_up, self._trail.name)
        size = max(tokens, self.last_prompt_tokens)
        if self._summariser.llm is None or size < self._budgets.soft:
            return
        if size < self._next_plan_at:
            self._preparation.go_on()
            return
        try:
            self._next_plan_at = size + self._preparation.plan(self._budgets)
        except StoreError as error:
            self._report(error)

    def _store_new(self, messages: list[Message]) -> bool:
        """Store the new messages of a host's list; False, with a notice, when the store cannot be used.

        With a session they are stored already.
        """
        try:
            new = len(messages) - self._listed if self._lists is None else len(self._lists.ingest(messages).added)
        except StoreError as error:
            self._report(error)
            return False
        self._ungathered += max(0, new)
        self._listed = len(messages)
        self._reported = ""
        return True

    def _report(self, error: StoreError) -> None:
        """Emit a notice that the store cannot be used, once; a session does so itself."""
        if self._lists is not None and str(error) != self._reported:
            self._reported = str(error)
            text = f"the conversation is not stored at the moment: {error}"
            self.emit(Notice(session_id=self.conversation, text=text))

    def _writer(self, focus: str, memory: str, *, asked: bool) -> NodeWriter:
        """Return the writer of the nodes; at the threshold it does not call the model if nodes are prepared."""
        settings = self._settings.lcm
        prepares = settings.background and self._summariser.llm is not None
        waits = asked or not (self._fired and prepares)
        self._fired = False
        call_budget = CallBudget(self._clock, max_calls=settings.max_calls, seconds=settings.deadline_seconds)
        return NodeWriter(self._summariser, call_budget, use_model=waits, focus=focus, memory=memory)

    def _propose(self, compaction: Compaction, messages: list[Message]) -> Outcome:
        """Compact the branch of a session, and propose the window to it."""
        sources = [tuple(filter(None, ids)) for ids in self._branch.sources]
        if len(sources) != len(messages):
            raise StoreError("the list is not the one of the conversation that this engine has begun.")
        if any(None in ids for ids in self._branch.sources):
            raise StoreError("not everything that was said is stored yet.")
        outcome = compaction.fold(messages, sources)
        if outcome.proposal is not None:
            self._branch.propose(outcome.proposal)
        return outcome

    def _repaired(self, messages: list[Message]) -> list[Message]:
        """Return a valid list while the store cannot be used; it is noted there later."""
        if self._lists is None:
            return messages
        given = self._lists.readable(messages, full=True)
        valid = list(repair(given).messages)
        self._lists.note_later(given, valid)
        return valid

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
