"""What is built from the sources: complete, nothing beside it, and working where only it is installed."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from filelock import FileLock
from tests.fixtures.environments import environment, unknown_types

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]  # an environment may have to be installed

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "leporello"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
USE = """
import json, sys, warnings
from leporello import Session
from leporello.config import Config

warnings.simplefilter("error")
with Session.open("harbour", config=Config.load(), model="m", context_length=2_000, llm=None) as session:
    for turn in range(12):
        session.add({"role": "user", "content": f"Turn {turn}. " + "Berth is quiet. " * 50})
        window = session.request()["messages"]
        session.record({"choices": [{"message": {"role": "assistant", "content": "Good."}, "finish_reason": "stop"}]})
    print(json.dumps([type(session.engine).__module__, session.usage().compactions, window[-1]["content"][:9]]))
"""


def run(program: str | Path, *arguments: str | Path, folder: Path, **variables: str) -> str:
    """Run a program in a folder, with nothing of this checkout on its path; returns what it printed."""
    environ = {"PATH": os.environ["PATH"], "HOME": str(folder), "LEPORELLO_HOME": str(folder / "home"), **variables}
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "UV_"))}
    done = subprocess.run(
        [program, *arguments], cwd=folder, env=environ | kept, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-3_000:]
    return done.stdout


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the source archive, and the wheel from it."""
    folder = tmp_path_factory.mktemp("built")
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder, ROOT, folder=folder)
    return folder


@pytest.fixture(scope="session")
def wheel(built: Path) -> Path:
    return next(built.glob("*.whl"))


@pytest.fixture
def installed(wheel: Path, tmp_path: Path) -> Iterator[Path]:
    """Lend an environment in which only the wheel is installed, and what it needs, to one test at a time."""
    place = environment("wheel", "hatchling", "pytest", "hypothesis", "starlette", "uvicorn", editable=False)
    with FileLock(place.with_name("wheel.used.lock")):
        run(place / "bin" / "pip", "install", "--quiet", "--no-deps", "--force-reinstall", wheel, folder=tmp_path)
        yield place / "bin"


def strays(wheel: Path) -> list[str]:
    """Return what a wheel has at its top beside our package and its description."""
    with zipfile.ZipFile(wheel) as archive:
        top = {name.split("/")[0] for name in archive.namelist()}
    return sorted(
        name for name in top if name != "leporello" and not re.fullmatch(r"leporello-[\d.]+\.dist-info", name)
    )


