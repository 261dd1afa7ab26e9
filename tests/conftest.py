"""Settings for all tests, and the fixtures of every package."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from leporello.config.keys import VARIABLES

if TYPE_CHECKING:
    from pathlib import Path

FIXTURES = ("agent", "chat", "cli", "cluster", "databases", "gateway", "hermes", "lcm", "plugins", "session", "view")
pytest_plugins = [f"tests.fixtures.{name}" for name in FIXTURES]

SLOW_FOLDERS = frozenset({"e2e", "faults", "property"})

# How fast a busy machine is says nothing about a test.
settings.register_profile("shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared machine")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return the home folder of a test, which does not exist yet."""
    return tmp_path / "home"


@pytest.fixture(autouse=True)
def _environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep every file of a test in its own folder, and no key of the machine in its environment."""
    monkeypatch.setenv("LEPORELLO_HOME", str(tmp_path / "home"))
    for name in VARIABLES.values():
        monkeypatch.delenv(name, raising=False)


def pytest_configure() -> None:
    """Let Ctrl-C interrupt processes that tests start, which a job in the background ignores by default."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark whole folders of long tests as slow; others are marked where they stand."""
    if SLOW_FOLDERS.intersection(item.path.parts):
        item.add_marker(pytest.mark.slow)
