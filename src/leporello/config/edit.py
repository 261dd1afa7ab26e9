"""Reading and changing single keys of config.yaml; comments and layout stay, and no failure damages the file."""

from __future__ import annotations

import contextlib
import copy
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leporello.config.engines import LOSSLESS, plugin_folders, user_engines
from leporello.config.fields import kind_at, split_key
from leporello.config.home import default_path
from leporello.config.keys import looks_like_key, names_a_key, where_keys_belong
from leporello.config.layout import LayoutError, inline, with_value, without
from leporello.config.load import BYTE_ORDER_MARK, check_text, read_text
from leporello.config.model import Config
from leporello.config.problems import unknown_key
from leporello.config.source import parse, parse_value
from leporello.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ruamel.yaml.nodes import Node


def get_value(config: Config, key: str) -> Any:
    """Return what is in force for a key such as compression.threshold; for a block, a dict."""
    location = split_key(key)
    value: Any = config.block(location[0])
    if not value and location[0] not in {*Config.model_fields, *config.engine_blocks()}:
        raise _unknown(location, engines=config.engine_blocks())
    for depth, name in enumerate(location[1:], start=1):
        if not isinstance(value, dict) or name not in value:
            if location[0] in config.engine_blocks():
                raise _not_given(config, location)
            raise _unknown(location[: depth + 1])
        value = value[name]
    return value


def set_value(path: str | os.PathLike[str] | None, key: str, text: str) -> Any:
    """Put a value, written as YAML, into a file and return it; None is the default path. The result is checked first.

    A file, block or key that is missing is added; a new file is readable by its owner only.
    """
    location = split_key(key)
    value = parse_value(text, key=key)
    _refuse_secrets(key, location, value)
    if _is_unknown(path, location):
        raise _unknown(location)
    _change(
        path,
        key,
        layout=lambda old, root: with_value(old, root, location, value),
        meaning=lambda values: _with(values, location, value),
    )
    return value


def unset_value(path: str | os.PathLike[str] | None, key: str) -> bool:
    """Take a key or a block out of a file, so that its default is in force; False when the file does not have it."""
    location = split_key(key)
    file = _file(path)
    text = read_text(file) or ""
    if not _has(parse(text.removeprefix(BYTE_ORDER_MARK), file=file).values, location):
        if _is_unknown(path, location):
            raise _unknown(location)
        return False
    _change(
        file,
        key,
        layout=lambda old, root: without(old, root, location),
        meaning=lambda values: _without(values, location),
    )
    return True


def _is_unknown(path: str | os.PathLike[str] | None, location: tuple[str, ...]) -> bool:
    """Tell whether one of our own blocks lacks a key; the block `lcm` may be another engine's."""
    if location[0] not in Config.model_fields or kind_at(location) is not None:
        return False
    return location[0] != LOSSLESS or not _may_be_foreign(path)


def _may_be_foreign(path: str | os.PathLike[str] | None) -> bool:
    """Tell whether an engine that is installed may have the name `lcm`; its code is not run."""
    file = _file(path)
    config = check_text(read_text(file) or "", file=file).config or Config()
    others = plugin_folders(config.home / "plugins")
    mine = (folder.name for folder in user_engines(home=config.home, paths=config.plugins.paths))
    return bool(others or config.plugins.enabled) or LOSSLESS in (*mine, *config.engine_blocks())


def with_key(text: str, file: Path, key: str, value: Any) -> str:
    """Return the text of any YAML file with a value put in; comments and layout stay."""
    location = split_key(key)
    return _edited(
        text,
        file,
        key,
        layout=lambda old, root: with_value(old, root, location, value),
        meaning=lambda values: _with(values, location, value),
        hint=f"Set it to {inline(value)} in an editor, and repeat this.",
    )


def without_key(text: str, file: Path, key: str) -> str:
    """Return the text of any YAML file without a key that it has; comments and layout stay."""
    location = split_key(key)
    return _edited(
        text,
        file,
        key,
        layout=lambda old, root: without(old, root, location),
        meaning=lambda values: _without(values, location),
        hint="Take it out in an editor, and repeat this.",
    )


def _change(
    path: str | os.PathLike[str] | None,
    key: str,
    *,
    layout: Callable[[str, Node | None], str],
    meaning: Callable[[dict[Any, Any]], dict[Any, Any]],
) -> None:
    """Change the text of our configuration, make sure that it can be used, and write it."""
    file = _file(path)
    old = read_text(file) or ""
    body = old.removeprefix(BYTE_ORDER_MARK)
    hint = "Change it in an editor, and run `leporello config check`."
    new = _edited(body, file, key, layout=layout, meaning=meaning, hint=hint)
    _raise_problems(new, file, key)
    write_atomically(file, old.removesuffix(body) + new)


