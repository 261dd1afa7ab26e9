"""A client that is driven through the gateway: how it is installed, pointed and run, and what is special about it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from leporello.testing.model_server import Step, Use

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leporello.messages import Dialect
    from leporello.testing.model_server import ReceivedRequest

PROGRAMS = Path(__file__).parent / "programs"
KEY = "sk-of-the-client"
"""The key that clients are given, and the only one that the model server accepts."""

_SECONDS = 600.0


class ClientFailedError(Exception):
    """A client could not be installed or did not come to its end."""


@dataclass(frozen=True, kw_only=True)
class Packages:
    """What is installed: packages of npm or of PyPI, the one whose version counts first."""

    npm: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where a client runs: the address of the gateway, its own folders, and what was installed for it."""

    address: str
    installed: Path
    home: Path
    workspace: Path
    model: str
    environment: dict[str, str] = field(default_factory=dict)

    def variables(self) -> dict[str, str]:
        """Return the whole environment of a client: nothing of ours but the path."""
        own = {"PATH": os.environ["PATH"], "HOME": str(self.home), "LANG": "C.UTF-8", "TERM": "xterm-256color"}
        return {**own, **self.environment}

    def run(self, command: Sequence[str | Path], typed: str = "", **environment: str) -> str:
        """Run a program in the workspace and return what it printed; an error when it fails."""
        done = subprocess.run(
            [str(word) for word in command],
            cwd=self.workspace,
            env={**self.variables(), **environment},
            input=typed,
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
        with (self.home / "run.log").open("a", encoding="utf-8") as log:
            log.write(f"$ {command[0]}\n{done.stdout}\n{done.stderr}\n")
        if done.returncode:
            last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:] or ["nothing was printed"]
            raise ClientFailedError(f"exit code {done.returncode}: {last[0][:300]}")
        return done.stdout

    def node(self, program: str, *arguments: str, **environment: str) -> str:
        """Run one of our programs on the installed packages of npm."""
        source = self.installed / program
        source.write_text((PROGRAMS / program).read_text(encoding="utf-8"), encoding="utf-8")
        return self.run(["node", source, *arguments], **environment)

    def python(self, program: str, *arguments: str, **environment: str) -> str:
        """Run one of our programs in the installed environment."""
        return self.run([self.installed / "bin" / "python", PROGRAMS / program, *arguments], **environment)

    def bin(self, name: str) -> str:
        """Return the path of an installed command."""
        places = (self.installed / "node_modules" / ".bin" / name, self.installed / "bin" / name)
        return str(next((place for place in places if place.exists()), places[0]))


