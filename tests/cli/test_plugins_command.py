"""`leporello plugins`, run as users run it."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest
from inline_snapshot import snapshot
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from leporello.cli.picker import pick
from leporello.plugins.new import files

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

COMMAND = [sys.executable, "-c", "from leporello.cli import main; main()"]
BROKEN = "\n\nMyEngine.compress = lambda self, messages, current_tokens=None, focus_topic=None: messages[-1:]\n"
TRAP = "from pathlib import Path\nPath(__file__).with_name('ran').write_text('')\n"


class Terminal:
    """A home folder, and the command in processes of their own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.environ = {
            key: value for key, value in os.environ.items() if not key.endswith("_API_KEY") and key != "PYTEST_VERSION"
        } | {"LEPORELLO_HOME": str(home), "TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", "PYTHONWARNINGS": "default"}

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.command("plugins", *arguments)

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *arguments],
            env=self.environ,
            cwd=self.home.parent,
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=120,
            check=False,
        )

    def type(self, keys: bytes, *arguments: str, until: str) -> str:
        """Run the command on a terminal, type once `until` is on the screen, and return everything that was shown."""
        process_end, our_end = pty.openpty()[::-1]
        with subprocess.Popen(
            [*COMMAND, "plugins", *arguments],
            env=self.environ,
            cwd=self.home.parent,
            stdin=process_end,
            stdout=process_end,
            stderr=process_end,
            close_fds=True,
        ) as process:
            os.close(process_end)
            shown = self._read(our_end, until)
            os.write(our_end, keys)
            shown += self._read(our_end, "")
            process.wait(timeout=60)
        os.close(our_end)
        return shown

    def _read(self, terminal: int, until: str) -> str:
        """Read until a text was shown, or, without one, until the process closes its side."""
        shown, deadline = b"", time.monotonic() + 60
        while time.monotonic() < deadline and (not until or until.encode() not in shown):
            if not select.select([terminal], [], [], 1)[0]:
                continue
            try:
                shown += os.read(terminal, 4096)
            except OSError:
                break
        return shown.decode(errors="replace")

    def engine(self, name: str, extra: str = "", *, parent: Path | None = None) -> Path:
        folder = (parent or self.home / "plugins" / "context_engine") / name
        folder.mkdir(parents=True)
        for file, text in files(name).items():
            (folder / file).write_text(text + (extra if file == "__init__.py" else ""))
        return folder

    @property
    def config(self) -> str:
        return (self.home / "config.yaml").read_text()


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path / "home")


def test_list_shows_what_there_is_and_marks_the_current_one(terminal: Terminal) -> None:
    terminal.engine("alpha", TRAP)
    done = terminal.run("list")
    assert done.returncode == 0
    assert "\n".join(line.rstrip() for line in done.stdout.splitlines()) == snapshot("""\
Provider Plugins → Context Engine
   name        version  from      what it is
●  compressor           built-in  Summarises the middle of a long conversation.
   alpha       0.1.0    home      Keeps the newest turns of a conversation that fit, and a summary of the older ones.
   lcm         0.1.0    shipped   Keeps every message and folds the older ones; all can be searched and unfolded.\
""")


def test_without_a_terminal_the_list_and_a_hint_are_printed(terminal: Terminal) -> None:
    done = terminal.run()
    assert done.returncode == 0
    assert "Provider Plugins → Context Engine" in done.stdout
    assert "leporello plugins use NAME" in done.stdout


def test_list_as_json_and_without_running_anything(terminal: Terminal) -> None:
    folder = terminal.engine("alpha", TRAP)
    listed = json.loads(terminal.run("list", "--json").stdout)
    assert listed["engine"] == "compressor"
    assert [one["name"] for one in listed["found"]] == ["compressor", "alpha", "lcm"]
    assert listed["found"][1]["path"] == str(folder)
    assert not (folder / "ran").exists()


def test_list_says_that_the_current_one_is_not_there(terminal: Terminal) -> None:
    terminal.home.mkdir()
    (terminal.home / "config.yaml").write_text("context:\n  engine: gone\n")
    assert "gone (not found)" in terminal.run("list").stdout


def test_use_writes_the_configuration_and_keeps_the_rest_of_it(terminal: Terminal) -> None:
    terminal.engine("alpha")
    other = terminal.engine("beta", TRAP)
    (terminal.home / "config.yaml").write_text("# mine\ncontext:\n  engine: compressor  # why\n")
    done = terminal.run("use", "alpha")
    assert (done.returncode, done.stderr) == (0, "")
    assert "context.engine is now alpha" in done.stdout
    assert terminal.config.startswith("# mine\ncontext:\n  engine:")
    assert "alpha" in terminal.config
    assert "# why" in terminal.config
    assert not (other / "ran").exists(), "only the engine that is chosen is run"


