"""Copies of a store's file: a backup, and what is kept of a file before it is brought up to date."""

from __future__ import annotations

import glob
import os
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from leporello.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def copy_before(path: Path, version: int) -> Path:
    """Return where the copy of a file is kept that had this schema."""
    return path.with_name(f"{path.name}.schema-{version}.bak")


def copies_of(path: Path) -> list[Path]:
    """Return the copies of a file that were kept before it was brought up to date."""
    return sorted(path.parent.glob(f"{glob.escape(path.name)}.schema-*.bak"))


def write_copy(
    connection: sqlite3.Connection, target: Path, accepted: Callable[[sqlite3.Connection], bool] = lambda _: True
) -> None:
    """Write a consistent copy while others use the file: completely or not at all, and only one that is accepted."""
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(part, os.O_CREAT | os.O_TRUNC | os.O_RDWR, 0o600))
        with closing(sqlite3.connect(part)) as copy:
            connection.backup(copy)
            copy.execute("PRAGMA journal_mode = DELETE")
            complete = accepted(copy)
        if complete:
            part.rename(target)
    except OSError as error:
        raise StoreError(
            f"the copy cannot be written ({error.strerror}).",
            place=str(target),
            hint="Nothing was changed; check folder and disk.",
        ) from error
    finally:
        part.unlink(missing_ok=True)
