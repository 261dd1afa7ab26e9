"""Two conversations that begin at the same time get the same engine."""

from __future__ import annotations

import sys
import threading
from types import ModuleType
from typing import TYPE_CHECKING

from leporello.plugins.discover import Found
from leporello.plugins.load import import_plugin

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

SLOW = """
import gate_of_this_test
gate_of_this_test.entered.set()
gate_of_this_test.go.wait(20)
whole = True
"""


def test_a_plugin_is_not_seen_half_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = ModuleType("gate_of_this_test")
    entered, go = threading.Event(), threading.Event()
    vars(gate).update(entered=entered, go=go)
    monkeypatch.setitem(sys.modules, gate.__name__, gate)
    (tmp_path / "__init__.py").write_text(SLOW, encoding="utf-8")
    found = Found(name="slow", kind="engine", origin="user", path=tmp_path)
    seen: list[bool] = []

    def load() -> None:
        seen.append(hasattr(import_plugin(found), "whole"))

    first = threading.Thread(target=load)
    second = threading.Thread(target=load)
    first.start()
    assert entered.wait(20)
    second.start()
    second.join(0.2)  # one that does not wait for the first has ended
    go.set()
    first.join()
    second.join()
    assert seen == [True, True]
