"""What engines and plugins there are. Reads folder names and manifests, and never runs a plugin's code."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from leporello.config.engines import SHIPPED
from leporello.errors import PluginError
from leporello.plugins.manifest import FILE_NAME, Manifest, read_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from importlib.metadata import EntryPoint
    from pathlib import Path

    from leporello.config import Config

BUILT_IN = "compressor"
ENTRY_POINTS = "leporello.plugins"

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
    """An engine folder or a general plugin.

    `name` is what the configuration calls it: the folder's name; `called` is what its manifest calls it, if it does.
    `problem` says why it cannot be used, `note` what is odd about it although it can. `enabled` is for general plugins:
    whether `plugins.enabled` names them. `target` is the entry point of an installed one.
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


def discover(config: Config) -> list[Found]:
    """List the built-in engine, the engine folders and the general plugins; of two alike the later place wins."""
    built_in = Found(
        name=BUILT_IN, kind="built-in", origin="built-in", description="Summarises the middle of a long conversation."
    )
    found: dict[tuple[Kind, str], Found] = {}
    for place in places(config):
        for one in _in_place(place, config):
            found[one.kind, one.name] = one
    for point in entry_points(group=ENTRY_POINTS):
        found["plugin", point.name] = _from_entry_point(point, config)
    return [built_in, *sorted(found.values(), key=lambda one: (one.kind, one.name))]


def places(config: Config) -> list[Place]:
    """List the folders that are searched, in order."""
    home = config.home / "plugins"
    searched = [
        Place(path=SHIPPED, origin="shipped", kind="engine"),
        Place(path=home / "context_engine", origin="home", kind="engine"),
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
    if place.problem or not place.path.is_dir():
        return
    if place.kind == "plugin":
        for folder in _folders(place.path):
            if folder.name != "context_engine":
                yield _from_folder(folder, place, enabled=folder.name in config.plugins.enabled)
    elif place.origin == "plugins.paths" and _is_plugin(place.path):
        yield _from_folder(place.path, place)
    else:
        for folder in _folders(place.path):
            yield _from_folder(folder, place)
        if place.origin == "plugins.paths" and (place.path / "context_engine").is_dir():
            for folder in _folders(place.path / "context_engine"):
                yield _from_folder(folder, place)


def _folders(parent: Path) -> list[Path]:
    return sorted(
        folder for folder in parent.iterdir() if not folder.name.startswith(("_", ".")) and _is_plugin(folder)
    )


def _is_plugin(folder: Path) -> bool:
    return (folder / "__init__.py").is_file() or (folder / FILE_NAME).is_file()


def _from_folder(folder: Path, place: Place, *, enabled: bool = True) -> Found:
    note = ""
    try:
        manifest = read_manifest(folder)
    except PluginError as error:
        manifest = Manifest()
        note = f"{FILE_NAME} {error.problem}"
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


def _from_entry_point(point: EntryPoint, config: Config) -> Found:
    metadata: Any = point.dist.metadata if point.dist else {}
    return Found(
        name=point.name,
        kind="plugin",
        origin="entry point",
        description=metadata.get("Summary") or "",
        version=metadata.get("Version") or "",
        target=point.value,
        enabled=point.name in config.plugins.enabled,
        problem=_problem(point.name),
    )


def _problem(name: str, *, has_code: bool = True) -> str:
    if name == BUILT_IN:
        return f"no plugin can be called {BUILT_IN!r}: the built-in engine has that name; rename this one"
    return "" if has_code else "has no __init__.py, so there is no code to load"
