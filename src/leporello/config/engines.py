"""Which context engines exist, judged by folder names alone: nothing is opened or run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

# The built-in engine: no plugin can have its name, and its block is called `compression`.
BUILT_IN = "compressor"

SHIPPED = Path(__file__).parent.parent / "plugins" / "shipped" / "context_engine"


def engine_names(*, home: Path, paths: Iterable[Path] = ()) -> set[str]:
    """Name the engine folders that are shipped, in the home folder, and in or at `paths`."""
    names = _folders_in(SHIPPED) | _folders_in(home / "plugins" / "context_engine")
    for path in paths:
        names |= {path.name} if _is_engine(path) else {name for name in _folders_in(path) if _is_engine(path / name)}
    return names


def _folders_in(folder: Path) -> set[str]:
    try:
        return {entry.name for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith(("_", "."))}
    except OSError:
        # A folder that is missing or unreadable offers no engine; choosing one of it says so when it is loaded.
        return set()


def _is_engine(folder: Path) -> bool:
    try:
        return (folder / "plugin.yaml").is_file()
    except OSError:
        return False
