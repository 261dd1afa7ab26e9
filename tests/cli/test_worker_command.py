"""`leporello worker` ends when it is told to, however often."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING

import pytest

from leporello.cli.worker import stop_on_signals

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Impatient(threading.Event):
    """An event that gets another signal while it is being set, as by Ctrl-C pressed twice."""

    def __init__(self) -> None:
        super().__init__()
        self._setting = False

    def set(self) -> None:
        assert not self._setting, "the lock of an event is not reentrant: this would wait for ever"
        self._setting = True
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGTERM)
        super().set()
        self._setting = False


@pytest.fixture(autouse=True)
def _own_signals() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def planted(stop: threading.Event) -> None:
    """Set the event at every signal."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_does_not_keep_it_from_ending(number: signal.Signals) -> None:
    stop = Impatient()
    stop_on_signals(stop)
    signal.raise_signal(number)
    assert stop.is_set()


def test_planted_a_handler_that_can_be_interrupted_by_itself() -> None:
    with pytest.raises(AssertionError, match="not reentrant"):
        _signalled(planted)


def _signalled(handles: Callable[[threading.Event], None]) -> None:
    handles(Impatient())
    signal.raise_signal(signal.SIGINT)