class Client:
    """What is common to all clients; each is a subclass in a file of its own."""

    name: ClassVar[str]
    """How the table calls it."""
    folder: ClassVar[str]
    """Where it is installed; variants share one."""
    packages: ClassVar[Packages]
    dialect: ClassVar[Dialect]
    points: ClassVar[str]
    """How a user points it at the gateway, in Markdown."""
    model: ClassVar[str] = "gpt-5.4-mini"
    window: ClassVar[int] = 24_000
    """The window that the gateway and the model server know for its model."""
    log_tokens: ClassVar[int] = 700
    """How long about each output is that it reads."""
    turns: ClassVar[int] = 42
    tool: ClassVar[str] = "run_command"
    conversations: ClassVar[int] = 1
    """How many conversations the session makes, sub-agents included."""
    one_task: ClassVar[bool] = False
    """Whether it takes one task only, and ends with it."""
    refers: ClassVar[bool] = False
    """Whether its requests refer to what the gateway keeps, instead of sending it."""
    compacts: ClassVar[bool] = False
    """Whether it replaces its own history on the way, so that the outputs are on several branches."""
    apart: ClassVar[Sequence[str]] = ()
    """Words of the requests that it makes apart, which must not be on the main branch."""
    special: ClassVar[str] = ""
    """What a user should know, in Markdown."""
    settings: ClassVar[Mapping[str, Any]] = {}
    """Settings of the gateway beside the common ones."""

    @property
    def is_wrapped(self) -> bool:
        """Whether it is run behind `leporello wrap` too."""
        return bool(self.own_files)

    @property
    def with_engine_tools(self) -> bool:
        """Whether the model is offered the tools of the engine."""
        return bool(self.settings.get("gateway", {}).get("tools"))

    def run(self, place: Place, instructions: Sequence[str]) -> str:
        """Give the client its instructions one after the other; returns what it said at last."""
        raise NotImplementedError

    own_files: ClassVar[Sequence[str]] = ()
    """Where it writes by itself, in its home; for agents that `leporello wrap` knows."""

    def wrapped(self, place: Place, instruction: str) -> tuple[list[str], dict[str, str]]:
        """Return the command behind `leporello wrap` and the variables with the provider's address and key."""
        raise NotImplementedError

    def is_side(self, request: ReceivedRequest) -> bool:
        """Tell whether a request is none of the conversation: for a title, for instance."""
        return False

    def side(self, request: ReceivedRequest) -> Step:
        """Return the answer to such a request."""
        return Step(text="Harbour logs")

    def step(self, request: ReceivedRequest, turn: int, command: str) -> Step:
        """Return the answer that lets the client run a command."""
        call = Use(name=self.tool, arguments=self.arguments(command))
        return Step(text=f"I read log {turn}.", thinking=self.thinking(request, turn), tool_calls=[call])

    def end(self, text: str) -> Step:
        """Return the last answer."""
        return Step(text=text)

    def thinking(self, request: ReceivedRequest, turn: int) -> str:
        """Return what the model thinks: something in every fourth turn, where the client asked for thinking."""
        wants = request.dialect == "responses" or bool(request.body.get("thinking"))
        return "The next log." if wants and turn % 4 == 0 else ""

    def arguments(self, command: str) -> dict[str, Any]:
        """Return the arguments of its tool that run a command."""
        return {"command": command}

    def version(self, installed: Path) -> str:
        """Return the version that is installed."""
        if self.packages.npm:
            package = _bare(self.packages.npm[0])
            told = json.loads((installed / "node_modules" / package / "package.json").read_text(encoding="utf-8"))
            return str(told["version"])
        package = re.split(r"[\[=<>]", self.packages.pip[0])[0]
        asked = f"import importlib.metadata as m; print(m.version({package!r}))"
        return subprocess.check_output([installed / "bin" / "python", "-c", asked], text=True).strip()


def install(client: Client, root: Path) -> Path:
    """Install a client in a folder of its own, unless it is there; returns the folder."""
    folder = root / client.folder
    done = folder / "installed.json"
    wanted = json.dumps([sorted(client.packages.npm), sorted(client.packages.pip)])
    if done.exists() and done.read_text(encoding="utf-8") == wanted:
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    if client.packages.npm:
        if not (folder / "package.json").exists():
            (folder / "package.json").write_text('{"private": true, "type": "module"}', encoding="utf-8")
        _install(["npm", "install", "--no-fund", "--no-audit", *map(_newest, client.packages.npm)], folder)
    if client.packages.pip:
        _install([sys.executable, "-m", "venv", "."], folder)
        _install(["bin/python", "-m", "pip", "install", "--quiet", "--upgrade", *client.packages.pip], folder)
    done.write_text(wanted, encoding="utf-8")
    return folder


def _install(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=1800, check=False)
    if done.returncode:
        last = (done.stderr.strip() or done.stdout.strip()).splitlines()[-1:] or ["nothing was printed"]
        raise ClientFailedError(f"it cannot be installed: {last[0][:300]}")


def _newest(package: str) -> str:
    """Name the newest version: without a name npm takes an older one whose engine is this machine's."""
    return package if "@" in package[1:] else f"{package}@latest"


def _bare(package: str) -> str:
    return package[:1] + package[1:].partition("@")[0]
