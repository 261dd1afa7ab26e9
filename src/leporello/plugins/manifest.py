"""`plugin.yaml`: what a plugin says about itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from leporello.config.engines import MANIFEST
from leporello.config.untrusted_files import read_regular
from leporello.errors import ConfigError, PluginError

if TYPE_CHECKING:
    from pathlib import Path

    from ruamel.yaml.nodes import Node
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
    values = _values(_text(file, folder.name), file, folder.name)
    return Manifest(**{key: _line(values.get(key), key, file, folder.name) for key in Manifest.__dataclass_fields__})


def _text(file: Path, plugin: str) -> str:
    try:
        raw = read_regular(file, most=_LONGEST)
    except FileNotFoundError:
        return ""
    except OSError as error:
        raise PluginError(f"cannot be read: {error.strerror}.", plugin=plugin, file=file) from error
    if raw is None:
        raise PluginError(f"is longer than {_LONGEST:,} bytes, which no manifest is.", plugin=plugin, file=file)
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise PluginError("is not UTF-8 text.", plugin=plugin, file=file) from error


def _values(text: str, file: Path, plugin: str) -> dict[str, Node]:
    """Return what stands behind the keys of a manifest, as it is written: version 0.10 is no number."""
    from ruamel.yaml.nodes import MappingNode, ScalarNode

    from leporello.config.source import compose

    try:
        root = compose(text, file)
    except ConfigError as error:
        raise PluginError(f"is not YAML: {error.problem}", plugin=plugin, file=file, line=error.line) from error
    if root is None or (isinstance(root, ScalarNode) and not root.value):
        return {}
    if not isinstance(root, MappingNode):
        raise PluginError("must hold `name: …`, `description: …` and `version: …`.", plugin=plugin, file=file)
    values: dict[str, Node] = {}
    for key, value in root.value:
        if isinstance(key, ScalarNode) and key.value in values:
            line = key.start_mark.line + 1
            raise PluginError(f"is not YAML: {key.value!r} is given twice.", plugin=plugin, file=file, line=line)
        if isinstance(key, ScalarNode):
            values[key.value] = value
    return values


def _line(node: Node | None, key: str, file: Path, plugin: str) -> str:
    from ruamel.yaml.nodes import ScalarNode

    if node is None:
        return ""
    if not isinstance(node, ScalarNode):
        raise PluginError(f"`{key}` must be one line of text.", plugin=plugin, file=file)
    return " ".join(str(node.value).split())
