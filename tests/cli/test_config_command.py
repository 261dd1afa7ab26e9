"""`leporello config`, as a user types it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result
from inline_snapshot import snapshot

from leporello.cli.config import command
from leporello.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    monkeypatch.setenv("LEPORELLO_HOME", str(folder))
    return folder


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


def printed(*arguments: str) -> str:
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def write(file: Path, text: str) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def test_a_value_goes_in_and_comes_out(home: Path) -> None:
    assert printed("get", "compression.threshold") == "0.5\n"
    assert printed("set", "compression.threshold", "0.6") == f"compression.threshold is now 0.6 in {home}/config.yaml\n"
    assert printed("get", "compression.threshold") == "0.6\n"
    assert printed("unset", "compression.threshold").startswith("compression.threshold is no longer set in ")
    assert printed("get", "compression.threshold") == "0.5\n"


def test_get_writes_values_for_shells_and_programs(tmp_path: Path) -> None:
    file = str(write(tmp_path / "c.yaml", "model: {default: 'yes'}\nplugins: {enabled: [a, b]}\n"))
    assert printed("get", "model.default", "--config", file) == "yes\n"
    assert printed("get", "model.base_url", "--config", file) == "null\n"
    assert printed("get", "plugins.enabled", "--config", file) == "[a, b]\n"
    assert printed("get", "compression.enabled", "--config", file) == "true\n"
    assert printed("get", "prompt_caching", "--config", file) == 'cache_ttl: "5m"\nstrategy: system_and_3\n'
    assert json.loads(printed("get", "plugins", "--json", "--config", file)) == {"enabled": ["a", "b"], "paths": []}


def test_a_negative_number_is_a_value_and_no_option() -> None:
    result = run("set", "compression.max_calls", "-1")
    assert isinstance(result.exception, ConfigError)
    assert "not -1" in str(result.exception)


def test_show_tells_defaults_from_the_file(tmp_path: Path) -> None:
    text = (
        "compression:\n  threshold: 0.6\ncontext: {engine: mine}\nmine:\n  api_key: x\n  url: postgresql://me:pw@h/db\n"
    )
    file = write(tmp_path / "c.yaml", text)
    lines = printed("show", "--config", str(file)).splitlines()
    assert lines[0] == str(file)
    assert [line for line in lines[1:] if not line.endswith("default")] == snapshot(
        [
            "  context.engine                               mine                         line 3",
            "  compression.threshold                        0.6                          line 2",
            '  mine.api_key                                 "***"                        line 5',
            '  mine.url                                     "postgresql://me:***@h/db"   line 6',
        ]
    )
    assert len([line for line in lines if line.endswith("default")]) == 57


def test_show_as_json(tmp_path: Path) -> None:
    file = write(tmp_path / "c.yaml", "compression:\n  threshold: 0.6\n")
    shown = json.loads(printed("show", "--json", "--config", str(file)))
    assert shown["path"] == str(file)
    assert shown["values"]["compression.threshold"] == {"value": 0.6, "source": "file", "line": 2}
    assert shown["values"]["compression.enabled"] == {"value": True, "source": "default", "line": None}


def test_show_without_a_file(home: Path) -> None:
    assert printed("show").startswith(f"{home}/config.yaml does not exist; these are the defaults\n")
    assert not home.exists()


def test_path_names_the_file_that_is_used(home: Path) -> None:
    assert printed("path") == f"{home}/config.yaml\n"
    assert printed("path", "--config", "x.yaml") == "x.yaml\n"


def test_check_reports_every_problem(tmp_path: Path) -> None:
    file = write(tmp_path / "c.yaml", "compression:\n  treshold: 0.5\n  enabled: yes\n")
    result = run("check", "--config", str(file))
    assert result.exit_code == 1
    assert result.stdout.replace(str(tmp_path), "…") == snapshot("""\
…/c.yaml:
  line 2, compression.treshold: this key is unknown. Did you mean compression.threshold?
  line 3, compression.enabled: must be true or false, not "yes". Write true.
""")
    as_json = run("check", "--json", "--config", str(file))
    assert as_json.exit_code == 1
    assert json.loads(as_json.stdout)["problems"][1] == snapshot(
        {"line": 3, "key": "compression.enabled", "problem": 'must be true or false, not "yes".', "hint": "Write true."}
    )


def test_check_of_a_correct_file_and_of_none(tmp_path: Path, home: Path) -> None:
    file = write(tmp_path / "c.yaml", "compression: {threshold: 0.5}\n")
    assert printed("check", "--config", str(file)) == f"{file}: correct\n"
    assert printed("check") == f"{home}/config.yaml: there is no file; the defaults are in force\n"
    assert json.loads(printed("check", "--json")) == {"path": f"{home}/config.yaml", "ok": True, "problems": []}
    assert run("check", "--config", str(tmp_path / "none.yaml")).exit_code == 1


def test_unset_of_what_is_not_there_is_exit_code_1() -> None:
    result = run("unset", "compression.threshold")
    assert (result.exit_code, "is not set in" in result.stderr) == (1, True)


@pytest.mark.parametrize("name", ["get", "set", "unset", "show", "path", "check"])
def test_every_help_has_an_example(name: str) -> None:
    assert "leporello config " + name in printed(name, "--help").replace('$EDITOR "$(', "")


def leporello(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the real command in a process of its own."""
    code = "from leporello.cli.main import main; main()"
    environ = {**os.environ, "LEPORELLO_HOME": str(home)}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], env=environ, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("context: [", ("get", "context.engine")),
        ("context:\n  engine: a\n  engine: b\n", ("set", "context.engine", "lcm")),
        ("", ("get", "compression.treshold")),
        ("", ("set", "openai_api_key", "sk-1234567890abcdefghij")),
        ("", ("show", "--config", "/nowhere/config.yaml")),
        ("", ("set", "model.default")),
    ],
)
def test_a_users_mistake_is_exit_code_2_and_no_traceback(home: Path, text: str, arguments: tuple[str, ...]) -> None:
    write(home / "config.yaml", text)
    result = leporello(home, "config", *arguments)
    assert result.returncode == 2
    assert result.stderr.startswith(("leporello: ", "Usage: "))
    assert "Traceback" not in result.stderr
    assert (home / "config.yaml").read_text() == text


