"""Store addresses: nothing, `:memory:`, a path, `sqlite:///path`, `postgresql://...`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, unquote, urlsplit

from leporello.errors import StoreError
from leporello.store.sqlite import SQLiteStore

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from leporello.store.protocol import Store

FILE_NAME: Final = "leporello.db"
MEMORY: Final = ":memory:"
_POSTGRES = ("postgresql", "postgres")
_KNOWN = "a path, sqlite:///path, :memory: or postgresql://host/database"


def open_store(
    address: str | os.PathLike[str] | None = None,
    *,
    home: Path | None = None,
    url: str | None = None,
    clock: Callable[[], float] = time.time,
) -> Store:
    """Open a store; nothing is created before the first write.

    `address` wins over `url` (the value of `store.url`); with neither it is leporello.db in the home folder.
    """
    where = str(address or url or (home or _home()) / FILE_NAME)
    if where == MEMORY:
        return SQLiteStore(None, clock=clock)
    scheme = where.partition("://")[0].lower() if "://" in where else ""
    if scheme == "sqlite":
        return _from_url(where, clock)
    if scheme in _POSTGRES:
        return _postgres(where, clock)
    if scheme:
        raise StoreError(f"'{scheme}' is not a kind of store.", place=_without_secrets(where), hint=f"Use {_KNOWN}.")
    return SQLiteStore(_file(where), clock=clock)


def _postgres(where: str, clock: Callable[[], float]) -> Store:
    try:
        from leporello.store.postgres import PostgresStore
    except ImportError as error:
        raise StoreError(
            "PostgreSQL needs the extra 'postgres', which this installation does not have.",
            place=_without_secrets(where),
            hint="In a checkout of Leporello: pip install '.[postgres]'; or use a SQLite file.",
        ) from error
    return PostgresStore(where, clock=clock)


def _home() -> Path:
    from leporello.config.home import home_folder

    return home_folder()


def _from_url(where: str, clock: Callable[[], float]) -> Store:
    parts = urlsplit(where)
    path = unquote(parts.path).removeprefix("/")
    if parts.netloc or not path:
        raise StoreError(
            "the address names no file.",
            place=where,
            hint="Write sqlite:///relative/path or sqlite:////absolute/path.",
        )
    if path == MEMORY:
        return SQLiteStore(None, clock=clock)
    return SQLiteStore(_file(path), clock=clock, read_only=parse_qs(parts.query).get("mode") == ["ro"])


def _file(path: str) -> Path:
    file = Path(path).expanduser().absolute()
    if file.is_dir():
        raise StoreError("this is a folder.", place=str(file), hint=f"Name a file in it, such as {file / FILE_NAME}.")
    return file


def _without_secrets(where: str) -> str:
    parts = urlsplit(where)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
