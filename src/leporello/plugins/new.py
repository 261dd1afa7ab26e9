"""Writes a new engine, a small one that works, to be changed: as a folder, or as a package that pip installs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from leporello.config.engines import BUILT_IN
from leporello.errors import PluginError

if TYPE_CHECKING:
    from collections.abc import Callable

_TEMPLATE = Path(__file__).with_name("template")
_NAME = re.compile(r"[a-z][a-z0-9_-]*")


def new_engine_folder(name: str, parent: Path) -> Path:
    """Write `parent/name` with an engine, its manifest and its test; nothing that exists is overwritten."""
    return _written(name, parent, files)


def new_engine_package(name: str, parent: Path) -> Path:
    """Write `parent/name` with an engine as a package: its pyproject.toml, its module and its test."""
    return _written(name, parent, package_files)


def files(name: str) -> dict[str, str]:
    """Return the files of a new engine's folder: name and text."""
    return _filled(_TEMPLATE, name)


def package_files(name: str) -> dict[str, str]:
    """Return the files of a new engine's package: path and text."""
    package = _filled(_TEMPLATE / "package", name)
    module = f"src/{module_name(name)}"
    return {
        "pyproject.toml": package["pyproject.toml"],
        f"{module}/__init__.py": files(name)["__init__.py"],
        f"{module}/py.typed": "",
        "tests/test_engine.py": package["test_engine.py"],
    }


def _written(name: str, parent: Path, files_of: Callable[[str], dict[str, str]]) -> Path:
    if not _NAME.fullmatch(name):
        raise PluginError(
            "is no name for an engine: lower-case letters, digits, '-' and '_', a letter first.", plugin=name
        )
    if name == BUILT_IN:
        raise PluginError("is the built-in engine's name; choose another one.", plugin=name)
    folder = parent / name
    try:
        folder.mkdir(parents=True)
    except FileExistsError as error:
        raise PluginError("exists already; nothing was written.", plugin=name, file=folder) from error
    except OSError as error:
        raise PluginError(f"the folder cannot be made: {error.strerror}.", plugin=name, file=folder) from error
    try:
        for file, text in files_of(name).items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(text, encoding="utf-8")
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)  # it was made just now, and holds nothing of the user's
        raise PluginError(f"cannot be written: {error.strerror}.", plugin=name, file=folder) from error
    return folder


def _filled(folder: Path, name: str) -> dict[str, str]:
    slug = "-".join(_words(name))
    values = {"name": name, "class_name": class_name(name), "module": module_name(name), "slug": slug}
    return {
        template.name.removesuffix(".txt"): Template(template.read_text(encoding="utf-8")).substitute(values)
        for template in sorted(folder.glob("*.txt"))
    }


def module_name(name: str) -> str:
    """Return the name of an engine's module: of its own, so that no engine hides a module of Python."""
    return "_".join(["leporello", *_words(name)])


def class_name(name: str) -> str:
    """Return the name of an engine's class: KeepLastEngine for keep-last and for keep_last_engine."""
    words = [word.capitalize() for word in _words(name)]
    return "".join(words).removesuffix("Engine") + "Engine"


def _words(name: str) -> list[str]:
    return [word for word in re.split(r"[-_]", name) if word]
