"""Everything a session knows about its conversation between two turns."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from leporello.caching import CachePolicy, PrefixTracker
from leporello.messages import copied, copied_as_text, is_system, last_speaker, role_of, tool_calls_of
from leporello.prices import cost
from leporello.session.accounts import Accounts
from leporello.session.answers import INCOMPLETE
from leporello.session.lines import Window
from leporello.session.mending import Soundness
from leporello.session.meter import Meter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leporello.messages import Message, ToolCall
    from leporello.session.lines import Said
    from leporello.session.meter import Count
    from leporello.session.windows import Saved
    from leporello.store import Request


@dataclass(frozen=True, kw_only=True)
class Route:
    """The model that the conversation is sent to, and where."""

    model: str = ""
    provider: str = ""
    base_url: str = ""
    context_length: int = 0

    def with_window(self, context_length: int) -> Route:
        """Return the same model with another window."""
        return replace(self, context_length=context_length)


@dataclass(frozen=True, kw_only=True)
class Tools:
    """The tools of a request: as the caller gave them, with the engine's behind them, and what they weigh."""

    given: list[dict[str, Any]] = field(default_factory=list)
    merged: list[dict[str, Any]] = field(default_factory=list)
    owned: frozenset[str] = frozenset()
    tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class Sent:
    """The request that waits for its answer."""

    lines: int
    tokens: int
    prefix: str
    moved: str
    route: Route


@dataclass(kw_only=True)
class Conversation:
    """One conversation: its window, what it has cost, and what is under way."""

    session_id: str
    route: Route
    dialect: str
    automatic: bool
    window: Window = field(default_factory=Window)
    sound: Soundness = field(default_factory=Soundness)
    meter: Meter = field(default_factory=lambda: Meter(""))
    prefix: PrefixTracker = field(default_factory=PrefixTracker)
    caching: CachePolicy = field(default_factory=CachePolicy)
    accounts: Accounts = field(default_factory=Accounts)
    tools: Tools | None = None
    waiting: list[Said] = field(default_factory=list)
    """Messages that the store could not take yet."""
    unspoken: list[Said] = field(default_factory=list)
    """The system prompt of a conversation in which nothing was said yet: it is stored with the first message."""
    unwritten: list[Request] = field(default_factory=list)
    """Rows of the journal that the store could not take yet."""
    engine_stores: bool = False
    """Whether the engine keeps the conversation in the same store."""
    engine: str = ""
    """The name of the engine."""
    foreign: bool = False
    """Whether the engine is a third party's: what it returns is mended, and the built-in one folds where it fails."""
    refusals: int = 0
    """How many results of the engine were refused since the last one that was used."""
    withdrawn: list[tuple[Said, Said]] = field(default_factory=list)
    """What was taken back, from and to, that the store does not know of yet."""
    newest: Said | None = None
    """What was said last, if that is known."""
    journalled: int = 0
    """How many lines the store's window has."""
    items: int = 0
    """How many items those are."""
    sent: Sent | None = None
    recovered: bool = False
    """Whether an overflow answer to the current request has led to a compaction already."""
    rests_until: int = 0
    """After a compaction that was refused, how large the request must be before the engine is asked for another."""
    edited: bool = False
    """Whether the window is another one than what the engine saw last, and not only longer."""
    moved: str = ""
    """Why the prefix of the next request is another one."""
    renamed: dict[str, str] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)

    def cut(self, lines: int, why: str, *, sound: bool = False) -> None:
        """Take note that the lines from a place on are others than before; `sound` when they are known to be valid."""
        self.moved, self.edited = why, True
        if not sound:
            self.sound.cut(lines)
        self.meter.cut(lines)
        if lines < self.journalled:
            self.items = sum(len(line.items()) for line in self.window.lines[:lines])
            self.journalled = lines
        if self.sent is not None and lines < self.sent.lines:
            self.sent = replace(self.sent, lines=lines)

    def resume(self, saved: Saved) -> None:
        """Go on from the conversation as it stands in the store."""
        self.window = Window([*saved.lines, *saved.later])
        self.newest = None
        self.edited = bool(self.window)
        self.journalled, self.items = (len(saved.lines), saved.items) if saved.whole else (0, 0)

    def copy(self, message: Message) -> Message:
        """Return a copy of a message for the engine; one that we did not write may know texts only."""
        return copied_as_text(message) if self.foreign else copied(message)

    def shown(self) -> list[Message]:
        """Return the live list of the messages for the engine."""
        return self.window.shown(self.copy)

    @property
    def stored(self) -> bool:
        """Whether everything that was said is in the store."""
        return not self.waiting

    @property
    def engine_waits(self) -> bool:
        """Whether the engine must not see the list now: it would store what the session could not, and it twice."""
        return self.engine_stores and bool(self.waiting)

    def size(self) -> Count:
        """Count the request that the window and the tools make."""
        return self.meter.count(self.window, self.tools.tokens if self.tools else None)

    def cost(self, usage: Mapping[str, Any]) -> float | None:
        """Return what the model call under way cost, or None when the price is not known."""
        route = self.sent.route if self.sent else self.route
        ttl: Literal["5m", "1h"] = "1h" if self.caching.ttl == "1h" else "5m"
        return cost(usage, route.model, route.provider, cache_ttl=ttl)

    def open_calls(self) -> list[ToolCall]:
        """Return the calls of the newest answer that have no result yet."""
        answered: set[str] = set()
        for message in reversed(self.window.messages):
            if role_of(message) == "tool":
                answered.add(str(message.get("tool_call_id")))
                continue
            if is_system(message):
                continue
            if role_of(message) != "assistant" or message.get(INCOMPLETE):
                return []
            return [call for call in tool_calls_of(message) if call.id not in answered]
        return []

    @property
    def done(self) -> bool:
        """Whether the newest answer needs nothing more: no result, no further request."""
        at = last_speaker(self.window.messages)
        newest = self.window.messages[at] if at >= 0 else {}
        return role_of(newest) not in ("user", "tool") and not self.open_calls()
