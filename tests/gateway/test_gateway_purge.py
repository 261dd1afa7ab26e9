"""A gateway takes what was deleted out of its store by itself."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from leporello.gateway import state

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.fixtures.gateway import Gateway

    from leporello.testing.model_server import ModelServer


@pytest.mark.slow
def test_what_was_deleted_leaves_the_file_while_the_gateway_runs(
    start: Callable[..., Gateway], upstream: ModelServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(state, "_PURGE_PAUSE", 0.05)
    gateway = start(upstream)
    said: list[dict[str, Any]] = []
    name = gateway.say(said, "the word xyzzyplugh is said once")
    gateway.store.delete(name)
    deadline, pause = time.monotonic() + 30, threading.Event()
    while not gateway.store.purge_status().complete and time.monotonic() < deadline:
        pause.wait(0.05)
    assert gateway.store.purge_status().complete
    raw = b"".join(file.read_bytes() for file in tmp_path.rglob("*.db*"))
    assert raw
    assert b"xyzzyplugh" not in raw
