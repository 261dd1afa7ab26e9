"""`plugin.yaml`: what a plugin says about itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leporello.config.engines import MANIFEST
from leporello.errors import PluginError

if TYPE_CHECKING:
    from pathlib import Path

_LONGEST = 65_536  # bytes; a manifest is a few lines


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """What a plugin says about itself; whatever else its file holds is for other hosts."""

    name: str = ""
    description: str = ""
    version: str = ""


def read_manifest(folder: Path) -> Manifest:
    """Read a folder's `plugin.yaml`; without one everything is blank, and one that cannot be read is a PluginError."""
    file = folder / MANIFEST
    values = _mapping(_text(file, folder.name), file, folder.name)
    return Manifest(**{key: _line(values.get(key), key, file, folder.name) for key in Manifest.__dataclass_fields__})


def _text(file: Path, plugin: str) -> str:
    try:
        with file.open("rb") as stream:
            raw = stream.read(_LONGEST + 1)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise PluginError(f"cannot be read: {error.strerror}.", plugin=plugin, file=file) from error
    if len(raw) > _LONGEST:
        raise PluginError(f"is longer than {_LONGEST:,} bytes, which no manifest is.", plugin=plugin, file=file)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PluginError("is not UTF-8 text.", plugin=plugin, file=file) from error


def _mapping(text: str, file: Path, plugin: str) -> dict[str, Any]:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    try:
        values = YAML(typ="base", pure=True).load(text)  # base: every value as it is written, also version 0.10
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise PluginError(f"is not YAML: {error.problem}.", plugin=plugin, file=file, line=line) from error
    except (YAMLError, RecursionError) as error:
        raise PluginError("is not YAML.", plugin=plugin, file=file) from error
    if values is None or values == "":
        return {}
    if not isinstance(values, dict):
        raise PluginError(
            f"must hold `name: …`, `description: …` and `version: …`, not {values!r}."[:200], plugin=plugin, file=file
        )
    return values


def _line(value: Any, key: str, file: Path, plugin: str) -> str:
    if isinstance(value, (dict, list)):
        raise PluginError(f"`{key}` must be one line of text.", plugin=plugin, file=file)
    return " ".join(str(value).split()) if value is not None else ""
