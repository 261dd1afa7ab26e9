"""`leporello hermes`: it shows what it will write, and takes out exactly that."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from leporello.config.source import parse

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.cli import Leporello

CONFIGS = {
    "nothing": None,
    "empty": "",
    "only comments": "# nothing here\n",
    "another engine": "context:\n  engine: lcm   # from a plugin\nmodel: {default: x}\n",
    "other plugins": "plugins:\n  # mine\n  enabled:\n    - web   # search\n    - files\n  disabled: []\n",
    "a list on one line": "plugins: {enabled: [web, files], disabled: []}\n",
    "blocks without the keys": "context:\n  other: 1\n\nplugins:\n  disabled: [a]\n# the end\n",
    "an empty list": "plugins:\n  enabled: []\n",
    "an empty block": "plugins:\ncontext:\n",
    "Windows lines": "model:\r\n  default: x\r\nplugins:\r\n  enabled: [web]\r\n",
    "no newline at the end": "model:\n  default: x",
    "no newline behind a list": "plugins:\n  enabled:\n    - web",
}


def home_with(tmp_path: Path, config: str | None) -> Path:
    home = tmp_path / "hermes"
    home.mkdir()
    if config is not None:
        (home / "config.yaml").write_bytes(config.encode())
    return home


def listing(home: Path) -> dict[str, bytes]:
    """Return the files of a home with what is in them, and its folders."""
    return {
        str(file.relative_to(home)): file.read_bytes() if file.is_file() else b"" for file in sorted(home.rglob("*"))
    }


def values(home: Path) -> dict[str, object]:
    return dict(parse((home / "config.yaml").read_text("utf-8")).values)


@pytest.mark.parametrize("name", CONFIGS)
def test_uninstall_leaves_what_was_there(leporello: Leporello, tmp_path: Path, name: str) -> None:
    home = home_with(tmp_path, CONFIGS[name])
    before = listing(home)
    done = leporello("hermes", "install", "--home", home, "--yes")
    assert done.code == 0, done.err
    chosen = values(home)
    assert chosen["context"]["engine"] == "leporello"  # type: ignore[index]
    assert "leporello" in chosen["plugins"]["enabled"]  # type: ignore[index]
    assert leporello("hermes", "uninstall", "--home", home, "--yes").code == 0
    assert listing(home) == before, "to the byte"


def test_without_yes_nothing_is_written(leporello: Leporello, tmp_path: Path) -> None:
    home = home_with(tmp_path, CONFIGS["other plugins"])
    before = listing(home)
    done = leporello("hermes", "install", "--home", home)
    assert (done.code, listing(home)) == (0, before)
    for told in ("plugins/leporello/plugin.yaml", "plugins/leporello/__init__.py", "context.engine: leporello"):
        assert told in done.out
    assert "nothing was changed, add --yes to do it" in done.out


def test_exactly_what_was_shown_is_written(leporello: Leporello, tmp_path: Path) -> None:
    home = home_with(tmp_path, CONFIGS["other plugins"])
    shown = leporello("hermes", "install", "--home", home).out
    assert leporello("hermes", "install", "--home", home, "--yes").code == 0
    written = set(listing(home)) - {"config.yaml", "plugins", "plugins/leporello"}
    assert written == {line.split()[1] for line in shown.splitlines() if line.startswith("  write")}
    assert "# search" in (home / "config.yaml").read_text("utf-8") or "enabled: [web, files, leporello]" in (
        home / "config.yaml"
    ).read_text("utf-8")


def test_the_plugin_names_the_chosen_engine(leporello: Leporello, tmp_path: Path) -> None:
    home = home_with(tmp_path, "")
    leporello("hermes", "install", "--home", home, "--engine", "compressor", "--yes")
    source = (home / "plugins" / "leporello" / "__init__.py").read_text("utf-8")
    compile(source, "plugin", "exec")
    assert 'ENGINE = "compressor"' in source


def test_installing_again_changes_the_engine_and_keeps_what_was_before(leporello: Leporello, tmp_path: Path) -> None:
    home = home_with(tmp_path, CONFIGS["another engine"])
    before = listing(home)
    leporello("hermes", "install", "--home", home, "--yes")
    once = listing(home)
    leporello("hermes", "install", "--home", home, "--yes")
    assert listing(home) == once
    leporello("hermes", "install", "--home", home, "--engine", "compressor", "--yes")
    assert b'ENGINE = "compressor"' in listing(home)["plugins/leporello/__init__.py"]
    leporello("hermes", "uninstall", "--home", home, "--yes")
    assert listing(home) == before


def test_what_the_user_did_since_then_stays(leporello: Leporello, tmp_path: Path) -> None:
    home = home_with(tmp_path, "plugins:\n  enabled: [web]\n")
    leporello("hermes", "install", "--home", home, "--yes")
    config = home / "config.yaml"
    config.write_text(config.read_text("utf-8").replace("engine: leporello", "engine: compressor") + "mine: 1\n")
    (home / "plugins" / "leporello" / "notes.txt").write_text("mine")
    (home / "leporello.db").write_bytes(b"stored")
    done = leporello("hermes", "uninstall", "--home", home, "--yes")
    assert "leporello.db stays" in done.out
    assert values(home) == {"plugins": {"enabled": ["web"]}, "context": {"engine": "compressor"}, "mine": 1}
    kept = {"config.yaml", "leporello.db", "plugins", "plugins/leporello", "plugins/leporello/notes.txt"}
    assert set(listing(home)) == kept


def test_a_plugin_of_a_third_party_is_not_touched(leporello: Leporello, tmp_path: Path) -> None:
    home = home_with(tmp_path, "")
    other = home / "plugins" / "leporello" / "__init__.py"
    other.parent.mkdir(parents=True)
    other.write_text("mine")
    done = leporello("hermes", "install", "--home", home, "--yes")
    assert (done.code, other.read_text()) == (2, "mine")
    assert "another plugin has this folder" in done.err
    assert leporello("hermes", "uninstall", "--home", home, "--yes").code == 2


def test_a_home_that_is_not_there_or_cannot_be_read_is_told(leporello: Leporello, tmp_path: Path) -> None:
    done = leporello("hermes", "install", "--home", tmp_path / "none", "--yes")
    assert (done.code, "there is no such Hermes home" in done.err) == (2, True)
    home = home_with(tmp_path, "plugins: [not, a, block\n")
    before = listing(home)
    done = leporello("hermes", "install", "--home", home, "--yes")
    assert (done.code, listing(home)) == (2, before)
    assert "Traceback" not in done.err


NOT_CHOSEN = {
    "context:\n  engine: a\ncontext:\n  engine: b\n": "given twice",
    "context:\n  engine: a\n  engine: b\n": "given twice",
    "plugins: {enabled: [web]}\nplugins: {enabled: [files]}\n": "given twice",
    "plugins:\n  disabled: [web, leporello]\n": "Take it out first",
    "plugins:\n  enabled: web\n": "not a list",
}


@pytest.mark.parametrize("config", NOT_CHOSEN)
def test_it_is_not_said_to_be_installed_where_hermes_agent_would_not_take_it(
    leporello: Leporello, tmp_path: Path, config: str
) -> None:
    home = home_with(tmp_path, config)
    before = listing(home)
    done = leporello("hermes", "install", "--home", home, "--yes")
    assert (done.code, NOT_CHOSEN[config] in done.err, listing(home)) == (2, True, before)


def test_a_configuration_that_cannot_be_changed_line_by_line_is_left_with_what_to_write(
    leporello: Leporello, tmp_path: Path
) -> None:
    """It is Hermes Agent's file: our own commands for config.yaml say nothing about it."""
    home = home_with(tmp_path, "context: {}\n...\n")
    before = listing(home)
    refused = leporello("hermes", "install", "--home", home, "--yes")
    assert refused.code == 2
    assert "plugins.enabled: the file's layout is too unusual for this command." in refused.err
    assert "Set it to [leporello] in an editor, and repeat this." in refused.err
    assert "leporello config" not in refused.err
    assert listing(home) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="only root writes files of others")
def test_the_owner_of_the_configuration_stays_it(leporello: Leporello, tmp_path: Path) -> None:
    config = home_with(tmp_path, "model: {default: x}\n") / "config.yaml"
    os.chown(config, 12_345, 12_346)
    config.chmod(0o640)
    assert leporello("hermes", "install", "--home", config.parent, "--yes").code == 0
    now = config.stat()
    assert (now.st_uid, now.st_gid, now.st_mode & 0o777) == (12_345, 12_346, 0o640)


def test_one_is_warned_where_hermes_agent_is_not(leporello: Leporello, tmp_path: Path) -> None:
    done = leporello("hermes", "install", "--home", home_with(tmp_path, ""))
    assert "there is no hermes-agent in this environment" in done.err


def test_the_note_has_no_secrets(leporello: Leporello, tmp_path: Path) -> None:
    home = home_with(tmp_path, "model: {api_key: sk-very-secret-1234567890}\n")
    leporello("hermes", "install", "--home", home, "--yes")
    note = json.loads((home / "plugins" / "leporello" / "installed.json").read_text("utf-8"))
    assert (note["engine"], note["enabled"], "sk-very" in json.dumps(note)) == (None, None, False)
