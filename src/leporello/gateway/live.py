"""Conversations in use: each has a thread that makes every call on its engine, and the event loop never waits."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from leporello.gateway.history import alone, extended

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello.gateway.dialogue import Dialogue
    from leporello.gateway.limits import Lane
    from leporello.messages import Message

T = TypeVar("T")


@dataclass(kw_only=True)
class Known:
    """A conversation that a client may go on with: whose it is, how many messages it has, and their mark.

    `family` is the name that the client gave it, "" for none; a branch has its own key and the same family. `hidden`
    messages are stored too, but the client knows nothing of them: calls of the engine's tools, and their results.
    `before` is the mark without the newest answer as long as it is not certain that the client got it, else b"".
    `newest` is the mark of the newest answer alone: a client that shortens its history is found by that. `moved` tells
    that the marks begin somewhere else than the store knows.
    """

    key: str
    owner: str
    dialect: str
    family: str = ""
    count: int = 0
    mark: bytes = b""
    hidden: int = 0
    before: bytes = b""
    newest: bytes = b""
    moved: bool = False

    def marks(self) -> set[bytes]:
        """Return the marks of the histories that it may go on from."""
        return {self.mark, self.before or self.mark}

    def answered(self, message: Message) -> None:
        """Take note of an answer that is on its way to the client."""
        self.before, self.mark, self.count = self.mark, extended(self.mark, message), self.count + 1
        self.newest = alone(message)

    def take_back(self) -> None:
        """Forget the answer that the client did not get."""
        self.before, self.mark, self.count, self.newest = b"", self.before, self.count - 1, b""

    def shorten(self, count: int, mark: bytes) -> None:
        """Go on from the newest messages, as many as the client has kept; the others are hidden from it now."""
        self.hidden += self.count - count
        self.before, self.mark, self.count, self.moved = b"", mark, count, True

    def meta(self) -> dict[str, Any]:
        """Return what the store keeps of this."""
        noted = {"dialect": self.dialect, "family": self.family, "count": self.count, "mark": self.mark.hex()}
        more = {"hidden": self.hidden, "before": self.before.hex(), "newest": self.newest.hex()}
        return {"gateway": {**noted, **more}}


class Live:
    """A conversation in use, and its thread."""

    def __init__(self, known: Known, lane: Lane) -> None:
        self.known = known
        self._lane = lane
        self.used = 0.0
        """When it was used last."""
        self.weight = 0
        """How many bytes its newest request had, which is what it holds."""
        self.spoilt = False
        """Whether it holds what the store does not; the next request must read it anew."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="leporello-gateway")
        self._dialogue: Dialogue | None = None

    @property
    def with_tools(self) -> bool:
        """Whether the model may use the tools of the engine."""
        return self._dialogue is not None and self._dialogue.with_tools

    @property
    def window(self) -> int:
        """The model's window in tokens; 0 before it is opened."""
        return self._dialogue.window if self._dialogue else 0

    async def open(self, make: Callable[[], Dialogue]) -> None:
        """Open the conversation in its thread."""
        try:
            self._dialogue = await self._run(make)
        except BaseException:
            self._thread.shutdown(wait=False)
            raise

    async def call(self, method: Callable[..., T], *args: Any, **options: Any) -> T:
        """Call a method of the dialogue, as `live.call(Dialogue.take, asked)`."""
        return await self._run(partial(method, self._dialogue, *args, **options))

    async def compute(self, function: Callable[..., T], *args: Any) -> T:
        """Do something that takes a while in the conversation's thread."""
        return await self._run(partial(function, *args))

    def abandon(self) -> None:
        """Let go of it as it is, without storing anything; what is under way in its thread is finished."""
        if self._dialogue is not None:
            self._thread.submit(self._dialogue.abandon)
        self._thread.shutdown(wait=False)

    async def close(self) -> None:
        """End the conversation properly, and its thread."""
        try:
            if self._dialogue is not None:
                await self._run(self._dialogue.close)
        finally:
            self._thread.shutdown(wait=False)

    async def _run(self, function: Callable[[], T]) -> T:
        return await self._lane.run(self._thread, function)
