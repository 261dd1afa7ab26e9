"""Run a page of the documentation as its reader would: every block as it is printed, from an empty folder.

    python -m tests.pages.reader PAGE FOLDER

prints what is wrong, as a list of JSON. A block with a comment `<!-- needs … -->` before it is left out. The commands
of a page share a shell, its Python shares an interpreter. What serves runs on while the blocks behind it are run, and
must end well when it is interrupted. There are no keys, and no network but the loopback: where the system allows it,
one that belongs to this process alone, so that every page has its ports to itself.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import signal
import socket
import struct
import subprocess
import sys
import tomllib
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Self

from tests.fixtures.chat import Terminal
from tests.pages.page import SHOWN, Block, Command, blocks, commands, missing, odd

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SERVES = re.compile(r"leporello (?:serve(?! --new-key)|view|mcp --http)\b|python -m leporello\.testing\.model_server")
TALKS = re.compile(r"leporello chat(?: --[\w-]+(?: [\w-]+)?)*\s*(?:#.*)?$")
TIMEOUT_SECONDS = 300
NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
SHELL = """\
[ -e {state} ] && . {state}
{command}
status=$?
export -p > {state}
exit $status
"""
INTERPRETER = """\
import json, sys, traceback
names = {"__name__": "__main__"}
for line in sys.stdin:
    place, code = json.loads(line)
    try:
        exec(compile(code, place, "exec"), names)
    except BaseException:
        problem = traceback.format_exc()
    else:
        problem = ""
    print("\\0" + json.dumps(problem), flush=True)
