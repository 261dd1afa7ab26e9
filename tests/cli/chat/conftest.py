"""A terminal for the chat: a real pty, a screen that obeys escape sequences, and somebody who types."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pyte
import pytest

from leporello.store import open_store
from leporello.testing.model_server import ModelServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

COMMAND = [sys.executable, "-m", "leporello"]
# Makes the pty the controlling terminal first, so that Ctrl-C is a signal and not only a character.
ON_TERMINAL = (
    "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
)
PATIENCE = 100.0
DOCS = Path(__file__).parents[3] / "docs"


class Screen(pyte.HistoryScreen):
    """A screen whose answers to "where is the cursor?" go back to the program, as a terminal's do."""

    def __init__(self, columns: int, lines: int, answer: Callable[[str], None]) -> None:
        super().__init__(columns, lines, history=2_000)
        self._answer = answer

    def write_process_input(self, data: str) -> None:
        self._answer(data)


class Terminal:
    """A program on a terminal of its own."""

    ENTER, CTRL_C, CTRL_D, ESCAPE = "\r", "\x03", "\x04", "\x1b"

    def __init__(
        self, *arguments: str, environ: Mapping[str, str], folder: Path, columns: int = 100, lines: int = 40
    ) -> None:
        self._screen = Screen(columns, lines, self.type)
        self._stream = pyte.ByteStream(self._screen)
        self._changed = threading.Condition()
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self._process = subprocess.Popen(
            [sys.executable, "-ISc", ON_TERMINAL, *COMMAND, *arguments],
            env={**environ, "TERM": "xterm-256color", "LINES": str(lines), "COLUMNS": str(columns)},
            cwd=folder,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
        )
        os.close(theirs)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._reader.join(PATIENCE)
        os.close(self._ours)

    def type(self, text: str) -> None:
        """Press keys."""
        os.write(self._ours, text.encode())

    def say(self, line: str) -> None:
        """Wait until the chat listens, type a line and press Enter."""
        self.wait_until(self.listens, "the prompt")
        self.type(line)
        self.wait_until(lambda: self._cursor_line().endswith(line[-20:]), f"the echo of {line!r}")
        self.type(self.ENTER)

    def listens(self) -> bool:
        """Tell whether the chat waits for a line."""
        return self._cursor_line().strip() == "❯"

    def asks(self) -> bool:
        """Tell whether the chat waits for a yes or no."""
        return self._cursor_line().endswith("[a]lways:")

    def wait_for(self, text: str) -> None:
        """Wait until a text stands on the screen or above it, in one line or several."""
        self.wait_until(lambda: text in self.text() or text in self.words(), repr(text))

    def wait_until(self, true: Callable[[], bool], what: str = "that") -> None:
        """Wait until something is so."""
        end = time.monotonic() + PATIENCE
        with self._changed:
            while not true():
                left = end - time.monotonic()
                if left <= 0 or (self._process.poll() is not None and not self._reader.is_alive() and not true()):
                    raise AssertionError(f"waited in vain for {what}; the screen:\n{self.text()}")
                self._changed.wait(min(left, 1.0))

    def exit_code(self) -> int:
        """Wait for the program's end."""
        code = self._process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return code

    def send(self, number: signal.Signals) -> None:
        """Send the program a signal."""
        self._process.send_signal(number)

    def echoes(self) -> bool:
        """Tell whether the terminal shows what is typed, as it did before the program began."""
        flags: int = termios.tcgetattr(self._ours)[3]
        return bool(flags & termios.ECHO and flags & termios.ICANON)

    def text(self) -> str:
        """Return what stands on the screen, and what was scrolled away above it."""
        above = ["".join(line[x].data for x in range(self._screen.columns)) for line in self._screen.history.top]
        return "\n".join(line.rstrip() for line in [*above, *self._screen.display]).rstrip()

    def words(self) -> str:
        """Return what stands there, without line ends."""
        return " ".join(self.text().split())

    def title(self) -> str:
        """Return the title of the window."""
        return str(self._screen.title)

    def _cursor_line(self) -> str:
        return str(self._screen.display[self._screen.cursor.y]).rstrip()

    def _read(self) -> None:
        while True:
            try:
                data = os.read(self._ours, 65_536)
            except OSError:  # the program's side is closed
                data = b""
            with self._changed:
                if data:
                    self._stream.feed(data)
                self._changed.notify_all()
            if not data:
                return


