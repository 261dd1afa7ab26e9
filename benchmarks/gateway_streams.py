"""Streamed conversations of real clients, with gaps between the provider's events: none splits, none hangs.

The model server waits up to 20 ms before each event, the official SDKs and LiteLLM's hold conversations, and post the
next turn as soon as a stream ends. Afterwards the store is compared with what they heard. LiteLLM's SDK takes part
where it is installed (`benchmarks.peers`). `--sessions 200 --turns 40` with its five kinds of clients is the long form.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from benchmarks import streaming_client
from benchmarks.gateway import gateway_settings, started
from benchmarks.peers import OFFLINE, python_of
from leporello.messages import text_of
from leporello.store import open_store

if TYPE_CHECKING:
    from collections.abc import Collection

GAP = 0.02


@dataclass(frozen=True, kw_only=True)
class Session:
    """One conversation: who held it, what was said, the longest turn in seconds, and what went wrong.

    `stalled` is for how long the client's process did nothing at all for its conversations.
    """

    kind: str
    said: list[str]
    longest: float
    stalled: float = 0.0
    error: str = ""


def interpreters(only: Collection[str]) -> dict[str, Path]:
    """Return who runs each kind of client; those that are not installed are left out."""
    litellm = python_of("litellm")
    kinds = {kind: litellm if kind.startswith("litellm") else Path(sys.executable) for kind in streaming_client.CLIENTS}
    return {kind: python for kind, python in kinds.items() if python is not None and kind in only}


def measure(options: argparse.Namespace) -> tuple[list[Session], list[str]]:
    """Hold the conversations; returns them, and what is wrong in the store afterwards."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        model = stack.enter_context(started(["-m", "leporello.testing.model_server", "--gap", str(GAP)]))
        config = folder / "config.yaml"
        config.write_text(json.dumps(gateway_settings(model.line.split()[3], window=1_000_000)), encoding="utf-8")
        command = ["-m", "leporello", "serve", "--port", "0", "--config", str(config), "--store", str(folder / "a.db")]
        gateway = stack.enter_context(started(command, {"LEPORELLO_HOME": str(folder)}))
        address = gateway.line.split()[3]
        sizes = ["--sessions", str(options.sessions), "--turns", str(options.turns), "--at-once", str(options.at_once)]
        clients = {
            kind: subprocess.Popen(
                [str(python), streaming_client.__file__, address, kind, *sizes],
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, **OFFLINE},
            )
            for kind, python in interpreters(options.kinds).items()
        }
        told = {kind: json.loads(client.communicate()[0].splitlines()[-1]) for kind, client in clients.items()}
        sessions = [
            Session(kind=kind, stalled=one["stalled"], **held) for kind, one in told.items() for held in one["held"]
        ]
        gateway.process.terminate()
        gateway.process.wait(120)
        return sessions, wrong_in(folder / "a.db", sessions)


def wrong_in(path: Path, sessions: list[Session]) -> list[str]:
    """Return which conversations are stored otherwise than once, whole and on one branch."""
    store = open_store(path)
    try:
        stored: dict[str, list[Any]] = {}
        for info in store.conversations():
            said = [text_of(row.message) for row in store.messages(info.key)]
            stored.setdefault(said[0], []).append((said, info.branches))
    finally:
        store.close()
    return [
        f"{one.kind}: {len(found)} conversations, {[branches for _, branches in found]} branches"
        for one in sessions
        if (found := stored.get(one.said[0], [])) != [(one.said, 1)] and not one.error
    ]


def main(argv: list[str] | None = None) -> int:
    options = size(argv)
    begun = time.monotonic()
    sessions, wrong = measure(options)
    seconds = time.monotonic() - begun
    print(
        f"{len(sessions)} conversations of {options.turns} turns in {seconds:.0f} s, gaps of 0 to {GAP * 1000:.0f} ms"
    )
    for kind in streaming_client.CLIENTS:
        own = [one for one in sessions if one.kind == kind]
        if not own:
            print(f"{kind}: not installed")
            continue
        longest = sorted(one.longest for one in own)
        turns = f"longest turn {median(longest):.2f} s at p50, {longest[-1]:.2f} s at most"
        print(f"{kind}: {len(own)} held, {turns}; its own process stood still for {own[0].stalled:.2f} s at most")
    errors = [f"{one.kind}, {one.error}" for one in sessions if one.error]
    print(f"errors: {len(errors)} {errors}; split, lost or doubled: {len(wrong)} {wrong[:3]}")
    return 1 if errors or wrong else 0


def size(argv: list[str] | None) -> argparse.Namespace:
    """Read how large it shall be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sessions", type=int, default=10, help="of each kind of client")
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--at-once", type=int, default=10, help="of each kind of client")
    parser.add_argument("--kinds", nargs="*", default=list(streaming_client.CLIENTS), choices=streaming_client.CLIENTS)
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
