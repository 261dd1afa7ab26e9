"""Drives a policy through a transcript turn by turn, as a host would, and takes down what happens.

The transcript's own answers take the place of the model, so every policy sees the same conversation. The provider's
cache is simulated by its rules, with the times of the transcript; what the model would have answered to another window
is unknown.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from leporello.caching import ProviderCache, rules_of
from leporello.caching.blocks import Block, blocks_of
from leporello.config import Config
from leporello.engine import ContextEngine
from leporello.errors import EngineFallbackWarning, PluginError
from leporello.events import CompactionFinished, Event
from leporello.messages import leading_systems, role_of, text_of
from leporello.messages.types import THINKING_TYPES
from leporello.proof import baselines
from leporello.proof.costs import Costs, request_cost
from leporello.proof.findings import Watch
from leporello.proof.needed import Cut, Score, cuts_by_growth
from leporello.proof.probes import Probe, Probed, ask_all
from leporello.proof.reread import Reread, rereads
from leporello.session import Session
from leporello.session.events import PrefixMoved
from leporello.session.result_repair import NEWEST_MISSING, PROMPT_MISSING, UNREAD_MISSING
from leporello.store import open_store
from leporello.tokens import count_message, count_messages
from leporello.transcripts.model import seconds_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leporello.messages import Message
    from leporello.store import Store
    from leporello.transcripts import Transcript

Policy: TypeAlias = str | Callable[[int], ContextEngine]
"""The name of an engine, or what makes one for a window of this many tokens."""

_MENDED = (PROMPT_MISSING, NEWEST_MISSING, UNREAD_MISSING, "repaired: ")  # how such a reason begins
Cuts: TypeAlias = Literal["growth", "recorded"]
RECORDED = "recorded"
"""The policy that shows what a log's own compactions wrote."""


@dataclass(frozen=True, kw_only=True)
class ReplaySettings:
    """What a replay assumes.

    window   the model's context length
    cuts     "growth": engines fold when they want to, and are looked at as the history grows; "recorded": they fold
             where the log records a compaction, and nowhere else
    beside   the baselines that are asked what they hold in as many tokens as an engine's window has
    config   config.yaml in any form; {} for defaults
    """

    model: str
    window: int
    provider: str = ""
    cuts: Cuts = "growth"
    beside: tuple[str, ...] = ("mask",)
    probes: bool = True
    config: Config | Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Point:
    """The window when a request went out: before which message, how long it was, and what the request cost."""

    at: int
    tokens: int
    folded: bool
    read: int
    cost_usd: float | None


@dataclass(frozen=True, kw_only=True)
class ReplayedFold:
    """A compaction: before which message, and what came of it."""

    at: int
    status: str
    reason: str
    tokens_before: int
    tokens_after: int
    model_calls: int


@dataclass(frozen=True, kw_only=True)
class CutScore:
    """What the window held at a cut, and what the baselines hold in as many tokens."""

    at: int
    tokens: int
    score: Score
    beside: dict[str, tuple[int, Score]] = field(default_factory=dict)
    rereads: tuple[Reread, ...] = ()


@dataclass(kw_only=True)
class Run:
    """What a policy did with one conversation."""

    engine: str
    session: str
    messages: int
    tokens: int
    costs: Costs
    points: list[Point] = field(default_factory=list)
    folds: list[ReplayedFold] = field(default_factory=list)
    cuts: list[CutScore] = field(default_factory=list)
    probes: list[Probed] = field(default_factory=list)
    findings: list[str] = field(default_factory=list)
    overflows: int = 0
    longest_pause_ms: float = 0.0
    timed: bool = False
    """Whether the transcript records times; without them nothing in the cache grows old."""


def replay(
    transcript: Transcript,
    engine: str,
    settings: ReplaySettings,
    *,
    policy: Policy | None = None,
    cuts: Sequence[Cut] | None = None,
    probes: Sequence[Probe] = (),
) -> Run:
    """Drive one policy through one conversation.

    `cuts` and `probes` follow from the conversation alone: work them out once and give them to every policy.
    """
    messages = said(transcript.messages)
    known = cuts_of(transcript, settings) if cuts is None else cuts
    if engine == RECORDED:
        return _recorded(transcript, messages, settings, known)
    return _Replay(transcript, messages, engine, policy or engine, settings, known).run(probes)


def cuts_of(transcript: Transcript, settings: ReplaySettings) -> list[Cut]:
    """Return the places at which every policy is looked at."""
    messages = said(transcript.messages)
    if settings.cuts == "recorded":
        return [Cut(messages, one.at) for one in transcript.compactions if 0 < one.at < len(messages)]
    return [Cut(messages, at) for at in cuts_by_growth(messages, settings.window)]