class Place:
    """A home, a workspace and a model on loopback; `chat` starts a chat among them."""

    def __init__(self, folder: Path, server: ModelServer) -> None:
        self.home = folder / "home"
        self.workspace = folder / "project"
        self.server = server
        self.workspace.mkdir()
        self.environ = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")} | {
            "LEPORELLO_HOME": str(self.home),
            "OPENAI_API_KEY": "key-for-a-test",
        }
        self.environ.pop("PYTEST_VERSION", None)
        self.configure()

    def sent(self, number: int = -1) -> list[dict[str, Any]]:
        """Return the messages of a request."""
        return self.server.requests[number].messages

    def configure(self, *, context_length: int | None = None, **blocks: Any) -> None:
        """Write config.yaml: the model on loopback, with a window of its own or another, and further blocks."""
        model = {
            "default": "gpt-5-mini",
            "provider": "openai",
            "base_url": self.server.openai_url,
            "context_length": context_length,
        }
        self.home.mkdir(exist_ok=True)
        (self.home / "config.yaml").write_text(json.dumps({"model": model, **blocks}))

    def plugin(self, path: str, code: str) -> None:
        """Write a plugin into the home folder."""
        folder = self.home / "plugins" / path
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(code)
        (folder / "plugin.yaml").write_text(f"name: {folder.name}\ndescription: For a test.\nversion: '1'\n")

    def remember(self, session_id: str, turns: int) -> None:
        """Put a conversation of so many turns, about 300 tokens each, into the store."""
        store = open_store(self.home / "leporello.db")
        for number in range(turns):
            asked = {"role": "user", "content": f"What about part {number}? " + "It is a matter of detail. " * 20}
            said = {"role": "assistant", "content": f"Part {number} is done. " + "Every detail was looked at. " * 20}
            store.append(session_id, [asked, said])
        store.close()

    def chat(self, *arguments: str, columns: int = 100, lines: int = 40) -> Terminal:
        """Start a chat on a terminal."""
        return Terminal("chat", *arguments, environ=self.environ, folder=self.workspace, columns=columns, lines=lines)

    def run(self, *arguments: str, typed: str | None = None) -> subprocess.CompletedProcess[str]:
        """Run a chat without a terminal; `typed` is piped in."""
        return subprocess.run(
            [*COMMAND, "chat", *arguments],
            env=self.environ,
            cwd=self.workspace,
            input=typed or "",
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def shell(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run a line of the shell, where $chat is a chat without a terminal."""
        return subprocess.run(
            ["/bin/sh", "-c", line],
            env={**self.environ, "chat": " ".join([*COMMAND, "chat"])},
            cwd=self.workspace,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )

    def interrupted(self, seconds: float, *arguments: str) -> str:
        """Run a chat, press Ctrl-C after so many seconds, and return what it wrote to the error output."""
        with subprocess.Popen(
            [*COMMAND, "chat", *arguments],
            env=self.environ,
            cwd=self.workspace,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as started:
            try:
                started.wait(seconds)
            except subprocess.TimeoutExpired:
                started.send_signal(signal.SIGINT)
            return started.communicate(timeout=PATIENCE)[1]


class Page:
    """The page about the chat, with the screens that it shows."""

    def __init__(self, text: str) -> None:
        blocks = re.findall(r"^```text\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
        self.screens: list[list[str]] = [block.splitlines() for block in blocks]

    @staticmethod
    def missing(shown: list[list[str]], screen: str) -> list[str]:
        """Return those of the shown screens whose lines do not stand one after the other in a real one."""
        return ["\n".join(lines) for lines in shown if not _stands_in(lines, screen.splitlines())]


def _stands_in(shown: list[str], lines: list[str]) -> bool:
    """Tell whether lines stand one after the other among others; … stands for anything."""
    patterns = [re.compile(".*".join(map(re.escape, line.rstrip().split("…")))) for line in shown]
    starts = range(len(lines) - len(patterns) + 1)
    return any(all(map(re.Pattern.fullmatch, patterns, lines[start:])) for start in starts)


@pytest.fixture
def page() -> Page:
    """Return the page about the chat."""
    return Page((DOCS / "how-to" / "chat.md").read_text(encoding="utf-8"))


class HaltingModel(ThreadingHTTPServer):
    """A model that stops in the middle of its first answer until it is let go on; later answers come whole."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Halting)
        self.bodies: list[dict[str, Any]] = []
        self.go_on = threading.Event()
        self.hung_up = threading.Event()
        self.openai_url = f"http://127.0.0.1:{self.server_port}/v1"


class _Halting(BaseHTTPRequestHandler):
    server: HaltingModel

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self.server.bodies.append(body)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.end_headers()
        if len(self.server.bodies) > 1:
            self._send("A whole answer.", None)
            self._send("", "stop")
            return
        self._send("This is the first half", None)
        while not self.server.go_on.wait(0.05):
            try:
                self._send("", None)
            except OSError:
                self.server.hung_up.set()
                return
        self._send(" and this the second.", "stop")

    def _send(self, text: str, finish: str | None) -> None:
        choice = {"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": finish}
        chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [choice]}
        self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
        if finish:
            self.wfile.write(b"data: [DONE]\n\n")
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the standard library
        """Say nothing."""


@pytest.fixture
def halting() -> Iterator[HaltingModel]:
    """Return a model that stops in the middle of an answer."""
    model = HaltingModel()
    thread = threading.Thread(target=model.serve_forever, daemon=True)
    thread.start()
    yield model
    model.go_on.set()
    model.shutdown()
    model.server_close()
    thread.join()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    """Return a place to chat in."""
    with ModelServer() as server:
        yield Place(tmp_path, server)
