"""`leporello backup`: the copy is a store of its own, and nothing is overwritten."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.cli import Leporello


def test_the_copy_is_whole_and_for_its_owner_alone(leporello: Leporello, folded: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    done = leporello("backup", copy, "--store", folded, "--json")
    assert done.json == {"path": str(copy), "bytes": copy.stat().st_size}
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    folded.unlink()
    assert leporello("verify", "--store", copy).code == 0
    assert leporello("grep", "PORT-2291", "--store", copy).code == 0


def test_an_existing_file_is_never_overwritten(leporello: Leporello, folded: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    done = leporello("backup", tmp_path / "notes.txt", "--store", folded)
    assert (done.code, "there is a file already" in done.err) == (2, True)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_folder_gets_a_file_named_after_the_moment(leporello: Leporello, folded: Path, tmp_path: Path) -> None:
    (tmp_path / "backups").mkdir()
    assert leporello("backup", tmp_path / "backups", "--store", folded).code == 0
    (copy,) = (tmp_path / "backups").iterdir()
    assert copy.name.startswith("leporello-2")
    assert leporello("verify", "--store", copy).code == 0


def test_a_folder_that_is_missing_is_made(leporello: Leporello, folded: Path, tmp_path: Path) -> None:
    """A slash says that it is a folder; every further backup is a file of its own in it."""
    folder = tmp_path / "new" / "backups"
    assert leporello("backup", f"{folder}/", "--store", folded).code == 0
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (copy,) = folder.iterdir()
    assert leporello("verify", "--store", copy).code == 0
    refused = leporello("backup", f"{copy}/", "--store", folded)
    assert (refused.code, "this folder cannot be made" in refused.err) == (2, True)


@pytest.mark.parametrize(
    "command",
    [
        ["grep", "x"],
        ["describe", "n1"],
        ["expand", "n1"],
        ["verify"],
        ["backup", "copy.db"],
        ["backup", "copies/"],
        ["gc", "--older-than", "1d"],
        ["sessions", "list"],
        ["sessions", "show", "x"],
        ["sessions", "export", "x"],
        ["sessions", "delete", "x"],
    ],
    ids=" ".join,
)
def test_a_missing_store_is_told_and_not_created(leporello: Leporello, tmp_path: Path, command: list[str]) -> None:
    missing = tmp_path / "folder" / "none.db"
    done = leporello(*command, "--store", missing)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"leporello: {missing}: there is no such store; ")
    assert not missing.parent.exists()
    assert leporello(*command).code == 2, "the default store does not exist either"
    assert not (tmp_path / "home").exists()


@pytest.mark.slow
@pytest.mark.parametrize("address", [":memory:", "postgresql://me:secret@host/db", "mysql://host/db", "/"])
def test_an_address_that_cannot_be_used_is_told_without_a_traceback(address: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from leporello.cli import main; main()", "sessions", "list", "--store", address],
        env={**os.environ, "LEPORELLO_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "secret" not in done.stderr


def test_the_store_of_the_configuration_is_the_default(leporello: Leporello, folded: Path, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.yaml").write_text(f"store:\n  url: {folded}\n")
    assert leporello("sessions", "show", "harbour").code == 0
    assert leporello("sessions", "list", "--store", f"sqlite:///{folded}").code == 0
