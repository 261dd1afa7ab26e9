"""Settings for all tests, and the fixtures of every room."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from leporello.config.keys import VARIABLES

if TYPE_CHECKING:
    from pathlib import Path

pytest_plugins = [f"tests.fixtures.{name}" for name in ("agent", "chat", "cli", "gateway", "lcm", "plugins", "session")]

# How fast a busy machine is says nothing about a test.
settings.register_profile("shared machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("shared machine")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep every file of a test in its own folder, which does not exist yet, and no key of the machine in it."""
    monkeypatch.setenv("LEPORELLO_HOME", str(tmp_path / "home"))
    for name in VARIABLES.values():
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "home"