def _edited(
    body: str,
    file: Path,
    key: str,
    *,
    layout: Callable[[str, Node | None], str],
    meaning: Callable[[dict[Any, Any]], dict[Any, Any]],
    hint: str,
) -> str:
    """Return the changed text, when it says what it should and nothing else."""
    location = split_key(key)
    before = parse(body, file=file)
    wanted = meaning(before.values)
    try:
        new = layout(body, before.root)
        understood = _without_empty(parse(new, file=file).values, location) == _without_empty(wanted, location)
    except (LayoutError, ConfigError):
        understood = False
    if not understood:
        line = before.lines.get(location[:1])
        raise ConfigError(
            "the file's layout is too unusual for this command.", file=file, line=line, key=key, hint=hint
        )
    return new


def _raise_problems(text: str, file: Path, key: str) -> None:
    """Raise what is wrong with the new text; the line of the key itself is not in the user's file yet."""
    checked = check_text(text, file=file)
    own = [problem for problem in checked.problems if problem.key and f"{key}.".startswith(f"{problem.key}.")]
    if own:
        raise ConfigError(own[0].problem, key=own[0].key, hint=own[0].hint)
    checked.result()


def write_atomically(file: Path, text: str) -> None:
    """Replace a file in one step, following a symbolic link, with its mode and owner; on a failure it stays."""
    target = Path(os.path.realpath(file))
    try:
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        old = target.stat() if target.exists() else None
        descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".tmp")
        try:
            _write_and_sync(descriptor, text, old)
            os.replace(temporary, target)  # noqa: PTH105 - the counterpart of mkstemp
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)  # noqa: PTH108 - the same
            raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"the file cannot be written: {reason}.", file=file, hint="It is unchanged.") from error


def _write_and_sync(descriptor: int, text: str, old: os.stat_result | None) -> None:
    with os.fdopen(descriptor, "wb") as stream:
        if old is not None and (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
            with contextlib.suppress(PermissionError):  # only root can leave a file to its owner
                os.fchown(descriptor, old.st_uid, old.st_gid)
        os.fchmod(descriptor, 0o600 if old is None else old.st_mode & 0o7777)
        stream.write(text.encode())
        stream.flush()
        os.fsync(descriptor)


def _file(path: str | os.PathLike[str] | None) -> Path:
    return default_path() if path is None else Path(path).expanduser()


def _refuse_secrets(key: str, location: tuple[str, ...], value: Any) -> None:
    named = names_a_key(location[-1]) and kind_at(location) is None
    if named or looks_like_key(value) or (isinstance(value, dict | list) and _holds_key(value)):
        raise ConfigError(
            "keys do not belong into this file; nothing was written.",
            key=key,
            hint=where_keys_belong(key),
        )


def _holds_key(value: Any) -> bool:
    if isinstance(value, dict):
        return any(names_a_key(str(name)) or _holds_key(item) for name, item in value.items())
    return any(_holds_key(item) for item in value) if isinstance(value, list) else looks_like_key(value)


def _not_given(config: Config, location: tuple[str, ...]) -> ConfigError:
    known = ", ".join(map(str, config.block(location[0]))) or "nothing"
    hint = f"The block is the engine's own; it holds {known}."
    return ConfigError("the file does not set this key.", file=config.path, key=".".join(location), hint=hint)


def _unknown(location: tuple[str, ...], *, engines: tuple[str, ...] = ()) -> ConfigError:
    known = next((end for end in range(1, len(location)) if kind_at(location[:end]) is None), len(location))
    problem, hint = unknown_key(location[:known], engines=engines)
    return ConfigError(problem, key=".".join(location[:known]), hint=hint)


def _with(values: dict[Any, Any], location: tuple[str, ...], value: Any) -> dict[Any, Any]:
    changed = copy.deepcopy(values)
    block = changed
    for name in location[:-1]:
        if block.get(name) is None:
            block[name] = {}
        block = block[name]
        if not isinstance(block, dict):
            raise ConfigError(f"{name} is not a block in this file.", key=".".join(location))
    block[location[-1]] = value
    return changed


def _without(values: dict[Any, Any], location: tuple[str, ...]) -> dict[Any, Any]:
    changed = copy.deepcopy(values)
    block = changed
    for name in location[:-1]:
        block = block[name]
    del block[location[-1]]
    return changed


def _has(values: Any, location: tuple[str, ...]) -> bool:
    for name in location:
        if not isinstance(values, dict) or name not in values:
            return False
        values = values[name]
    return True


def _without_empty(values: dict[Any, Any], location: tuple[str, ...]) -> dict[Any, Any]:
    """Drop the blocks around a location that hold nothing: `compression:` alone says the same as no such line."""
    name, *rest = location
    inner = values.get(name)
    if rest and isinstance(inner, dict):
        inner = _without_empty(inner, tuple(rest))
    kept = {other: value for other, value in values.items() if other != name}
    return kept if rest and inner in ({}, None) else {**values, name: inner} if name in values else kept
