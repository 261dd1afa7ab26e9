"""Files that other people may have written: only regular ones, and only up to a size."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from pathlib import Path


def open_regular(file: Path) -> BinaryIO:
    """Open a regular file; a folder, a pipe or a device is an OSError, and no pipe is waited for."""
    stream = os.fdopen(os.open(file, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0)), "rb")
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise OSError(errno.EINVAL, "It is not a regular file", str(file))
    return stream


def read_regular(file: Path, *, most: int) -> bytes | None:
    """Return what is in a regular file; None when that is more than `most` bytes."""
    with open_regular(file) as stream:
        data = stream.read(most + 1)
    return data if len(data) <= most else None
