"""`leporello wrap` with the agents that it knows, in a terminal: what it leaves behind, and what it says it cost.

An agent runs three times: behind `wrap` to its end, behind `wrap` until that is killed, and then without it, when it
must reach the provider as if there had never been a gateway.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import socket
import sys
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clients.client import KEY, Client, Place
from clients.session import Session
from clients.terminal import in_terminal
from leporello.cli.leftovers import leftovers
from leporello.prices import cost
from leporello.testing.model_server import ModelServer, PromptCache

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leporello.cli.leftovers import Leftover
    from leporello.engine import Usage
    from leporello.testing.model_server import ReceivedRequest

TURNS = 16
_COST = re.compile(r"cost +\$([\d.,]+)")
_PLACE = re.compile(r"runs behind (http://127\.0\.0\.1:\d+)")
_CENT = 0.01
_SECONDS = 300.0
_GONE_SECONDS = 20.0
_STARTING = (".bashrc", ".profile", ".zshrc", ".config/fish/config.fish")
"""Files of a shell in the user's home, which an agent's installer might write and `wrap` must not."""

_SETTINGS = frozenset({".json", ".toml", ".yml", ".yaml"})

Listing = dict[Path, str]
"""What is in a folder: each path with a hash of the file, the target of the link, or nothing for a folder."""


@dataclass
class Wrapped:
    """What came of an agent behind `wrap`."""

    told_usd: float = 0.0
    counted_usd: float = 0.0
    requests: int = 0
    problems: list[str] = field(default_factory=list)


class Ledger:
    """The provider's own count: what it reported of every request, and what that costs."""

    def __init__(self) -> None:
        self._cache = PromptCache()
        self.entries: list[tuple[str, Usage]] = []

    def __call__(self, request: ReceivedRequest, usage: Usage) -> Usage:
        """Note what is reported."""
        reported = self._cache(request, usage)
        self.entries.append((request.model, reported))
        return reported

    @property
    def dollars(self) -> float:
        """What all of it costs, at list prices."""
        return sum(cost(usage, model) or 0.0 for model, usage in self.entries)


def wrap(client: Client, installed: Path, folder: Path, seed: int = 2) -> Wrapped:
    """Run an agent behind `wrap` to its end, once more until that is killed, and then without it."""
    session, ledger, found = Session(client, seed, turns=TURNS), Ledger(), Wrapped()
    workspace, home = folder / "workspace", folder / "home"
    workspace.mkdir(parents=True)
    _make_home(home)
    session.write_logs(workspace)
    with ModelServer(then=session, usage=ledger, window=client.window, accepts_key=lambda key: key == KEY) as server:
        place = Place(address=server.base_url, installed=installed, home=home, workspace=workspace, model=client.model)
        command, own = client.wrapped(place, session.instructions[0])
        environment = {**place.variables(), **own, "LEPORELLO_HOME": str(folder / "leporello")}
        line = [sys.executable, "-m", "leporello", "wrap", "--config", str(_config(client, folder)), *command]
        before = listing(folder)
        screen = _to_its_end(line, environment, workspace, found)
        found.requests, found.counted_usd = len(ledger.entries), ledger.dollars
        _check_cost(screen, found)
        _check_turns(session, found)
        found.problems += left_behind(client, before, folder, screen)
        screen = _killed(line, environment, workspace, session, found)
        found.problems += left_behind(client, before, folder, screen)
        found.problems += [f"{one.subject} {one.detail}" for one in leftovers(environment) if _names(one, screen)]
        session.turn = 0
        _to_its_end(command, environment, workspace, found)
        _check_turns(session, found)
    return found


def _make_home(home: Path) -> None:
    """Make the home of a user who has used a shell."""
    for name in _STARTING:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("# as it was\n", encoding="utf-8")


def _check_turns(session: Session, found: Wrapped) -> None:
    if session.turn < TURNS // 2:
        found.problems.append(f"{session.turn} of {TURNS // 2} turns were made")