def test_the_wheel_has_our_package_and_nothing_else(wheel: Path) -> None:
    assert strays(wheel) == []
    with zipfile.ZipFile(wheel) as archive:
        inside = {name for name in archive.namelist() if name.startswith("leporello/")}
    sources = [path for path in SOURCES.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert inside == {f"leporello/{path.relative_to(SOURCES)}" for path in sources}
    assert "leporello/py.typed" in inside


def test_a_module_beside_our_package_is_seen(wheel: Path, tmp_path: Path) -> None:
    """What a name such as `agent` at the top would break: a real Hermes Agent in the same environment."""
    copy = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as archive, zipfile.ZipFile(copy, "w") as copied:
        for name in archive.namelist():
            listed = b"agent/__init__.py,sha256=47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU,0\n"
            copied.writestr(name, archive.read(name) + (listed if name.endswith("RECORD") else b""))
        copied.writestr("agent/__init__.py", "")
    assert strays(copy) == ["agent"]
    told = subprocess.run(
        [Path(sys.executable).with_name("check-wheel-contents"), "--config", ROOT / "pyproject.toml", copy],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 1
    assert "agent" in told.stdout, "the tool of `make check` sees it, too"


def test_the_source_archive_has_what_the_tests_need(built: Path) -> None:
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        top = {name.split("/")[1] for name in archive.getnames()}
    assert {"src", "tests", "docs", "examples", "Makefile", "constraints.txt", "LICENSE", "CHANGELOG.md"} <= top
    assert not [name for name in top if name.startswith(".") and name != ".gitignore"]


def test_the_wheel_says_what_the_project_says(wheel: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    with zipfile.ZipFile(wheel) as archive:
        described = next(name for name in archive.namelist() if name.endswith("METADATA"))
        told = archive.read(described).decode()
    for version in PYTHONS:
        assert f"Classifier: Programming Language :: Python :: {version}" in told
    extras = set(re.findall(r"^Provides-Extra: (.+)$", told, re.MULTILINE))
    assert extras == {name.replace("_", "-") for name in project["optional-dependencies"]}


def test_it_works_where_nothing_else_is(installed: Path, tmp_path: Path) -> None:
    assert "nothing is lost" in run(installed / "leporello", "demo", "--fast", folder=tmp_path)
    script = "import leporello; print(leporello.__file__)"
    where = run(installed / "python", "-c", script, folder=tmp_path).strip()
    assert Path(where).is_relative_to(installed.parent), "not this checkout"
    assert run(installed / "python", "-c", USE, folder=tmp_path)


def test_an_engine_from_the_template_is_installed_listed_checked_chosen_and_used(
    installed: Path, tmp_path: Path
) -> None:
    leporello = installed / "leporello"

    def found() -> dict[str, Any]:
        listed = json.loads(run(leporello, "plugins", "list", "--json", folder=tmp_path))["found"]
        return {one["name"]: one for one in listed}

    run(leporello, "plugins", "new", "harbour-log", "--package", folder=tmp_path)
    assert "harbour-log" not in found(), "a folder that is not installed is no engine"
    few = ("--conversations", "3")
    own = ("--quiet", "--no-deps", "--no-build-isolation", "./harbour-log")
    run(installed / "pip", "install", *own, folder=tmp_path)
    try:
        listed = found()["harbour-log"]
        assert (listed["kind"], listed["origin"], listed["version"]) == ("engine", "entry point", "0.1.0")
        used = run(installed / "python", "-c", USE, folder=tmp_path)
        assert "harbour" not in json.loads(used)[0], "installing an engine does not choose it"
        checks = json.loads(run(leporello, "plugins", "check", "harbour-log", *few, "--json", folder=tmp_path))
        assert checks["ok"]
        assert {one["status"] for one in checks["checks"]} == {"passed"}
        assert "passed" in run(installed / "python", "-m", "pytest", "-q", "harbour-log", folder=tmp_path)
        run(leporello, "plugins", "use", "harbour-log", folder=tmp_path)
        module, compactions, newest = json.loads(run(installed / "python", "-c", USE, folder=tmp_path))
        assert (module, newest) == ("leporello_harbour_log", "Turn 11. ")
        assert compactions >= 2
    finally:
        run(installed / "pip", "uninstall", "--quiet", "--yes", "leporello-harbour-log", folder=tmp_path)
    assert "harbour-log" not in found()


FRAMEWORKS = ("claude_agent_sdk", "langchain", "litellm", "openai_agents", "pydantic_ai")
ADAPTERS = tuple(f"leporello.adapters.{name}." for name in FRAMEWORKS)
"""Their frameworks are not installed here; tests/adapters looks at each in its own environment."""


def test_every_public_name_has_a_known_type(tmp_path: Path) -> None:
    unknown, public = unknown_types(Path(sys.prefix), "leporello", tmp_path)
    assert public > 5_000, "it looked at the package"
    assert [name for name in unknown if not name.startswith(ADAPTERS)] == []


def test_a_name_without_a_type_is_seen(installed: Path, tmp_path: Path) -> None:
    script = "import leporello; print(leporello.__path__[0])"
    package = Path(run(installed / "python", "-c", script, folder=tmp_path).strip()).with_name("untyped")
    package.mkdir(exist_ok=True)
    try:
        (package / "py.typed").write_text("")
        (package / "__init__.py").write_text("def sail(to):\n    return to\n")
        assert unknown_types(installed.parent, "untyped", tmp_path)[0] == ["untyped.sail"]
    finally:
        shutil.rmtree(package)
