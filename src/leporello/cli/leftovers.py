"""What leads agents to a gateway that is gone: variables, settings of agents, and programs that outlived `wrap`."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlsplit

from leporello.cli.agents import ADDRESS_VARIABLES, AGENTS, MARK, origins

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_HERE: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_SECONDS: Final = 0.5
_PROCESSES: Final = Path("/proc")


class Leftover(NamedTuple):
    """What leads to a gateway that is gone, and what to do about it."""

    subject: str
    detail: str


def leftovers(environ: Mapping[str, str] = os.environ, processes: Path = _PROCESSES) -> Iterator[Leftover]:
    """Yield what leads to an address of this machine where nothing listens."""
    for name in (*ADDRESS_VARIABLES, MARK):
        if _is_dead(environ.get(name, "")):
            yield Leftover(name, f"leads to {environ[name]}, where nothing listens: unset {name}")
    for agent in AGENTS:
        for origin in origins([agent], environ).values():
            if origin.place not in ADDRESS_VARIABLES and _is_dead(origin.address):
                yield Leftover(origin.place, f"leads {agent} to {origin.address}, where nothing listens: remove it")
    for number, name, address in _wrapped(processes):
        if _is_dead(address):
            text = f"{name} was started by `leporello wrap`, and its gateway {address} is gone: kill {number}"
            yield Leftover(f"process {number}", text)


def _is_dead(address: str) -> bool:
    """Tell whether an address is one of this machine where nothing listens."""
    try:
        parts = urlsplit(address)
        host, port = parts.hostname or "", parts.port or 80
    except ValueError:
        return False
    if host not in _HERE:
        return False
    try:
        with socket.create_connection((host, port), timeout=_SECONDS):
            return False
    except OSError:
        return True


def _wrapped(processes: Path) -> Iterator[tuple[int, str, str]]:
    """Yield the other processes of this user that `wrap` has started, with their gateways; where the system tells."""
    mark = f"{MARK}=".encode()
    for folder in sorted(processes.glob("[0-9]*")):
        if folder.name == str(os.getpid()):
            continue
        try:
            entries = (folder / "environ").read_bytes().split(b"\0")
            name = (folder / "comm").read_text(encoding="utf-8", errors="replace").strip()
        except OSError:
            continue
        for entry in entries:
            if entry.startswith(mark):
                yield int(folder.name), name, entry.removeprefix(mark).decode("utf-8", "replace")
