"""A home folder for each test, and a builder of plugins in it."""

from __future__ import annotations

import textwrap
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from leporello.config.engines import SHIPPED
from leporello.config.keys import VARIABLES
from leporello.errors import UnknownWindowWarning
from leporello.plugins import EngineSource

if TYPE_CHECKING:
    from pathlib import Path

    from leporello.engine import ContextEngine

ENGINE = """
from agent.context_engine import ContextEngine

class Engine(ContextEngine):
    name = "NAME"

    def __init__(self, context_length=0, config=None):
        self.given = (context_length, config)

    def update_from_response(self, usage):
        self.last_prompt_tokens = usage["prompt_tokens"]

    def should_compress(self, prompt_tokens=None):
        return False

    def compress(self, messages, current_tokens=None, focus_topic=None):
        return list(messages)
"""


@dataclass
class Loaded:
    """What `load_engine` returned, and what it said."""

    engine: ContextEngine
    said: list[tuple[str, str]]

    @property
    def fell_back(self) -> bool:
        return any(kind == "EngineFallbackWarning" for kind, _ in self.said)


class Plugins:
    """Writes plugins into a home folder and loads engines from it."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def engine(self, name: str, code: str = "", *, engine_name: str | None = None, parent: Path | None = None) -> Path:
        """Write an engine folder; `code` stands behind a working class `Engine`."""
        folder = (parent or self.home / "plugins" / "context_engine") / name
        return self._write(folder, ENGINE.replace("NAME", engine_name or name) + textwrap.dedent(code))

    def plugin(self, name: str, code: str, *, engine_name: str = "") -> Path:
        """Write a general plugin; `code` stands behind a working class `Engine`."""
        return self._write(
            self.home / "plugins" / name, ENGINE.replace("NAME", engine_name or name) + textwrap.dedent(code)
        )

    def broken(self, name: str, code: str) -> Path:
        """Write an engine folder with exactly this code."""
        return self._write(self.home / "plugins" / "context_engine" / name, textwrap.dedent(code))

    def _write(self, folder: Path, code: str) -> Path:
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(code)
        (folder / "plugin.yaml").write_text(f"name: {folder.name}\ndescription: An engine for a test.\nversion: 1.10\n")
        return folder

    def source(self, name: str, *, enabled: tuple[str, ...] = (), **options: Any) -> EngineSource:
        config: dict[str, Any] = {"context": {"engine": name}, "plugins": {"enabled": list(enabled)}}
        return EngineSource(config | options.pop("config", {}), **options)

    def load(self, name: str, *, enabled: tuple[str, ...] = (), **options: Any) -> Loaded:
        return self.take(self.source(name, enabled=enabled, **options))

    def take(self, source: EngineSource) -> Loaded:
        """Take one more engine from a source."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            warnings.simplefilter("ignore", UnknownWindowWarning)  # most tests here name no model
            engine = source.new_engine()
        return Loaded(engine, [(one.category.__name__, self.masked(str(one.message))) for one in caught])

    def masked(self, text: str) -> str:
        """Return a text without the paths of this run."""
        return text.replace(str(self.home), "HOME").replace(str(SHIPPED), "SHIPPED")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Most tests of this folder name no model; that its window is assumed then has a test of its own."""
    if "plugins" in item.path.parts:
        item.add_marker(pytest.mark.filterwarnings("ignore::leporello.errors.UnknownWindowWarning"))


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plugins:
    """Return a builder for a home folder of this test's own, with no key set."""
    monkeypatch.setenv("LEPORELLO_HOME", str(tmp_path / "home"))
    for variable in VARIABLES.values():
        monkeypatch.delenv(variable, raising=False)
    return Plugins(tmp_path / "home")
