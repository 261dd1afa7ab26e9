"""How much code a reader follows for one turn: the files and functions of Leporello that it crosses, by package.

A plain turn is a question that is added, a request and its recorded answer, with nothing folded; beside it, one
`compress()` of the lossless engine that folds. What runs in the background counts too, and so does work that comes only
every few turns. Imports and what is done once happen before. A comprehension or a lambda belongs to the function around
it. Events are dropped and no spans are made, so that the figures do not depend on what else is installed.

`--json` prints the names of all functions, to compare two versions.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import threading
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias
from unittest.mock import patch

import leporello
from benchmarks.compress import conversation
from leporello import LCMEngine, Session
from leporello.store import open_store
from leporello.testing.manual_executor import ManualExecutor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import CodeType, FrameType

    from leporello.messages import Message

ROOT = Path(leporello.__file__).parent
ALL = "all"
WARM = TURNS = 20
WINDOW = 200_000
FOLDED = 400  # messages
USAGE = {"prompt_tokens": 100, "completion_tokens": 10}


Walk: TypeAlias = dict[str, list[str]]
"""The names of the functions that ran, by file."""


def crossed(work: Callable[[], object]) -> Walk:
    """Do some work, and return the functions of Leporello that ran, also in threads that it started."""
    codes: set[CodeType] = set()

    def profile(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            codes.add(frame.f_code)

    threading.setprofile(profile)
    sys.setprofile(profile)
    try:
        work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    functions: dict[str, set[str]] = {}
    for code in codes:
        path = Path(code.co_filename)
        if path.is_relative_to(ROOT):
            name = code.co_qualname.partition(".<locals>.<")[0]
            functions.setdefault(path.relative_to(ROOT).as_posix(), set()).add(name)
    return {file: sorted(names) for file, names in sorted(functions.items())}


def turn(engine: str, turns: int = TURNS) -> Walk:
    """Return what a plain turn crosses."""
    with opened(engine) as ask:
        for _ in range(WARM):
            ask()
        return crossed(lambda: [ask() for _ in range(turns)])


@contextmanager
def opened(engine: str) -> Iterator[Callable[[], None]]:
    """Open a session, and give a function that goes through a turn with what it leaves for the background."""
    with tempfile.TemporaryDirectory() as folder:
        store, later = open_store(Path(folder) / "store.db"), ManualExecutor()
        lossless = LCMEngine(WINDOW, store=store, executor=later)
        chosen = lossless if engine == "lcm" else engine
        with patch("leporello.session.factory.with_spans", lambda sink: sink):
            session = Session.open(
                engine=chosen, model="m", context_length=WINDOW, store=store, config={}, on_event=lambda _: None
            )

        def ask() -> None:
            session.add({"role": "user", "content": "Where is the container?"})
            session.request()
            session.record({"choices": [{"message": {"role": "assistant", "content": "At berth 4."}}], "usage": USAGE})
            later.run()

        yield ask
        if session.usage().compactions:
            raise RuntimeError(f"{engine} has folded the conversation: that is no plain turn.")
        session.close()
        store.close()


def fold() -> Walk:
    """Return what one `compress()` of the lossless engine crosses, in a conversation that was folded before."""
    with tempfile.TemporaryDirectory() as folder:
        later = ManualExecutor()
        engine = LCMEngine(WINDOW // 10, store=Path(folder) / "store.db", executor=later)
        engine.on_event = lambda _: None
        engine.on_session_start("walk")
        history = conversation("files", 2 * FOLDED)

        def compress(messages: list[Message]) -> list[Message]:
            folded = engine.compress([*messages, {"role": "user", "content": "Go on."}])
            later.run()
            report = engine.last_compaction
            if report is None or report.status != "folded":
                raise RuntimeError(f"nothing was folded: {report}")
            return folded

        again = [*compress(history[:FOLDED]), *history[FOLDED:]]
        found = crossed(lambda: compress(again))
        engine.close()
        return found


WALKS: dict[str, Callable[[], Walk]] = {
    "turn, compressor": lambda: turn("compressor"),
    "turn, lcm": lambda: turn("lcm"),
    "lcm.compress": fold,
}


def counted(walk: Walk) -> dict[str, tuple[int, int]]:
    """Return how many files and functions there are by package, and of all."""
    files, functions = Counter[str](), Counter[str]()
    for file, names in walk.items():
        for package in (file.partition("/")[0].removesuffix(".py"), ALL):
            files[package] += 1
            functions[package] += len(names)
    return {package: (files[package], functions[package]) for package in files}


def table(walks: dict[str, Walk]) -> str:
    """Return files and functions by package, with a column for each walk."""
    counts = {name: counted(walk) for name, walk in walks.items()}
    packages = sorted({package for column in counts.values() for package in column} - {ALL})
    rows = [f"| files / functions | {' | '.join(walks)} |", "|---" * (len(walks) + 1) + "|"]
    for package in (*packages, ALL):
        cells = ("{} / {}".format(*column.get(package, (0, 0))) for column in counts.values())
        rows.append(f"| {package} | {' | '.join(cells)} |")
    return "\n".join(rows)


def main(argv: list[str] | None = None) -> int:
    """Print the table, or everything that was crossed as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="the names of the functions by walk and file")
    as_json = parser.parse_args(argv).json
    walks = {name: walk() for name, walk in WALKS.items()}
    print(json.dumps(walks, indent=2) if as_json else table(walks))
    return 0


if __name__ == "__main__":
    sys.exit(main())
