"""Which context engines exist, by the names of folders and of entry points alone: nothing is opened or run."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# The built-in engine: no plugin can have its name, and its block is called `compression`.
BUILT_IN = "compressor"

# The shipped engine whose block has a schema here.
LOSSLESS = "lcm"

SHIPPED = Path(__file__).parent.parent / "plugins" / "shipped" / "context_engine"
ENGINES = "context_engine"
ENGINE_ENTRY_POINTS = "leporello.engines"
MANIFEST = "plugin.yaml"


def user_engines(*, home: Path, paths: Iterable[Path] = ()) -> Iterator[Path]:
    """Yield the user's engine folders, of two with one name the one that is used first."""
    for path in reversed(list(paths)):
        yield from named_folders(path)
    yield from plugin_folders(home / "plugins" / ENGINES)


def engine_names(*, home: Path, paths: Iterable[Path] = ()) -> set[str]:
    """Name the engines that are shipped, in the home folder, in or at `paths`, and in installed packages."""
    folders = {folder.name for folder in (*plugin_folders(SHIPPED), *user_engines(home=home, paths=paths))}
    return folders | {point.name for point in entry_points(group=ENGINE_ENTRY_POINTS)}


def named_folders(path: Path) -> list[Path]:
    """Return the engine folders at an entry of `plugins.paths`: itself, or those in it and in its context_engine/."""
    if is_plugin(path):
        return [path]
    return [*plugin_folders(path / ENGINES), *plugin_folders(path)]


def plugin_folders(parent: Path) -> list[Path]:
    """Return the plugin folders in a folder; one that is missing or unreadable has none."""
    try:
        folders = sorted(parent.iterdir())
    except OSError:
        return []
    return [folder for folder in folders if not folder.name.startswith(("_", ".")) and is_plugin(folder)]


def is_plugin(folder: Path) -> bool:
    """Tell whether a folder holds a plugin's code or its manifest."""
    try:
        return (folder / "__init__.py").is_file() or (folder / MANIFEST).is_file()
    except OSError:
        return False
