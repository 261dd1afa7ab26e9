"""Where commands may write: the workspace, temporary folders and caches, as far as the system can enforce it."""

from __future__ import annotations

import os
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leporello.agent.tools import landlock

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_DEVICES: Final = ("/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/shm")  # noqa: S108 - what programs expect


@cache
def can_bound() -> bool:
    """Tell whether this system can keep commands from writing elsewhere."""
    return landlock.version() > 0 and bool(sys.executable)


def writable_folders(workspace: Path, environ: Mapping[str, str], more: Iterable[Path] = ()) -> list[str]:
    """Return the places that commands may write to: those of this list that exist."""
    cache_home = environ.get("XDG_CACHE_HOME") or os.path.join(environ.get("HOME") or "/nonexistent", ".cache")  # noqa: PTH118 - text in, text out
    places = [str(workspace), environ.get("TMPDIR") or tempfile.gettempdir(), cache_home, *map(str, more), *_DEVICES]
    return [place for place in dict.fromkeys(places) if Path(place).exists()]


def bounded(command: Sequence[str], places: Sequence[str]) -> list[str]:
    """Return the command line that runs a command with no right to write elsewhere."""
    return [sys.executable, "-I", "-S", str(Path(landlock.__file__)), *places, "--", *command]
