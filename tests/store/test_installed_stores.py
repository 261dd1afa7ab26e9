"""Stores of other packages, by the scheme of their address."""

from __future__ import annotations

import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from leporello import Session
from leporello.errors import StoreError
from leporello.store import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GOOD = """
from pathlib import Path
from urllib.parse import urlsplit

from leporello.store.sqlite import SQLiteStore


def open_vault(address, *, clock):
    return SQLiteStore(Path(urlsplit(address).path), clock=clock)
"""


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    folder = tmp_path / "site"
    info = folder / "harbour_vault-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: harbour-vault\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[leporello.stores]\nvault = harbour_vault:open_vault\nsqlite = harbour_vault:open_vault\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    sys.modules.pop("harbour_vault", None)


def test_a_store_of_a_package_is_opened_by_its_scheme(site: Path, tmp_path: Path) -> None:
    (site / "harbour_vault.py").write_text(GOOD)
    with Session.open("h", model="m", store=f"vault://host{tmp_path}/v.db", config={}, llm=None) as session:
        session.add({"role": "user", "content": "Hello."})
    with closing(open_store(url=f"vault://host{tmp_path}/v.db")) as store:
        assert [row.message["content"] for row in store.messages("h")] == ["Hello."]


def test_our_own_schemes_are_not_taken_over(site: Path, tmp_path: Path) -> None:
    (site / "harbour_vault.py").write_text("def open_vault(address, *, clock):\n    raise AssertionError\n")
    with closing(open_store(f"sqlite:///{tmp_path}/own.db")) as store:
        store.append("h", [{"role": "user", "content": "Hello."}])
    assert (tmp_path / "own.db").exists()


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import nothing_like_this\n", "the package harbour-vault cannot open it: ModuleNotFoundError"),
        ("import sys\nsys.exit(7)\n", "the package harbour-vault cannot open it: SystemExit: 7"),
        ("def open_vault(address, *, clock):\n    raise OSError(address)\n", "cannot open it: OSError"),
        ("def open_vault(address, *, clock):\n    return object()\n", "is no store: it lacks acquire, add_artifacts"),
    ],
)
def test_one_that_does_not_work_is_named_without_the_password(site: Path, code: str, told: str) -> None:
    (site / "harbour_vault.py").write_text(code)
    with pytest.raises(StoreError) as raised:
        open_store("vault://ada:hunter2@host/v")
    assert told in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_an_unknown_scheme_is_told_with_what_there_is(site: Path) -> None:
    with pytest.raises(StoreError, match=r"'vaulted' is not a kind of store.*vault://…"):
        open_store("vaulted://host/v")
