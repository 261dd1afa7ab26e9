"""What engines and plugins there are. Reads folder names and manifests, and never runs a plugin's code."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from leporello.config.engines import (
    BUILT_IN,
    ENGINE_ENTRY_POINTS,
    ENGINES,
    MANIFEST,
    SHIPPED,
    named_folders,
    plugin_folders,
)
from leporello.config.home import home_folder
from leporello.errors import PluginError
from leporello.plugins.manifest import Manifest, read_manifest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from importlib.metadata import EntryPoint

    from leporello.config import Config

PLUGIN_ENTRY_POINTS = "leporello.plugins"
INSTALLED = "entry point"
NOT_OWN = ("shipped", INSTALLED)
"""Origins of engines that the user did not put somewhere by hand: they never take the place of one that was."""

Kind: TypeAlias = Literal["built-in", "engine", "plugin"]


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where plugins are looked for; `problem` says why nothing can be found there."""

    path: Path
    origin: str
    kind: Kind
    problem: str = ""


@dataclass(frozen=True, kw_only=True)
class Found:
    """An engine, in a folder or in a package, or a general plugin.

    `name` is what the configuration calls it: the name of the folder or of the entry point; `called` is what its
    manifest calls it, if it does.
    `problem` says why it cannot be used, `note` what is odd about it although it can. `enabled` is for general plugins:
    whether `plugins.enabled` names them. `target` is the entry point of an installed one. `shadows` says where other
    engines of that name are, which are not used.
    """

    name: str
    kind: Kind
    origin: str
    called: str = ""
    description: str = ""
    version: str = ""
    path: Path | None = None
    target: str = ""
    enabled: bool = True
    problem: str = ""
    note: str = ""
    shadows: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """Where the code is."""
        return str(self.path) if self.path else f"entry point {self.target}" if self.target else self.origin


def discover(config: Config, registered: Iterable[Found] = ()) -> list[Found]:
    """List the built-in engine, the engines and the general plugins; of engines with one name the one that is used.

    `registered` are the engines of general plugins: only running a plugin tells what it registers.
    """
    built_in = Found(
        name=BUILT_IN, kind="built-in", origin="built-in", description="Summarises the middle of a long conversation."
    )
    named = list(engines_by_name(config))
    others = [one for one in named if one.origin in NOT_OWN]
    own = [one for one in named if one.origin not in NOT_OWN]
    engines = _used([*own, *registered, *others])
    return [built_in, *sorted(engines, key=_name), *sorted(_general_plugins(config), key=_name)]


def engines_by_name(config: Config) -> Iterator[Found]:
    """Yield the engines in folders, each folder once, and those of packages; of two with one name the one used first.

    A package comes last: one that another package has brought along must not take the place of a shipped engine.
    """
    seen: set[Path] = set()
    for place in reversed(places(config)):
        for found in _in_place(place, config) if place.kind == "engine" else ():
            folder = Path(found.place).resolve()
            if folder not in seen:
                seen.add(folder)
                yield found
    for point in _entry_points(ENGINE_ENTRY_POINTS):
        yield _from_entry_point(point, kind="engine")


def _used(engines: list[Found]) -> list[Found]:
    """Return the first engine of each name, and note on it where the others are."""
    by_name: dict[str, list[Found]] = {}
    for one in engines:
        by_name.setdefault(one.name, []).append(one)
    return [replace(first, shadows=tuple(one.place for one in rest)) for first, *rest in by_name.values()]


def _general_plugins(config: Config) -> list[Found]:
    found: dict[str, Found] = {}
    for place in places(config):
        if place.kind == "plugin":
            found |= {one.name: one for one in _in_place(place, config)}
    for point in _entry_points(PLUGIN_ENTRY_POINTS):
        found[point.name] = _from_entry_point(point, kind="plugin", enabled=point.name in config.plugins.enabled)
    return list(found.values())


def _entry_points(group: str) -> Iterable[EntryPoint]:
    return entry_points(group=group)


def _name(one: Found) -> str:
    return one.name


def places(config: Config) -> list[Place]:
    """List the folders that are searched, in order."""
    home = home_folder() / "plugins"
    searched = [
        Place(path=SHIPPED, origin="shipped", kind="engine"),
        Place(path=home / ENGINES, origin="home", kind="engine"),
        *(Place(path=path, origin="plugins.paths", kind="engine") for path in config.plugins.paths),
        Place(path=home, origin="home", kind="plugin"),
    ]
    return [_checked(place) for place in searched]


def _checked(place: Place) -> Place:
    """Note what is wrong with a place; only those that the user named must exist."""
    problem = ""
    try:
        if place.path.is_dir():
            next(place.path.iterdir(), None)
        elif place.path.exists():
            problem = "is not a folder"
        elif place.origin == "plugins.paths":
            problem = "does not exist"
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
    return Place(path=place.path, origin=place.origin, kind=place.kind, problem=problem)


def _in_place(place: Place, config: Config) -> Iterator[Found]:
    folders = named_folders(place.path) if place.origin == "plugins.paths" else plugin_folders(place.path)
    for folder in folders:
        if place.kind == "engine":
            yield _from_folder(folder, place)
        elif folder.name != ENGINES:
            yield _from_folder(folder, place, enabled=folder.name in config.plugins.enabled)


def _from_folder(folder: Path, place: Place, *, enabled: bool = True) -> Found:
    note = ""
    try:
        manifest = read_manifest(folder)
    except PluginError as error:
        manifest = Manifest()
        note = f"{MANIFEST} {error.problem}"
    return Found(
        name=folder.name,
        kind=place.kind,
        origin=place.origin,
        called=manifest.name,
        description=manifest.description,
        version=manifest.version,
        path=folder,
        enabled=enabled,
        problem=_problem(folder.name, has_code=(folder / "__init__.py").is_file()),
        note=note,
    )


def _from_entry_point(point: EntryPoint, *, kind: Kind, enabled: bool = True) -> Found:
    metadata: Any = point.dist.metadata if point.dist else {}
    return Found(
        name=point.name,
        kind=kind,
        origin=INSTALLED,
        description=metadata.get("Summary") or "",
        version=metadata.get("Version") or "",
        target=point.value,
        enabled=enabled,
        problem=_problem(point.name),
    )


def _problem(name: str, *, has_code: bool = True) -> str:
    if name == BUILT_IN:
        return f"no plugin can be called {BUILT_IN!r}: the built-in engine has that name; rename this one"
    return "" if has_code else "has no __init__.py, so there is no code to load"