def _to_its_end(line: list[str], environment: Mapping[str, str], folder: Path, found: Wrapped) -> str:
    with in_terminal(line, environment, folder) as terminal:
        code = terminal.end(_SECONDS)
        time.sleep(0.2)  # the last lines are read by another thread
        if code:
            found.problems.append(f"it ended with {code}: {terminal.text[-300:]}")
        return terminal.text


def _check_cost(screen: str, found: Wrapped) -> None:
    told = _COST.search(screen)
    found.told_usd = float(told[1].replace(",", "")) if told else 0.0
    if told is None:
        found.problems.append("no cost was told")
    elif abs(found.told_usd - found.counted_usd) >= _CENT / 2:
        found.problems.append(f"${found.told_usd:.4f} were told, ${found.counted_usd:.4f} were counted")


def _killed(line: list[str], environment: Mapping[str, str], folder: Path, session: Session, found: Wrapped) -> str:
    """Kill `wrap` in the middle of the work: its gateway and the agent must end too. Returns what was on the screen."""
    session.turn = 0
    with in_terminal(line, environment, folder) as terminal:
        terminal.wait_until(lambda: session.turn >= 2, "the second turn", _SECONDS)
        children = _children(terminal.process.pid)
        os.kill(terminal.process.pid, signal.SIGKILL)
        terminal.process.wait()
        end = time.monotonic() + _GONE_SECONDS
        while (left := [pid for pid in children if _lives(pid)]) and time.monotonic() < end:
            time.sleep(0.05)
        if left:
            found.problems.append(f"{len(left)} of {len(children)} processes live on after a kill")
        if (gateway := _gateway(terminal.text)) is None:
            found.problems.append("the gateway's address was not told")
        elif _listens(gateway):
            found.problems.append("its gateway still listens after a kill")
        return terminal.text


def _gateway(screen: str) -> str | None:
    told = _PLACE.search(screen)
    return told[1] if told else None


def _names(leftover: Leftover, screen: str) -> bool:
    """Tell whether a leftover leads to the gateway of this run: others may be at work on this machine."""
    address = _gateway(screen)
    return address is not None and address in leftover.detail


def left_behind(client: Client, before: Listing, folder: Path, screen: str) -> list[str]:
    """Return what was changed outside of the agent's own folders, and its settings that lead to the gateway."""
    after, home = listing(folder), folder / "home"
    own = [Path(os.path.normpath(home / name)) for name in client.own_files]
    changed = sorted(path for path in {*before, *after} if before.get(path) != after.get(path))
    outside = [path for path in changed if not any(path == one or one in path.parents for one in own)]
    outside = [path for path in outside if path.relative_to(folder).parts[0] != "leporello"]
    outside = [path for path in outside if not any(path in one.parents for one in own)]
    problems = [f"changed outside of its own folders: {', '.join(map(str, outside[:5]))}"] if outside else []
    marks = [b"LEPORELLO", (_gateway(screen) or "LEPORELLO").encode()]
    for path in changed:
        if path.suffix in _SETTINGS and path.is_file() and "sessions" not in path.parts:
            with suppress(OSError):
                if any(mark in path.read_bytes() for mark in marks):
                    problems.append(f"{path} names the gateway")
    return problems


def listing(folder: Path) -> Listing:
    """Return what is in a folder now."""
    return {path: _content(path) for path in folder.rglob("*")}


def _content(path: Path) -> str:
    if path.is_symlink():
        return str(path.readlink())
    with suppress(OSError):  # a folder, a socket, or gone by now
        return hashlib.sha256(path.read_bytes()).hexdigest()
    return ""


def _config(client: Client, folder: Path) -> Path:
    file = folder / "leporello.yaml"
    told: dict[str, Any] = {"windows": {client.model: client.window}}
    file.write_text(json.dumps(told), encoding="utf-8")
    return file


def _children(pid: int) -> list[int]:
    """Return all processes below one, from /proc."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
    below = [child for child, parent in parents.items() if parent == pid]
    return below + [one for child in below for one in _children(child)]


def _lives(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def _listens(address: str) -> bool:
    host, _, port = address.removeprefix("http://").partition(":")
    try:
        socket.create_connection((host, int(port)), 1).close()
    except OSError:
        return False
    return True
