"""Files that a command writes: new, for their owner alone, and complete or not there at all."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING

from leporello.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def new_private_file(path: Path) -> Iterator[IO[str]]:
    """Open a new text file with mode 0600; it gets its name when all of it is on the disk."""
    target = path.expanduser()
    part = target.with_name(target.name + ".part")
    if target.exists():
        raise StoreError("there is a file already.", place=str(target), hint="Name another one.")
    try:
        number = os.open(part, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
    except OSError as error:
        raise StoreError(f"the file cannot be made ({error.strerror}).", place=str(target)) from error
    try:
        with os.fdopen(number, "w", encoding="utf-8") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        part.rename(target)
    except OSError as error:
        raise StoreError(f"the file cannot be written ({error.strerror}).", place=str(target)) from error
    finally:
        part.unlink(missing_ok=True)
