"""Regular expressions within a time limit.

Python cannot interrupt an expression that backtracks for ever, so a child process runs it and is killed in time.
"""

from __future__ import annotations

import json
import re
import selectors
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

from leporello.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

LONGEST_EXPRESSION: Final = 1_000
_ENDED: Final = "The process that runs the regular expression ended early. Try a simpler one, or search without regex."
_WORKER: Final = Path(__file__).with_name("regex_worker.py")


class OutOfTimeError(Exception):
    """The time limit was reached; internal to searching."""


class Expression:
    """A regular expression with a deadline; case is ignored, ^ and $ stand at every line."""

    def __init__(self, pattern: str, *, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        _check(pattern)
        self._clock = clock
        self._deadline = clock() + seconds
        self._process = subprocess.Popen(  # noqa: S603 - our own file; the expression goes through the pipe
            [sys.executable, "-I", "-S", str(_WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # the compiler of expressions warns there, on the user's terminal
        )
        self._send(pattern)

    def __enter__(self) -> Self:
        """Return itself; the process ends with the block."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()

    def positions(self, texts: Sequence[str]) -> list[int]:
        """Return where the expression first matches in each text, -1 for nowhere; OutOfTimeError at the deadline."""
        self._send(texts)
        answer = self._receive()
        return [int(position) for position in json.loads(answer)]

    def _send(self, value: Any) -> None:
        stdin = self._process.stdin
        if stdin is None or self._clock() >= self._deadline:
            raise OutOfTimeError
        try:
            stdin.write(json.dumps(value).encode() + b"\n")
            stdin.flush()
        except BrokenPipeError as error:
            raise QueryError(_ENDED) from error

    def _receive(self) -> bytes:
        stdout = self._process.stdout
        if stdout is None:
            raise OutOfTimeError
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            if not selector.select(max(0.0, self._deadline - self._clock())):
                raise OutOfTimeError
        answer = stdout.readline()
        if not answer:
            raise QueryError(_ENDED)
        return answer


def _check(pattern: str) -> None:
    if len(pattern) > LONGEST_EXPRESSION:
        raise QueryError(f"The regular expression has {len(pattern):,} characters; {LONGEST_EXPRESSION:,} are allowed.")
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise QueryError(
            f"The regular expression cannot be read: {error}. Correct it, or search without regex."
        ) from error
