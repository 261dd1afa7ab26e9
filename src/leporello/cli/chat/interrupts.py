"""Signals: Ctrl-C during a turn, and the end of the terminal or the machine."""

from __future__ import annotations

import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SIGNALLED: Final = 128  # what shells add to the number of the signal that ended a program


@contextmanager
def proper_end() -> Iterator[None]:
    """Let a request to terminate leave the block as an exception does, so that everything is put in order."""

    def terminate(number: int, frame: Any) -> None:
        raise SystemExit(_SIGNALLED + number)

    before = {number: signal.signal(number, terminate) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def at_once() -> Iterator[None]:
    """Let Ctrl-C end the program, without a word, while there is nothing yet that must be put in order."""
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def interrupts(stop: Callable[[], None]) -> Iterator[None]:
    """Let Ctrl-C call `stop`, which ends a turn where it can be ended cleanly; a second one does not wait for that."""

    def interrupt(number: int, frame: Any) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        stop()

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