@pytest.mark.parametrize(
    ("code", "cause"), [("\nimport no_such_module\n", "no_such_module"), ("\n1 / 0\n", "ZeroDivisionError")]
)
def test_an_engine_that_cannot_be_loaded_is_not_chosen(terminal: Terminal, code: str, cause: str) -> None:
    terminal.engine("alpha", code)
    for command in (("plugins", "use", "alpha"), ("config", "set", "context.engine", "alpha")):
        done = terminal.command(*command)
        assert done.returncode == 2
        assert cause in done.stderr
        assert "Traceback" not in done.stderr
        assert not (terminal.home / "config.yaml").exists()
    assert cause in terminal.type(b"j\r", until="Enter chooses")
    assert not (terminal.home / "config.yaml").exists()


def test_use_refuses_what_is_not_there_and_writes_nothing(terminal: Terminal) -> None:
    terminal.engine("alpha")
    done = terminal.run("use", "alfa")
    assert done.returncode == 2
    assert "there is no engine of that name" in done.stderr
    assert "did you mean 'alpha'?" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (terminal.home / "config.yaml").exists()


def test_use_takes_an_engine_that_an_enabled_plugin_registers(terminal: Terminal) -> None:
    terminal.engine("alpha", "\n\ndef register(ctx):\n    ctx.register_context_engine(AlphaEngine)\n").rename(
        terminal.home / "plugins" / "p1"
    )
    (terminal.home / "config.yaml").write_text("plugins:\n  enabled: [p1]\n")
    assert terminal.run("use", "alpha").returncode == 0
    assert "alpha" in terminal.config


def plugin(terminal: Terminal, name: str, engine: str) -> Path:
    """Write an enabled plugin that registers an engine."""
    code = (
        f"\n\nclass Own(MyEngine):\n    name = {engine!r}\n\ndef register(ctx):\n    ctx.register_context_engine(Own)\n"
    )
    folder = terminal.home / "plugins" / name
    terminal.engine("my", code).rename(folder)
    (terminal.home / "config.yaml").write_text(f"plugins:\n  enabled: [{name}]\n")
    return folder


def test_the_engines_of_enabled_plugins_are_listed_and_can_be_picked(terminal: Terminal) -> None:
    folder = plugin(terminal, "p1", "alpha")
    listed = json.loads(terminal.run("list", "--json").stdout)["found"]
    assert [(one["name"], one["kind"], one["origin"]) for one in listed] == [
        ("compressor", "built-in", "built-in"),
        ("alpha", "engine", "plugin p1"),
        ("lcm", "engine", "shipped"),
        ("p1", "plugin", "home"),
    ]
    assert listed[1]["path"] == str(folder)
    assert "alpha" in terminal.run("list").stdout
    shown = terminal.type(b"j\r", until="Enter chooses")
    assert "○ alpha" in shown
    assert "context.engine is now alpha" in shown
    assert "● alpha" in terminal.type(b"q", until="Enter chooses")


def test_the_list_says_which_engine_takes_precedence(terminal: Terminal) -> None:
    plugin(terminal, "p1", "lcm")
    (found,) = [one for one in json.loads(terminal.run("list", "--json").stdout)["found"] if one["name"] == "lcm"]
    assert found["origin"] == "plugin p1"
    assert [place.split("/")[-3:] for place in found["shadows"]] == [["shipped", "context_engine", "lcm"]]
    assert "(takes precedence over" in terminal.run("list").stdout


def test_use_refuses_a_folder_without_code(terminal: Terminal) -> None:
    (terminal.engine("alpha") / "__init__.py").unlink()
    done = terminal.run("use", "alpha")
    assert (done.returncode, "has no __init__.py" in done.stderr) == (2, True)


@pytest.mark.parametrize(
    ("keys", "expected"), [(b"\x1b[B\r", "alpha"), (b"j\r", "alpha"), (b"\x1b[A\r", "lcm"), (b"jj\r", "beta")]
)
def test_the_picker_writes_what_is_chosen(terminal: Terminal, keys: bytes, expected: str) -> None:
    terminal.engine("alpha")
    terminal.engine("beta")
    shown = terminal.type(keys, until="Enter chooses")
    assert "Provider Plugins → Context Engine" in shown
    assert "● compressor (default)" in shown
    assert "Summarises the middle of a long conversation." in shown
    assert f"context.engine is now {expected}" in shown
    assert expected in terminal.config