def said(messages: Sequence[Message]) -> list[Message]:
    """Return the messages without thinking, which providers do not read again in later turns."""
    return [_without_thinking(message) for message in messages]


def _without_thinking(message: Message) -> Message:
    content = message.get("content")
    if role_of(message) != "assistant" or not isinstance(content, list):
        return message
    parts = [part for part in content if not (isinstance(part, dict) and part.get("type") in THINKING_TYPES)]
    bare = {key: value for key, value in message.items() if key not in ("thinking_blocks", "reasoning_content")}
    texts = all(isinstance(part, dict) and part.get("type") == "text" for part in parts)
    return cast("Message", {**bare, "content": (text_of({"content": parts}) or None) if texts else parts})


class _Replay:
    """One policy in one conversation."""

    def __init__(
        self,
        transcript: Transcript,
        messages: list[Message],
        engine: str,
        policy: Policy,
        settings: ReplaySettings,
        cuts: Sequence[Cut],
    ) -> None:
        self.transcript = transcript
        self.messages = messages
        self.settings = settings
        self.policy = policy
        self.cuts = {cut.at: cut for cut in cuts}
        self.is_baseline = engine in baselines.ENGINES
        self.watch = Watch(messages)
        self._now = 0.0
        self._cache = ProviderCache(rules_of(settings.model, settings.provider), clock=lambda: self._now)
        self._blocks: dict[int, tuple[Message, list[Block]]] = {}
        self._at = 0
        self._asked_at = -1
        self._session: Session | None = None
        self.done = Run(
            engine=engine,
            session=transcript.name,
            messages=len(messages),
            tokens=count_messages(messages),
            costs=costs_of(settings),
            timed=any(seconds_of(message) is not None for message in messages),
        )

    def run(self, probes: Sequence[Probe]) -> Run:
        """Go through the conversation, then ask the probes."""
        with (
            TemporaryDirectory(prefix="leporello-replay-", ignore_cleanup_errors=True) as home,
            closing(open_store(":memory:")) as store,
            self._opened(store, Path(home)) as session,
        ):
            self._session = session
            for at in range(leading_systems(self.messages), len(self.messages)):
                self._at = at
                self._turn(session, self.messages[at])
            self.done.probes = ask_all(probes, session.engine, session.window, upto=len(self.messages))
        self.done.findings += self.watch.findings(self.done.probes, requests=self.done.costs.requests)
        return self.done

    def _turn(self, session: Session, message: Message) -> None:
        self._now = max(self._now, seconds_of(message) or 0.0)
        cut = self.cuts.get(self._at)
        if cut is not None and self.settings.cuts == "recorded":
            self._timed(session.compress)
        before = role_of(self.messages[self._at - 1]) if self._at else ""
        asks = role_of(message) == "assistant" and before in ("user", "tool")
        request = self._timed(session.request, self.transcript.tools) if asks else {}
        if cut is not None:
            self._look(cut, session.window)
        if asks:
            session.record(self._answer(request, message))
        else:
            session.add(message)

    def _answer(self, request: dict[str, Any], message: Message) -> dict[str, Any]:
        """Count the request as the provider would, and return the recorded answer with its usage."""
        messages, tools = request["messages"], request.get("tools", [])
        use = self._cache.request(self.settings.model, blocks=[*blocks_of((), tools), *self._row(messages)])
        output = count_message(message)
        folded, self._asked_at = self._folded_since(), self._at
        self.done.costs.add(use, output)
        self.done.overflows += use.prompt > self.settings.window
        dollars = request_cost(use, output, self.done.costs.price)
        self.done.points.append(Point(at=self._at, tokens=use.prompt, folded=folded, read=use.read, cost_usd=dollars))
        usage = {
            "prompt_tokens": use.prompt,
            "completion_tokens": output,
            "total_tokens": use.prompt + output,
            "prompt_tokens_details": {"cached_tokens": use.read},
        }
        return {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}

    def _folded_since(self) -> bool:
        """Tell whether there was a fold, or an attempt at one, since the request before."""
        return bool(self.done.folds) and self.done.folds[-1].at > self._asked_at

    def _row(self, messages: Sequence[Message]) -> list[Block]:
        """Return the blocks of a request; a message that went out before, as the same object, is not read again."""
        row: list[Block] = []
        for message in messages:
            known = self._blocks.get(id(message))
            if known is None:
                known = self._blocks[id(message)] = (message, blocks_of([message]))
            row += known[1]
        return row

    def _look(self, cut: Cut, window: list[Message]) -> None:
        tokens = count_messages(window)
        before = self.messages[: cut.at]
        beside = {} if self.is_baseline else {name: baselines.AT_EQUAL_TOKENS[name] for name in self.settings.beside}
        windows = {name: keep(before, tokens) for name, keep in beside.items()}
        self.done.cuts.append(
            CutScore(
                at=cut.at,
                tokens=tokens,
                score=cut.score(window),
                beside={name: (count_messages(kept), cut.score(kept)) for name, kept in windows.items()},
                rereads=tuple(rereads(self.messages, cut.at, window)),
            )
        )

    def _timed(self, do: Callable[..., Any], *arguments: Any) -> Any:
        started = time.perf_counter()
        try:
            return do(*arguments)
        finally:
            pause = (time.perf_counter() - started) * 1_000
            self.done.longest_pause_ms = max(self.done.longest_pause_ms, pause)

    def _opened(self, store: Store, home: Path) -> Session:
        """Open the session; an engine that keeps files of its own has a folder that nothing was in before."""
        config = configured(self.settings).with_home(home)
        engine: Any = self.policy
        if isinstance(engine, str) and engine in baselines.ENGINES:
            engine = baselines.ENGINES[engine]
        options: dict[str, Any] = {"llm": None} if isinstance(engine, str) else {}
        with warnings.catch_warnings():
            warnings.simplefilter("error", EngineFallbackWarning)
            try:
                return Session.open(
                    self.transcript.name,
                    model=self.settings.model,
                    provider=self.settings.provider or None,
                    context_length=self.settings.window,
                    engine=engine if isinstance(engine, str) else engine(self.settings.window),
                    store=store,
                    config=config,
                    system=_system(self.messages[: leading_systems(self.messages)]),
                    on_event=self._heard,
                    **options,
                )
            except EngineFallbackWarning as why:  # the figures would be those of the engine that takes its place
                raise PluginError("it cannot be used, so there is nothing to measure.", plugin=str(engine)) from why

    def _heard(self, event: Event) -> None:
        if isinstance(event, PrefixMoved) and not self._folded_since():
            self.watch.moved(event.reason, self._at)
        if not isinstance(event, CompactionFinished):
            return
        self.done.folds.append(
            ReplayedFold(
                at=self._at,
                status=event.status,
                reason=event.reason,
                tokens_before=event.tokens_before,
                tokens_after=event.tokens_after,
                model_calls=event.model_calls,
            )
        )
        self.done.costs.compactions_usd += event.cost_usd or 0.0
        if event.status == "refused":
            self.watch.refused(event.reason)
        elif event.status == "fallback":
            self.watch.replaced(event.reason)
        elif event.status == "folded" and event.reason.startswith(_MENDED):
            self.watch.mended(event.reason)
        if event.folded and self._session and not self.is_baseline:
            self.watch.folded(self._session.window, self._at)