def test_check_refuses_a_summariser_without_an_address_with_its_line(home: Path) -> None:
    file = write(home / "config.yaml", "auxiliary:\n  compression:\n    provider: nous\n")
    result = run("check")
    assert result.exit_code == 1
    assert "line 3, auxiliary.compression.provider: the address of 'nous' is not known here." in result.stdout
    file.write_text(file.read_text() + "    base_url: https://inference.example/v1\n    model: hermes-4\n")
    assert printed("check") == f"{file}: correct\n"


FOREIGN = """\
from agent.context_engine import ContextEngine

class Engine(ContextEngine):
    name = "lcm"

    def update_from_response(self, usage):
        pass

    def should_compress(self, prompt_tokens=None):
        return False

    def compress(self, messages, current_tokens=None, focus_topic=None):
        return list(messages)

def register(ctx):
    ctx.register_context_engine(Engine())
"""
CHOSEN = "context:\n  engine: lcm\nlcm:\n  context_threshold: 0.6\n"


class TestAForeignEngineCalledLcm:
    """Its block is its own: every command works with it."""

    @pytest.fixture(params=["folder", "plugin", "not chosen", "plugin, not chosen"])
    def file(self, request: pytest.FixtureRequest, home: Path) -> Path:
        text = CHOSEN
        if request.param == "folder":
            write(home / "plugins/context_engine/lcm/__init__.py", FOREIGN)
        if request.param.startswith("plugin"):
            write(home / "plugins/hermes-like/__init__.py", FOREIGN)
            text += "plugins:\n  enabled: [hermes-like]\n"
        if request.param.endswith("not chosen"):
            text = text.replace("engine: lcm", "engine: compressor")
        return write(home / "config.yaml", text)

    def test_check_show_and_get(self, file: Path) -> None:
        assert printed("check") == f"{file}: correct\n"
        assert printed("get", "lcm.context_threshold") == "0.6\n"
        shown = json.loads(printed("show", "--json"))["values"]
        lines = {key: row["line"] for key, row in shown.items() if key.startswith("lcm.")}
        assert lines == {"lcm.context_threshold": 4}

    def test_get_of_a_key_that_is_not_there(self, file: Path) -> None:
        result = run("get", "lcm.threshold")
        assert isinstance(result.exception, ConfigError)
        assert "the file does not set this key. The block is the engine's own; it holds context_threshold." in str(
            result.exception
        )

    def test_set_and_unset(self, file: Path) -> None:
        printed("set", "lcm.context_threshold", "0.7")
        printed("set", "lcm.patterns", "[a, b]")
        assert json.loads(printed("get", "lcm", "--json")) == {"context_threshold": 0.7, "patterns": ["a", "b"]}
        printed("unset", "lcm.patterns")
        assert json.loads(printed("get", "lcm", "--json")) == {"context_threshold": 0.7}

    @pytest.mark.slow
    @pytest.mark.parametrize(
        "arguments",
        [("doctor",), ("plugins", "list"), ("plugins", "list", "--json"), ("gc", "--help"), ("config", "path")],
    )
    def test_every_other_command(self, file: Path, arguments: tuple[str, ...]) -> None:
        done = subprocess.run(
            [sys.executable, "-m", "leporello", *arguments], capture_output=True, text=True, timeout=120, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")


def test_our_own_block_is_checked_when_our_engine_is_chosen(home: Path) -> None:
    write(home / "config.yaml", CHOSEN)
    assert "line 4, lcm.context_threshold: this key is unknown." in run("check").stdout
    write(home / "plugins/p1/__init__.py", FOREIGN.replace('"lcm"', '"other"'))
    write(home / "config.yaml", CHOSEN + "plugins:\n  enabled: [p1]\n")
    result = run("check")
    assert (result.exit_code, "lcm.context_threshold: this key is unknown." in result.stdout) == (1, True)


def test_a_key_that_our_engine_lacks_is_not_written_where_no_other_can_be_meant(home: Path) -> None:
    result = run("set", "lcm.treshold", "0.5")
    assert isinstance(result.exception, ConfigError)
    assert "Did you mean lcm.threshold?" in str(result.exception)
