"""Run one command: in bounded time, with bounded output, and with nothing of it left behind.

The command leads a session of its own, so that all it starts can be found again and ended with it, also what moved
into another process group. It has no terminal and no input.
"""

from __future__ import annotations

import codecs
import os
import selectors
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leporello.agent.tools.text import Clip

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from leporello.agent.tools.tool import Stop, Wrote

_TICK: Final = 0.05
_PIECE: Final = 65_536
_LAST_WORDS: Final = 0.2
_GRACE: Final = 1.0
_MOST_OUTPUT: Final = 200_000_000
_PROCESSES: Final = Path("/proc")


@dataclass(frozen=True, kw_only=True)
class Ran:
    """How a command ended; `ended` says why it was ended, "" when it ended by itself."""

    exit_code: int
    output: Clip
    ended: str = ""
    left_behind: bool = False


def run(
    command: Sequence[str],
    *,
    folder: Path,
    environment: Mapping[str, str],
    seconds: float,
    stop: Stop,
    wrote: Wrote = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> Ran:
    """Run a command to its end, to its time limit, or until it is stopped; `wrote` takes its output as it comes."""
    process = subprocess.Popen(  # noqa: S603 - running commands is what this is for; the caller asked for consent
        command,
        cwd=folder,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    output = Clip()
    decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def take(piece: bytes) -> None:
        output.add(piece)
        if text := decoder.decode(piece):
            wrote(text)

    try:
        ended = _listen(process, output, take, deadline=clock() + seconds, seconds=seconds, stop=stop, clock=clock)
    finally:
        left_behind = _end_all(process)
    return Ran(exit_code=process.returncode, output=output, ended=ended, left_behind=left_behind and not ended)


def _listen(
    process: subprocess.Popen[bytes],
    output: Clip,
    take: Callable[[bytes], None],
    *,
    deadline: float,
    seconds: float,
    stop: Stop,
    clock: Callable[[], float],
) -> str:
    """Take the output as it comes; return why the command has to be ended, "" when it ended by itself."""
    pipe = process.stdout
    if pipe is None:
        raise ValueError("the command was started without a pipe")
    last_words = float("inf")
    with selectors.DefaultSelector() as selector:
        selector.register(pipe, selectors.EVENT_READ)
        while True:
            piece = os.read(pipe.fileno(), _PIECE) if selector.select(_TICK) else None
            if piece == b"":
                selector.unregister(pipe)
            take(piece or b"")
            if process.poll() is not None:
                last_words = min(last_words, clock() + _LAST_WORDS)
                if not selector.get_map() or clock() >= last_words:
                    return ""
            if stop.is_set():
                return "the user interrupted it"
            if clock() >= deadline:
                return f"it took longer than {seconds:g} s"
            if output.size > _MOST_OUTPUT:
                return f"it wrote more than {_MOST_OUTPUT:,} bytes"


def _end_all(process: subprocess.Popen[bytes]) -> bool:
    """End the processes that a command left, first with SIGTERM; return whether there were any."""
    left = process.poll() is None or bool(_members(process.pid))
    for number in (signal.SIGTERM, signal.SIGKILL) if left else ():
        _signal(process.pid, number)
        if _gone(process):
            break
    process.wait()
    if process.stdout is not None:
        process.stdout.close()
    return left


def _gone(process: subprocess.Popen[bytes]) -> bool:
    """Wait a moment until nothing is left of a command; tell whether that is so."""
    end = time.monotonic() + _GRACE
    while time.monotonic() < end:
        if process.poll() is not None and not _members(process.pid):
            return True
        time.sleep(_TICK / 5)
    return False


def _signal(session: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(session, number)
    for pid in _members(session):
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _members(session: int) -> list[int]:
    """Return the living processes of a session, as Linux tells them; elsewhere the process group has to do."""
    members = []
    for entry in _PROCESSES.glob("[0-9]*/stat"):
        with suppress(OSError):  # it ended while we looked
            state, _, _, of_session = entry.read_bytes().rpartition(b")")[2].split()[:4]
            if int(of_session) == session and state != b"Z":
                members.append(int(entry.parent.name))
    return members
