"""Stopping a turn: from another thread, or by Ctrl-C as a request instead of an exception in the middle of anything."""

from __future__ import annotations

import queue
import signal
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from leporello.agent.loop import Agent


class StopSign:
    """Tells that the user wants the turn to end.

    It does what `threading.Event` does, but it may be set by a signal handler: that one could interrupt the very code
    that holds the event's lock.
    """

    def __init__(self) -> None:
        self._is_set = False
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()

    def is_set(self) -> bool:
        """Tell whether the turn shall end."""
        return self._is_set

    def set(self) -> None:
        """Ask for the end of the turn."""
        self._is_set = True
        self._bell.put(None)

    def clear(self) -> None:
        """Begin another turn."""
        self._is_set, self._bell = False, queue.SimpleQueue()

    def wait(self, seconds: float) -> None:
        """Wait so long, or until the turn shall end."""
        if not self._is_set:
            with suppress(queue.Empty):
                self._bell.get(timeout=seconds)


@contextmanager
def stop_on_interrupt(agent: Agent) -> Iterator[None]:
    """Let the first Ctrl-C stop the agent's turn; a second one interrupts as usual. Outside the main thread, nothing.

    An exception could otherwise come between storing a message and taking note of it.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    usual = signal.getsignal(signal.SIGINT)

    def on_interrupt(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, usual)
        agent.stop()

    signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, usual)
