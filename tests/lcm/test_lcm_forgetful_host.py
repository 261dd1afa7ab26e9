"""A host that is killed again and again and comes back with an empty list under its old name: each time a new root.

`make test` kills it a few times, `make soak` fifty times.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from leporello import LCMEngine
from leporello.cli import branches
from leporello.cli.main import commands
from leporello.store.reconcile import full_plan as reconciliation
from leporello.store.relational import messages
from leporello.tokens import count_messages

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from pathlib import Path

    from leporello.messages import Message

KILLS = 50 if os.environ.get("LEPORELLO_SOAK") else 5
MOST_TURNS = 60
WINDOW = 4_000
WORKERS = multiprocessing.get_context("forkserver")
WORKERS.set_forkserver_preload(["leporello.lcm.engine"])
SYSTEM: Message = {"role": "system", "content": "You are the harbour's assistant."}
GREETINGS: tuple[list[Message], ...] = (
    [],
    [{"role": "user", "content": "hi"}],
    [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello!"}],
)


def named(run: int, number: int) -> str:
    return f"turn-{run:03}-{number:03}"


def asked(name: str) -> Message:
    return {"role": "user", "content": f"{name}: which berth is free? " + "The vessel waits in the roads. " * 8}


def answered(name: str) -> Message:
    return {"role": "assistant", "content": f"For {name} it is berth {sum(map(ord, name))}. " + "Cranes stand by. " * 8}


def talk(engine: LCMEngine, run: int, turns: int) -> Any:
    """Talk with an empty list at the start; yields after every turn that the engine has taken."""
    engine.on_event = lambda _: None
    engine.on_session_start("bot")
    listed = [SYSTEM, *GREETINGS[run % len(GREETINGS)]]
    for number in range(turns):
        name = named(run, number)
        listed = [*listed, asked(name)]
        engine.should_compress_preflight(listed)
        if engine.should_compress(count_messages(listed)):
            listed = engine.compress(listed, current_tokens=count_messages(listed))
        listed = [*listed, answered(name)]
        engine.on_turn_complete(listed)
        yield name


def serve(pipe: Connection, path: str, run: int) -> None:
    """Talk until killed, and acknowledge every turn."""
    for name in talk(LCMEngine(WINDOW, store=path), run, MOST_TURNS):
        pipe.send(name)
    pipe.recv()


def killed_host(path: Path, run: int, turns: int) -> list[str]:
    """Start a host, kill it after some acknowledged turns, and return all that it acknowledged."""
    ours, theirs = WORKERS.Pipe()
    process = WORKERS.Process(target=serve, args=(theirs, str(path), run), daemon=True)
    process.start()
    theirs.close()
    names = [ours.recv() for _ in range(turns)]
    process.kill()
    process.join()
    try:
        while True:
            names.append(ours.recv())
    except EOFError:
        return names


def check(path: Path, acknowledged: list[str]) -> None:
    """Every acknowledged turn is in the export once, found by lcm_grep with its root, and the store is whole."""
    run = CliRunner()
    exported = run.invoke(commands, ["sessions", "export", "bot", "--store", str(path)])
    texts = Counter(json.loads(line)["content"] for line in exported.stdout.splitlines())
    for name in acknowledged:
        assert (texts[asked(name)["content"]], texts[answered(name)["content"]]) == (1, 1)
    engine = LCMEngine(WINDOW, store=path)
    engine.on_session_start("bot")
    runs = list(dict.fromkeys(name.rpartition("-")[0] for name in acknowledged))
    roots = engine.store.branches("bot")
    assert [(branch.parent, branch.head) for branch in roots] == [(None, run == runs[-1]) for run in runs]
    for name in acknowledged:
        found = json.loads(engine.handle_tool_call("lcm_grep", {"query": name}))
        branch = roots[runs.index(name.rpartition("-")[0])]
        assert {hit["role"] for hit in found["results"] if name in hit["snippet"]} == {"user", "assistant"}
        assert {hit.get("branch", roots[-1].id) for hit in found["results"] if name in hit["snippet"]} == {branch.id}
    engine.close()
    verified = run.invoke(commands, ["verify", "--store", str(path)])
    assert verified.exit_code == 0, verified.output


@pytest.mark.slow
def test_every_acknowledged_turn_of_a_killed_and_forgetful_host_is_kept(tmp_path: Path) -> None:
    dice = random.Random(5)
    path = tmp_path / "s.db"
    acknowledged = [name for run in range(KILLS) for name in killed_host(path, run, dice.randint(1, MOST_TURNS))]
    check(path, acknowledged)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("of", "name", "defect"),
    [
        (reconciliation, "is_same_conversation", lambda *_: True),
        (messages, "begin_root", lambda _, found, __: found.head),
        (branches, "newest_of_roots", lambda store, info: [one for one in store.branches(info.key) if one.head]),
    ],
    ids=["what a list lacks is undone", "it is stored behind the head", "the head alone is exported"],
)
@pytest.mark.parametrize("run", range(len(GREETINGS)))
def test_the_check_catches_planted_defects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: int, of: Any, name: str, defect: Any
) -> None:
    monkeypatch.setattr(of, name, defect)
    path = tmp_path / "s.db"
    acknowledged = []
    for again in range(2):
        engine = LCMEngine(WINDOW, store=path)
        acknowledged += list(talk(engine, run + again * len(GREETINGS), 3))
        engine.close()
    with pytest.raises(AssertionError):
        check(path, acknowledged)
