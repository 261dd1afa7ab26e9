"""Addresses: what each opens, and what a wrong one is told."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from leporello.errors import StoreError
from leporello.store import open_store


def test_nothing_means_the_home_folder(tmp_path: Path) -> None:
    assert open_store(home=tmp_path).url == f"sqlite:///{tmp_path / 'leporello.db'}"


def test_an_address_wins_over_the_configured_one(tmp_path: Path) -> None:
    configured = f"sqlite:///{tmp_path / 'b.db'}"
    assert open_store(tmp_path / "a.db", url=configured).url.endswith("a.db")
    assert open_store(url=configured).url == configured


@pytest.mark.parametrize("address", [":memory:", "sqlite:///:memory:"])
def test_memory(address: str) -> None:
    assert open_store(address).url == ":memory:"


def test_a_path_may_be_relative_and_escaped(tmp_path: Path) -> None:
    assert open_store(f"sqlite:///{tmp_path}/with%20space.db").url == f"sqlite:///{tmp_path}/with space.db"
    assert open_store("sqlite:///here.db").url == f"sqlite:///{Path.cwd() / 'here.db'}"
    assert open_store("~/x.db").url == f"sqlite:///{Path.home() / 'x.db'}"


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("mysql://host/db", "'mysql' is not a kind of store. Use a path"),
        ("sqlite://", "names no file"),
        ("sqlite://host/x", "names no file"),
        ("/", "this is a folder"),
    ],
)
def test_a_wrong_address_is_told_what_is_right(address: str, problem: str) -> None:
    with pytest.raises(StoreError, match=problem):
        open_store(address)


def test_postgresql_names_the_extra_and_shows_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    for name in [name for name in sys.modules if name.startswith("leporello.store.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(StoreError, match=r"\.\[postgres\]") as caught:
        open_store("postgresql://user:secret@host/db")
    assert "secret" not in str(caught.value)
