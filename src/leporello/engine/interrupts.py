"""Tells what code that we did not write raises itself from an exit that a signal caused while it ran."""

from __future__ import annotations

import signal
import threading
import traceback
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import CodeType, FrameType, TracebackType
    from typing import Self


class ForeignCall:
    """Surrounds a call of an engine's or a plugin's code; `blames(error)` tells whether that code raised it itself.

    Python runs signal handlers in the main thread only. There, the interrupt that a handler of Ctrl-C raises during the
    call is noted: it is the user's, and it leaves the call even where the code caught it.
    """

    def __init__(self) -> None:
        self._interrupt: BaseException | None = None
        self._noting: Callable[[int, FrameType | None], None] | None = None
        self._usual: Callable[..., Any] | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._watch()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._unwatch()
        if self._interrupt is not None and error is not self._interrupt:
            raise self._interrupt

    def blames(self, error: BaseException) -> bool:
        """Tell whether the code raised an error itself; an exit of its own is an error like any other."""
        if isinstance(error, Exception):
            return True
        own = isinstance(error, (SystemExit, KeyboardInterrupt)) and error is not self._interrupt
        return own and not _is_from_handler(error)

    def _watch(self) -> None:
        usual = signal.getsignal(signal.SIGINT)
        if not callable(usual):
            return

        def noting(number: int, frame: FrameType | None) -> None:
            watched = self._unwatch()
            try:
                usual(number, frame)
            except BaseException as error:
                if not isinstance(error, Exception):
                    self._interrupt = error
                raise
            if watched:  # the handler may have set another one for the next Ctrl-C
                self._watch()

        self._noting, self._usual = noting, usual
        signal.signal(signal.SIGINT, noting)

    def _unwatch(self) -> bool:
        """Put the usual handler back, unless the code has set another one; tell whether it was watched."""
        noting, self._noting = self._noting, None
        if noting is None:
            return False
        if signal.getsignal(signal.SIGINT) is noting:
            signal.signal(signal.SIGINT, self._usual)
        return True


def _is_from_handler(error: BaseException) -> bool:
    """Tell whether the handler of a signal took part in raising an error."""
    codes = {frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)}
    return any(_code(signal.getsignal(number)) in codes for number in signal.valid_signals())


def _code(handler: Any) -> CodeType | None:
    """Return the code of a handler: a function, a method, a partial, or an object that can be called."""
    while isinstance(handler, partial):
        handler = handler.func
    if not callable(handler):
        return None
    function = handler if hasattr(handler, "__code__") or hasattr(handler, "__func__") else type(handler).__call__
    return getattr(getattr(function, "__func__", function), "__code__", None)
