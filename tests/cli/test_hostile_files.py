"""Files that mean harm: refused where they come in; and a bad row that is in a store already stops nothing."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from leporello.plugins.manifest import read_manifest
from leporello.store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.fixtures.cli import Leporello

pytestmark = pytest.mark.slow

ODD_META: list[Any] = ["x", [], 1, {"a": float("nan")}]
ODD_TIMES: list[Any] = [10**400, 1e300, -1e300, float("nan"), float("inf"), "yesterday", True, [], {}]


@pytest.fixture
def export(tmp_path: Path) -> list[dict[str, Any]]:
    store = open_store(tmp_path / "first.db")
    store.append("c", [{"role": "user", "content": f"hello {n}"} for n in range(4)])
    store.delete("c", first=2, last=2)
    lines = [json.loads(line) for line in store.export("c")]
    store.close()
    return lines


def written(tmp_path: Path, lines: list[dict[str, Any]]) -> Path:
    file = tmp_path / "export.jsonl"
    file.write_text("\n".join(json.dumps(line) for line in lines))
    return file


def spoilt(lines: list[dict[str, Any]], place: tuple[Any, ...], value: Any) -> list[dict[str, Any]]:
    target: Any = lines
    for step in place[:-1]:
        target = target[step]
    target[place[-1]] = value
    return lines


SPOILT: list[tuple[Any, Any]] = [
    *((("created",), time) for time in ODD_TIMES),
    *((("ended",), time) for time in ODD_TIMES),
    *((("meta",), meta) for meta in ODD_META),
    (("conversation",), ["c"]), (("owner",), {}), (("conversation",), "\ud800"),
]  # fmt: skip
SPOILT_LINES: list[tuple[Any, Any]] = [
    *(((1, "time"), time) for time in ODD_TIMES),
    *(((1, "place"), place) for place in (float("nan"), float("inf"), 10**400, "1", None)),
    *(((1, "seq"), seq) for seq in (0, 10**30, "1", True)),
    *(((2, "tombstone", "last_seq"), last) for last in (0, 10**30, "3")),
    *(((2, "tombstone", "messages"), count) for count in (-1, 10**30)),
    *(((2, "tombstone", "time"), time) for time in ODD_TIMES),
    *(((2, "tombstone", "chain_after"), chain) for chain in ("xyz", "00", 5)),
    ((2, "tombstone"), "x"), ((-1, "end"), "x"), ((-1, "end", "next_seq"), 10**30),
]  # fmt: skip


@pytest.mark.parametrize(
    ("place", "value"),
    [*(((0, *place), value) for place, value in SPOILT), *SPOILT_LINES],
    ids=lambda value: str(value)[:30],
)
def test_an_import_with_odd_values_is_refused_in_one_line_and_leaves_nothing(
    leporello: Leporello, tmp_path: Path, export: list[dict[str, Any]], place: tuple[Any, ...], value: Any
) -> None:
    store = tmp_path / "s.db"
    done = leporello("import", written(tmp_path, spoilt(export, place, value)), "--store", store)
    assert (done.code, done.err.count("\n"), done.out) == (2, 1, ""), done
    left = list(open_store(store).conversations())
    assert left == []


@pytest.mark.parametrize("options", [[], ["--keep-owners"], ["--owner", "me"], ["--owner", "me", "--keep-owners"]])
def test_an_import_of_another_owner_needs_a_word(
    leporello: Leporello, tmp_path: Path, export: list[dict[str, Any]], options: list[str]
) -> None:
    export[0]["owner"] = "alice"
    done = leporello("import", written(tmp_path, export), "--store", tmp_path / "s.db", *options)
    listed = leporello("sessions", "list", "--store", tmp_path / "s.db", "--json") if done.code == 0 else None
    owners = [one["owner"] for one in listed.json] if listed else []
    wanted = {(): [], ("--keep-owners",): ["alice"], ("--owner", "me"): ["me"]}
    assert owners == wanted.get(tuple(options), [])
    assert "alice" in done.err if not options else True


BAD_ROWS = [
    "meta = 'x'", "meta = '\"x\"'", "meta = '[1]'", "meta = '{\"gateway\": 5}'", "created = 'x', updated = 'y'",
    "updated = 9e999", "updated = -1e300, ended = 'never'", "meta = x'ff00'",
]  # fmt: skip


@pytest.fixture(params=BAD_ROWS)
def bad(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Return a store with a row that no version would write today."""
    file = tmp_path / "bad.db"
    store = open_store(file)
    store.append("good", [{"role": "user", "content": "hello"}])
    store.append("bad", [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "hi"}])
    store.close()
    with closing(sqlite3.connect(file, isolation_level=None)) as connection:
        connection.execute(f"UPDATE conversations SET {request.param} WHERE key = 'bad'")  # noqa: S608 - from above
        connection.execute("UPDATE messages SET time = 'x' WHERE conversation = 2 AND seq = 1")
        connection.execute("UPDATE messages SET time = 1e300 WHERE conversation = 2 AND seq = 2")
    return file


