"""Writes the folder of a new engine: a small one that works, to be changed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from string import Template

from leporello.config.engines import BUILT_IN
from leporello.errors import PluginError

_TEMPLATE = Path(__file__).with_name("template")
_NAME = re.compile(r"[a-z][a-z0-9_-]*")


def new_engine_folder(name: str, parent: Path) -> Path:
    """Write `parent/name` with an engine, its manifest and its test; nothing that exists is overwritten."""
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
        for file, text in files(name).items():
            (folder / file).write_text(text, encoding="utf-8")
    except OSError as error:
        shutil.rmtree(folder, ignore_errors=True)  # it was made just now, and holds nothing of the user's
        raise PluginError(f"cannot be written: {error.strerror}.", plugin=name, file=folder) from error
    return folder


def files(name: str) -> dict[str, str]:
    """Return the files of a new engine: name and text."""
    values = {"name": name, "class_name": class_name(name)}
    return {
        template.name.removesuffix(".txt"): Template(template.read_text(encoding="utf-8")).substitute(values)
        for template in sorted(_TEMPLATE.glob("*.txt"))
    }


def class_name(name: str) -> str:
    """Return the name of an engine's class: KeepLastEngine for keep-last and for keep_last_engine."""
    words = [word.capitalize() for word in re.split(r"[-_]", name) if word]
    return "".join(words).removesuffix("Engine") + "Engine"