@pytest.mark.parametrize("keys", [b"q", b"\x03", b"\r"])
def test_the_picker_leaves_everything_as_it_is(terminal: Terminal, keys: bytes) -> None:
    terminal.engine("alpha")
    assert "context.engine stays compressor" in terminal.type(keys, until="Enter chooses")
    assert not (terminal.home / "config.yaml").exists()


def test_the_picker_shows_an_unknown_current_value(terminal: Terminal) -> None:
    terminal.home.mkdir()
    (terminal.home / "config.yaml").write_text("context:\n  engine: gone\n")
    shown = terminal.type(b"\x1b[A\x1b[A\r", until="Enter chooses")
    assert "● gone (not found)" in shown
    assert "context.engine is now compressor" in shown


def test_the_picker_goes_round(terminal: Terminal) -> None:
    with create_pipe_input() as keys:
        keys.send_text("jjj\r")
        assert pick("title", ["a", "b"], terminal=(keys, DummyOutput())) == 1


def test_new_writes_an_engine_that_passes_its_own_check(terminal: Terminal) -> None:
    done = terminal.run("new", "my-engine", "--path", "engines")
    folder = terminal.home.parent / "engines" / "my-engine"
    assert sorted(file.name for file in folder.iterdir()) == ["__init__.py", "plugin.yaml", "test_engine.py"]
    assert f"leporello plugins check {folder.relative_to(terminal.home.parent)}" in done.stdout
    checked = terminal.run("check", "engines/my-engine", "--json")
    assert (checked.returncode, checked.stderr) == (0, "")
    report = json.loads(checked.stdout)
    assert report["ok"]
    assert {result["status"] for result in report["checks"]} == {"passed"}, "a newcomer ends with all green"
    again = terminal.run("new", "my-engine", "--path", "engines")
    assert (again.returncode, "exists already" in again.stderr) == (2, True)


def test_new_without_a_path_writes_into_the_home_folder(terminal: Terminal) -> None:
    assert terminal.run("new", "my-engine").returncode == 0
    assert terminal.home.stat().st_mode & 0o077 == 0, "other users cannot read what is kept there"
    assert terminal.run("use", "my-engine").returncode == 0


def test_check_finds_a_planted_defect(terminal: Terminal) -> None:
    terminal.engine("my-engine", BROKEN)
    done = terminal.run("check", "my-engine", "--conversations", "2")
    assert done.returncode == 1
    assert "✗ valid " in done.stdout
    assert not re.search(r"\bV\d+\b", done.stdout), "numbers of promises are for contributors"
    assert "failed" in done.stdout
    assert "✓ contract" in done.stdout


def test_check_says_why_an_engine_cannot_be_loaded(terminal: Terminal) -> None:
    folder = terminal.engine("alpha", "\nimport surely_not_installed\n", parent=terminal.home.parent)
    done = terminal.run("check", str(folder))
    assert done.returncode == 2
    assert "No module named 'surely_not_installed'" in done.stderr
    assert "Traceback" not in done.stderr


def test_check_says_that_there_is_no_such_folder(terminal: Terminal) -> None:
    done = terminal.run("check", "./nowhere")
    assert (done.returncode, "there is no such folder" in done.stderr) == (2, True)


def test_check_says_what_is_odd_in_one_line(terminal: Terminal) -> None:
    folder = terminal.engine("alpha", BROKEN.replace("MyEngine", "AlphaEngine"), parent=terminal.home.parent)
    folder.rename(folder.with_name("beta"))
    done = terminal.run("check", str(folder.with_name("beta")), "--conversations", "1")
    assert done.returncode == 1
    assert done.stderr.startswith("leporello: plugin 'beta'")
    assert "its engine calls itself 'alpha'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_broken_configuration_is_one_line(terminal: Terminal) -> None:
    terminal.home.mkdir()
    (terminal.home / "config.yaml").write_text("context: [\n")
    for arguments in ((), ("list",), ("use", "alpha"), ("check", "alpha")):
        done = terminal.run(*arguments)
        assert done.returncode == 2, arguments
        assert "Traceback" not in done.stderr
        assert "config.yaml" in done.stderr


@pytest.mark.parametrize("arguments", [(), ("list",), ("use",), ("new",), ("check",)])
def test_every_help_has_an_example(terminal: Terminal, arguments: tuple[str, ...]) -> None:
    assert "Example: leporello plugins" in terminal.run(*arguments, "--help").stdout
