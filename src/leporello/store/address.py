"""Store addresses: nothing, `:memory:`, a path, `sqlite:///path`, `postgresql://...`, those of other packages.

An entry point of the group `leporello.stores` has the name of a scheme, and names a function that is given the address
and `clock`, and returns a `Store`.
"""

from __future__ import annotations

import time
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import parse_qs, unquote, urlsplit

from leporello.errors import StoreError
from leporello.redact import redact
from leporello.store.protocol import Store
from leporello.store.sqlite import SQLiteStore

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from importlib.metadata import EntryPoint

FILE_NAME: Final = "leporello.db"
MEMORY: Final = ":memory:"
ENTRY_POINTS: Final = "leporello.stores"
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
        for point in entry_points(group=ENTRY_POINTS, name=scheme):
            return _of_package(point, where, clock)
        others = "".join(f", {point.name}://…" for point in entry_points(group=ENTRY_POINTS))
        hint = f"Use {_KNOWN}{others}."
        raise StoreError(f"'{scheme}' is not a kind of store.", place=_without_secrets(where), hint=hint)
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


def _of_package(point: EntryPoint, where: str, clock: Callable[[], float]) -> Store:
    """Open a store of another package; whatever it raises becomes a StoreError that names the package."""
    package = point.dist.name if point.dist else point.value
    try:
        store: Any = point.load()(where, clock=clock)
    except StoreError:
        raise
    except (Exception, SystemExit) as error:
        raise StoreError(
            f"the package {package} cannot open it: {type(error).__name__}: {redact(str(error))}",
            place=_without_secrets(where),
        ) from error
    lacking = sorted(name for name in STORE_MEMBERS if not hasattr(type(store), name))
    if lacking:
        raise StoreError(
            f"what the package {package} opens is no store: it lacks {', '.join(lacking[:5])}"
            f"{' and more' if len(lacking) > 5 else ''}.",  # noqa: PLR2004 - as many as a line holds
            place=_without_secrets(where),
        )
    return cast("Store", store)


STORE_MEMBERS: Final[frozenset[str]] = frozenset(
    name for base in Store.__mro__ for name in vars(base) if not name.startswith("_") and base is not object
)
"""The names of everything that a store has."""


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
