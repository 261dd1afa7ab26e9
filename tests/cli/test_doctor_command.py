"""`leporello doctor`: whatever is wrong is a finding, and keys are never shown."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from leporello.plugins.new import files

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

KEY = "sk-proj-surely-a-secret-1234567890"
TRAP = "from pathlib import Path\nPath(__file__).with_name('ran').write_text('')\n"


def doctor(home: Path, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.endswith("_API_KEY")}
    return subprocess.run(
        [sys.executable, "-c", "from leporello.cli import main; main()", "doctor", *arguments],
        env=environment | {"LEPORELLO_HOME": str(home)} | environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def report(home: Path, *arguments: str, **environ: str) -> dict[str, Any]:
    done = doctor(home, "--json", *arguments, **environ)
    assert "Traceback" not in done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == (0 if found["ok"] else 1)
    return found


def findings(home: Path, section: str, **environ: str) -> list[tuple[str, str, str]]:
    return [
        (one["subject"], one["status"], one["detail"])
        for one in report(home, **environ)["findings"]
        if one["section"] == section
    ]


def engine(home: Path, name: str, extra: str = "") -> Path:
    folder = home / "plugins" / "context_engine" / name
    folder.mkdir(parents=True)
    for file, text in files(name).items():
        (folder / file).write_text(text + (extra if file == "__init__.py" else ""))
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home").mkdir(mode=0o700)
    return tmp_path / "home"


def test_a_fresh_installation_is_healthy(tmp_path: Path) -> None:
    found = report(tmp_path / "none")
    assert found["ok"]
    assert {one["section"] for one in found["findings"]} == {
        "versions",
        "home",
        "configuration",
        "keys",
        "agents",
        "plugins",
        "engine",
        "summariser",
        "store",
    }
    assert {one["subject"] for one in found["findings"] if one["section"] == "versions"} == {
        "python",
        "leporello",
        "openai",
        "anthropic",
        "sqlite",
    }
    assert not (tmp_path / "none").exists(), "looking makes nothing"


def test_the_report_for_people_ends_with_a_verdict(home: Path) -> None:
    done = doctor(home)
    assert done.returncode == 0
    assert done.stdout.endswith("no problems\n")
    (home / "config.yaml").write_text("context:\n  engine: gone\n")
    done = doctor(home)
    assert done.returncode == 1
    assert done.stdout.endswith("1 problem\n")
    assert "✗ gone: it cannot be used as an engine." in done.stdout


def test_keys_are_told_but_never_shown(home: Path) -> None:
    done = doctor(home, OPENAI_API_KEY=KEY)
    assert "✓ OPENAI_API_KEY: set" in done.stdout
    assert "· ANTHROPIC_API_KEY: not set" in done.stdout
    assert KEY not in done.stdout + done.stderr + doctor(home, "--json", OPENAI_API_KEY=KEY).stdout


def test_broken_yaml_is_a_finding(home: Path) -> None:
    (home / "config.yaml").write_text("context: [\n")
    [(subject, status, detail)] = findings(home, "configuration")
    assert (subject, status) == (str(home / "config.yaml"), "problem")
    assert detail.startswith("line "), "the file is named before it"


def test_every_problem_of_the_file_is_a_finding(home: Path) -> None:
    (home / "config.yaml").write_text("contxt: {}\ncompression:\n  threshold: 7\n")
    assert [status for _, status, _ in findings(home, "configuration")] == ["problem", "problem"]


def test_a_home_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    [(_, status, detail)] = findings(tmp_path / "home", "home")
    assert (status, detail) == ("problem", "is not a folder")


def test_a_home_below_a_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    [(_, status, detail)] = findings(tmp_path / "file" / "home", "home")
    assert (status, detail) == ("problem", "cannot be read: Not a directory")


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_home_that_cannot_be_read(home: Path) -> None:
    home.chmod(0)
    [(_, status, _)] = findings(home, "home")
    home.chmod(0o700)
    assert status == "problem"


def test_a_home_of_nobody(home: Path) -> None:
    [(subject, status, _)] = findings(home, "home", LEPORELLO_HOME="~nobody-of-that-name/x")
    assert (subject, status) == ("LEPORELLO_HOME", "problem")


def test_an_open_home_is_a_warning(home: Path) -> None:
    home.chmod(0o755)
    [(_, status, detail)] = findings(home, "home")
    assert (status, "chmod 700" in detail) == ("warning", True)


def test_only_the_chosen_engine_is_loaded(home: Path) -> None:
    trap = engine(home, "trap", TRAP)
    engine(home, "alpha")
    (home / "config.yaml").write_text("context:\n  engine: alpha\n")
    assert ("alpha", "ok", "loads (AlphaEngine)") in findings(home, "engine")
    assert not (trap / "ran").exists()
    (home / "config.yaml").write_text("context:\n  engine: trap\n")
    report(home)
    assert (trap / "ran").exists(), "the trap works: the chosen one is loaded"


def test_a_chosen_engine_that_fails_is_told_with_file_and_line(home: Path) -> None:
    folder = engine(home, "alpha", "\nraise RuntimeError('boom')\n")
    (home / "config.yaml").write_text("context:\n  engine: alpha\n")
    line = len((folder / "__init__.py").read_text().splitlines())
    [(_, status, detail)] = findings(home, "engine")
    assert status == "problem"
    assert f"({folder / '__init__.py'}, line {line}): importing it failed: RuntimeError: boom" in detail


def test_a_broken_engine_that_nobody_chose_is_a_warning(home: Path) -> None:
    (engine(home, "alpha") / "__init__.py").unlink()
    assert [status for subject, status, _ in findings(home, "plugins") if subject == "alpha"] == ["warning"]


def test_what_the_configuration_names_must_be_there(home: Path) -> None:
    (home / "config.yaml").write_text("plugins:\n  enabled: [gone]\n  paths: [nowhere]\n")
    problems = [(subject, detail) for subject, status, detail in findings(home, "plugins") if status == "problem"]
    assert problems == [
        (str(home / "nowhere"), "does not exist"),
        ("gone", "plugins.enabled names it, but it is not installed"),
    ]


def test_oddities_of_the_chosen_engine_are_warnings(home: Path) -> None:
    engine(home, "alpha").rename(home / "plugins" / "context_engine" / "beta")
    (home / "config.yaml").write_text("context:\n  engine: beta\n")
    assert ("beta", "warning") in [(subject, status) for subject, status, _ in findings(home, "engine")]


def test_an_engine_that_takes_precedence_is_shown_with_its_folder(home: Path) -> None:
    folder = engine(home, "lcm")
    (home / "config.yaml").write_text("context:\n  engine: lcm\n")
    (found,) = [one for one in findings(home, "plugins") if one[0] == "lcm"]
    assert found[1] == "ok"
    assert f"{folder}; takes precedence over " in found[2]
    assert any(str(folder) in detail for _, _, detail in findings(home, "engine"))


def test_an_unknown_window_is_told(home: Path) -> None:
    (home / "config.yaml").write_text("model:\n  default: nobody-knows-it\n")
    [window] = [one for one in findings(home, "engine") if one[0] == "window"]
    assert (window[1], "model.context_length" in window[2]) == ("warning", True)


def test_a_summariser_that_can_never_work_is_a_problem(home: Path) -> None:
    (home / "config.yaml").write_text("auxiliary:\n  compression:\n    base_url: http://127.0.0.1:1/v1\n")
    assert [status for _, status, _ in findings(home, "summariser")] == ["problem"]
