"""An engine or a store that nobody closes leaves nothing in the log, neither when it is dropped nor at the exit."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

# What is registered first runs last: work in the background goes on after everything else was given back.
PROGRAM = """
import atexit, gc, logging, shutil, sys, threading
called, given_back = threading.Event(), threading.Event()

def at_the_very_end():
    given_back.set()
    with pool()._changed:
        assert pool()._changed.wait_for(lambda: not pool()._pending, 60)

atexit.register(at_the_very_end)
logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
from leporello import LCMEngine, Session
from leporello.lcm.background import pool
from leporello.llm import ScriptedLLM
from leporello.store import open_store

how, folder = sys.argv[1:3]
address = ":memory:" if sys.argv[3] == "memory" else folder + "/s.db"

def summary(_):
    called.set()
    given_back.wait(20)
    return "## Goal\\nFix it."

def talk(engine):
    engine.on_event = lambda _: None
    engine.on_session_start("s")
    messages = []
    for n in range(60):
        messages += [
            {"role": "user", "content": f"Request {n}: " + "please look at src/app.py " * 30},
            {"role": "assistant", "content": f"Done {n}: " + "and so on " * 30},
        ]
        engine.update_from_response({"prompt_tokens": 200 * n + 1, "completion_tokens": 5, "total_tokens": 200 * n + 6})
        engine.should_compress_preflight(messages)
    assert called.wait(20)
    return engine

llm = ScriptedLLM(summary, context_length=64_000)
if how in ("engine dropped", "engine kept"):
    engine = talk(LCMEngine(16_000, store=address, llm=llm))
    if how == "engine dropped":
        del engine
        gc.collect()
elif how in ("store closed", "store dropped", "file removed"):
    store = open_store(address)
    engine = talk(LCMEngine(16_000, store=store, llm=llm))
    if how == "store closed":
        store.close()
    if how == "file removed" and sys.argv[3] == "file":
        shutil.rmtree(folder)
    del store, engine
    gc.collect()
elif how == "reading":
    store = open_store(address)
    store.append("c", [{"role": "user", "content": f"message {n}"} for n in range(600)])
    rows = store.messages("c")
    next(rows)
else:
    session = Session.open("c", store=address, engine="lcm", llm=llm, model="m", context_length=16_000, config={})
    session.add({"role": "user", "content": "hi"})
    session.request()
"""
WAYS = ("engine dropped", "engine kept", "store closed", "store dropped", "file removed", "reading", "session kept")
IMPORTS = "from leporello.store import open_store\n"
DEFECT = PROGRAM.replace(
    IMPORTS, f"{IMPORTS}from leporello.lcm import background\nbackground.StoreError = ZeroDivisionError\n"
)


def logged(program: str, tmp_path: Path, how: str, where: str) -> str:
    """Run a program to its end, and return what it wrote to its log."""
    folder = tmp_path / "folder"
    folder.mkdir()
    command = [sys.executable, "-X", "dev", "-W", "always", "-c", program, how, str(folder), where]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


def check(log: str) -> None:
    assert "Traceback" not in log
    assert "Warning" not in log
    assert "Exception ignored" not in log


@pytest.mark.slow
@pytest.mark.parametrize("where", ["memory", "file"])
@pytest.mark.parametrize("how", WAYS)
def test_what_nobody_closes_leaves_no_traceback(tmp_path: Path, how: str, where: str) -> None:
    check(logged(PROGRAM, tmp_path, how, where))


@pytest.mark.slow
def test_the_check_catches_work_that_fails_aloud(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        check(logged(DEFECT, tmp_path, "store closed", "memory"))
