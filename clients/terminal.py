"""A program in a terminal, as a person sees it: what is typed, and what is on the screen."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pyte

from clients.client import ClientFailedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

_LINES, _COLUMNS = 50, 160
_LOOK_SECONDS = 0.05
_CODES = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-_])|\r")


class Terminal:
    """A program that runs in a terminal of its own."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], folder: Path) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", _LINES, _COLUMNS, 0, 0))
        self.process = subprocess.Popen(
            list(command),
            env={**environment, "TERM": "xterm-256color"},
            cwd=folder,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - one system call
        )
        os.close(slave)
        self._screen = pyte.HistoryScreen(_COLUMNS, _LINES, history=5000)
        self._stream = pyte.ByteStream(self._screen)
        self.raw = b""
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def screen(self) -> str:
        """What is on the screen."""
        return "\n".join(self._screen.display)

    @property
    def text(self) -> str:
        """Everything that was written so far, without the codes that move the cursor and colour the text."""
        return _CODES.sub("", self.raw.decode(errors="replace"))

    def type(self, text: str) -> None:
        """Type something."""
        os.write(self._master, text.encode())

    def say(self, text: str) -> None:
        """Type a line, and Enter when it is on the screen."""
        self.type(text)
        self.wait_for(text[-20:])
        self.type("\r")

    def wait_for(self, text: str, seconds: float = 60.0) -> None:
        """Wait until a text is on the screen."""
        self.wait_until(lambda: text in self.screen, f"{text!r} on the screen", seconds)

    def wait_until(self, holds: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
        """Wait until something holds; an error with the screen when it does not in time."""
        end = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > end or self.process.poll() is not None:
                seen = "\n".join(line.rstrip() for line in self._screen.display if line.strip())
                raise ClientFailedError(f"waited in vain for {what}; the screen:\n{seen}")
            time.sleep(_LOOK_SECONDS)

    def end(self, seconds: float = 120.0) -> int:
        """Wait for the program to end by itself; returns its exit code."""
        return self.process.wait(seconds)

    def close(self) -> None:
        """End the program and whatever it started in its session."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
        os.close(self._master)

    def _read(self) -> None:
        while True:
            try:
                select.select([self._master], [], [])
                piece = os.read(self._master, 65536)
            except (OSError, ValueError):
                return
            if not piece:
                return
            self.raw += piece
            self._stream.feed(piece)


@contextmanager
def in_terminal(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> Iterator[Terminal]:
    """Run a program in a terminal until the block ends."""
    terminal = Terminal(command, environment, folder)
    try:
        yield terminal
    finally:
        terminal.close()