def test_a_bad_row_can_be_listed_shown_exported_and_deleted_and_stops_nothing(
    leporello: Leporello, bad: Path, tmp_path: Path
) -> None:
    at = ("--store", bad)
    assert leporello("sessions", "list", *at).code == 0
    assert {one["id"] for one in leporello("sessions", "list", "--json", *at).json} == {"good", "bad"}
    assert leporello("sessions", "show", "bad", *at).code == 0
    assert leporello("gc", "--older-than", "1d", *at).code == 0
    assert leporello("verify", *at).code == 0
    assert leporello("grep", "hello", *at).code == 0
    bundle = tmp_path / "out.jsonl"
    assert leporello("sessions", "export", "bad", "--bundle", "--output", bundle, *at).code == 0
    assert leporello("import", bundle, "--store", tmp_path / "again.db").code == 0
    assert leporello("sessions", "delete", "bad", "--yes", *at).code == 0
    assert leporello("gc", "--purge", *at).code == 0
    assert [one["id"] for one in leporello("sessions", "list", "--json", *at).json] == ["good"]


def test_a_bad_row_does_not_keep_the_gateway_from_starting(bad: Path, tmp_path: Path) -> None:
    environ = {**os.environ, "LEPORELLO_HOME": str(tmp_path / "home")}
    command = [sys.executable, "-m", "leporello", "serve", "--demo", "--port", "0", "--store", str(bad)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environ) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        process.terminate()
        assert "leporello gateway on" in said, process.stderr and process.stderr.read()


def aliases(levels: int) -> str:
    rows = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, levels)]
    return "\n".join(["a0: &a0 [x, x, x, x, x, x, x, x, x]", *rows])


def pipe(file: Path) -> None:
    os.mkfifo(file)


HOSTILE: dict[str, Callable[[Path], object]] = {
    "aliases of aliases": lambda file: file.write_text(aliases(30)),
    "a list of aliases": lambda file: file.write_text(f"- &a0 [x]\n- &a1 [*a0]\n- {aliases(30)[4:]}"),
    "a name of aliases": lambda file: file.write_text(aliases(30) + "\nname: *a29\n"),
    "deep": lambda file: file.write_text("name: " + "[" * 30_000),
    "deep blocks": lambda file: file.write_text("\n".join(" " * n + "a:" for n in range(300))),
    "wide": lambda file: file.write_text("[" + "x," * 30_000),
    "large": lambda file: file.write_bytes(b"a: b\n" * 200_000),
    "a pipe": pipe,
    "a device": lambda file: file.symlink_to("/dev/zero"),
    "a folder": lambda file: file.mkdir(),
    "a link to itself": lambda file: file.symlink_to(file),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_manifest_stops_no_command(leporello: Leporello, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "home" / "plugins" / "context_engine" / "alpha"
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    HOSTILE[kind](folder / "plugin.yaml")
    assert leporello("doctor").code in (0, 1)
    assert "alpha" in leporello("plugins", "list").out
    assert len(str(read_or_none(folder))) < 2_000


def read_or_none(folder: Path) -> object:
    from leporello.errors import PluginError

    try:
        return read_manifest(folder)
    except PluginError as error:
        return error


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_configuration_is_one_message(leporello: Leporello, tmp_path: Path, kind: str) -> None:
    (tmp_path / "home").mkdir()
    HOSTILE[kind](tmp_path / "home" / "config.yaml")
    done = leporello("config", "check")
    assert done.code in (1, 2)
    assert 0 < len(done.out + done.err) < 20_000


@pytest.mark.parametrize("kind", [kind for kind in HOSTILE if kind != "large"])
def test_a_hostile_transcript_is_one_line(leporello: Leporello, tmp_path: Path, kind: str) -> None:
    HOSTILE[kind](tmp_path / "talk.jsonl")
    done = leporello("import", tmp_path / "talk.jsonl", "--store", tmp_path / "s.db")
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1


def test_a_store_that_is_a_pipe_is_refused(leporello: Leporello, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "s.db")
    for command in (("sessions", "list"), ("verify",), ("gc", "--purge")):
        done = leporello(*command, "--store", tmp_path / "s.db")
        assert done.code in (1, 2)
        assert "not a regular file" in done.out + done.err