def configured(settings: ReplaySettings) -> Config:
    """Return the configuration of a replay: everything happens in its turn, and only where cuts allow it."""
    config = Config.coerce(settings.config)
    lcm = config.lcm.model_copy(update={"background": False})
    compression = config.compression.model_copy(update={"enabled": settings.cuts != "recorded"})
    return config.model_copy(update={"lcm": lcm, "compression": compression})


def costs_of(settings: ReplaySettings) -> Costs:
    """Return no costs yet, of requests to the model of a replay."""
    own = Config.coerce(settings.config).own_prices()
    return Costs(model=settings.model, provider=settings.provider, own_prices=own)


def _recorded(transcript: Transcript, messages: list[Message], settings: ReplaySettings, cuts: Sequence[Cut]) -> Run:
    """Look at the summaries that the log's own compactions wrote; what was attached beside them is not counted."""
    summaries = {one.at: one.summary for one in transcript.compactions}
    systems = messages[: leading_systems(messages)]
    looked = []
    for cut in (cut for cut in cuts if summaries.get(cut.at)):
        window: list[Message] = [*systems, {"role": "user", "content": summaries[cut.at]}]
        again = tuple(rereads(messages, cut.at, window))
        looked.append(CutScore(at=cut.at, tokens=count_messages(window), score=cut.score(window), rereads=again))
    return Run(
        engine=RECORDED,
        session=transcript.name,
        messages=len(messages),
        tokens=count_messages(messages),
        costs=costs_of(settings),
        cuts=looked,
    )


def _system(systems: Sequence[Message]) -> str | None:
    return "\n\n".join(text_of(message) for message in systems) or None