"""


class Reader:
    """A reader with an empty folder, a shell and a Python interpreter."""

    def __init__(self, folder: Path, python: str | Path = sys.executable, environ: Mapping[str, str] = NOTHING) -> None:
        self._folder = folder / "empty"
        self._state = folder / "exported"
        self._folder.mkdir(parents=True)
        (folder / "home").mkdir()
        (folder / "home" / ".curlrc").write_text("fail-with-body\n")  # an error of HTTP is one of the command
        hidden = re.compile(r".*_API_KEY|LEPORELLO_.*|PYTEST_.*|COLUMNS|PIP_.*")
        self._environ = {name: value for name, value in os.environ.items() if not hidden.fullmatch(name)} | {
            "HOME": str(folder / "home"),
            "SHELL": "/bin/bash",
            "PATH": f"{Path(python).parent}:{os.environ['PATH']}",
            **environ,
        }
        self._interpreter = [str(python), "-W", "error" if python == sys.executable else "default", "-c", INTERPRETER]
        self._servers: list[tuple[int, subprocess.Popen[str]]] = []
        self._line = 0
        self._ended: list[str] = []
        self._python: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        for process in filter(None, [*(server for _, server in self._servers), self._python]):
            with process, suppress(ProcessLookupError):  # leaving waits for its end and closes its pipes
                os.killpg(process.pid, signal.SIGKILL)

    def read(self, text: str, needs: str = "") -> list[str]:
        """Run the blocks of a page that need what there is here, and return what is wrong with it."""
        wrong = odd(text)
        for block in blocks(text):
            if block.needs == needs:
                self._line = block.line
                wrong += [f"line {block.line}: {problem}" for problem in self._run(block)]
        self._stop()
        return wrong + self._ended

    def _run(self, block: Block) -> list[str]:
        run: dict[str, Callable[[Block], list[str]]] = {
            "console": self._commands,
            "sh": self._commands,
            "python": self._code,
            "yaml": self._configuration,
            "json": lambda block: _parsed(json.loads, block),
            "toml": lambda block: _parsed(tomllib.loads, block),
            **dict.fromkeys(SHOWN, lambda _: []),
        }
        if block.language not in run:
            return [f"a block of {block.language or 'no'} language; known are {', '.join(run)}"]
        return run[block.language](block)

    def _commands(self, block: Block) -> list[str]:
        return [problem for command in commands(block) for problem in self._command(command)]

    def _command(self, command: Command) -> list[str]:
        if TALKS.match(command.text):
            return self._talk(command)
        if SERVES.match(command.text):
            return self._serve(command)
        done = subprocess.run(
            self._shell(command),
            cwd=self._folder,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        problems = [f"{command.text}: exit code {done.returncode}\n{done.stderr}"] if done.returncode else []
        return problems + [f"{command.text}: does not print {line!r}" for line in missing(command.shown, done.stdout)]

    def _shell(self, command: Command) -> list[str]:
        return ["bash", "-c", SHELL.format(state=shlex.quote(str(self._state)), command=command.text)]

    def _talk(self, command: Command) -> list[str]:
        """Begin a chat on a terminal, and leave it again."""
        begun = Terminal(
            "-c", self._shell(command)[-1], environ=self._environ, folder=self._folder, program=["/bin/bash"]
        )
        with begun as chat:
            try:
                chat.wait_until(chat.listens, "the prompt")
                chat.type("exit" + chat.ENTER)
                code = chat.exit_code()
            except AssertionError as error:
                return [f"{command.text}: {error}"]
            return [f"{command.text}: exit code {code}\n{chat.text()}"] if code else []

    def _serve(self, command: Command) -> list[str]:
        """Start what serves, in the place of what served before, and read the lines of its beginning."""
        self._stop()
        server = subprocess.Popen(
            self._shell(command),
            cwd=self._folder,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._servers.append((self._line, server))
        assert server.stdout is not None
        printed = "".join(server.stdout.readline() for _ in command.shown or [""])
        nothing = [] if printed else [f"{command.text}: prints nothing"]
        return nothing + [
            f"{command.text}: prints {printed!r}, not {line!r}" for line in missing(command.shown, printed)
        ]

    def _stop(self) -> None:
        """Press Ctrl-C where something serves, and keep what is wrong with its end."""
        for line, server in self._servers:
            with suppress(ProcessLookupError):
                os.killpg(server.pid, signal.SIGINT)
            told = server.communicate(timeout=TIMEOUT_SECONDS)[0]
            if server.returncode:
                self._ended.append(f"line {line}: {server.args!r}: exit code {server.returncode}\n{told}")
        self._servers = []

    def _code(self, block: Block) -> list[str]:
        if self._python is None:
            self._python = subprocess.Popen(
                self._interpreter,
                cwd=self._folder,
                env=self._environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        assert self._python.stdin is not None
        assert self._python.stdout is not None
        self._python.stdin.write(json.dumps([f"line {block.line}", block.text]) + "\n")
        self._python.stdin.flush()
        for line in self._python.stdout:
            _said, ended, problem = line.partition("\0")
            if ended:
                return [json.loads(problem)] if json.loads(problem) else []
        return ["the interpreter has ended"]

    def _configuration(self, block: Block) -> list[str]:
        file = self._folder.parent / "shown.yaml"
        file.write_text(block.text, encoding="utf-8")
        return self._command(Command(text=f"leporello config check --config {shlex.quote(str(file))}"))


def _parsed(parse: Callable[[str], object], block: Block) -> list[str]:
    try:
        parse(block.text)
    except ValueError as error:
        return [str(error)]
    return []


def loopback() -> None:
    """Switch the loopback on: in a network of one's own it is off."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, 0x8914, struct.pack("16sh", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS: up, running


def problems_of(page: Path, folder: Path) -> list[str]:
    """Read a page in a process and, where the system allows it, in a network of its own."""
    alone = ["unshare", "--user", "--map-root-user", "--net"]
    allowed = not subprocess.run([*alone, "true"], capture_output=True, check=False).returncode
    reading = [sys.executable, "-m", "tests.pages.reader", str(page), str(folder), "alone" if allowed else "shared"]
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [*(alone if allowed else []), *reading], cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found: list[str] = json.loads(done.stdout)
    return found


if __name__ == "__main__":
    if sys.argv[3] == "alone":
        loopback()
    with Reader(Path(sys.argv[2])) as reader:
        print(json.dumps(reader.read(Path(sys.argv[1]).read_text(encoding="utf-8"))))
