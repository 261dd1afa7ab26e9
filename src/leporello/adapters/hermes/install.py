"""Puts the plugin into a Hermes home, and takes out exactly what was put in.

The plugin is a folder with two files. Two keys of the home's config.yaml choose it: `context.engine`, and its name in
`plugins.enabled`. A third file in the folder notes what these keys and their lines were before: a config.yaml that was
not changed since then gets its lines back, in any other one the two keys are set back.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict, dataclass, field, replace
from difflib import SequenceMatcher
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, Final

import leporello
from leporello.adapters.hermes.engine import NAME, STORE
from leporello.config.edit import with_key, without_key, write_atomically
from leporello.config.source import parse
from leporello.errors import ConfigError

if TYPE_CHECKING:
    from leporello.adapters.hermes.engine import EngineName

ENGINE_KEY: Final = "context.engine"
ENABLED_KEY: Final = "plugins.enabled"
DISABLED_KEY: Final = "plugins.disabled"
_NOTE: Final = "installed.json"
_BACK: Final = ("set    config.yaml: as it was before",)
_TEMPLATES: Final = {"plugin.yaml": "plugin.yaml.txt", "__init__.py": "plugin.py.txt"}


@dataclass(frozen=True, kw_only=True)
class HomeChanges:
    """What is going to be done in a Hermes home.

    lines     what it comes to, for people
    write     the files to write, with their texts
    remove    the files to remove
    made      folders that were made for them
    """

    home: Path
    lines: tuple[str, ...]
    write: dict[Path, str] = field(default_factory=dict)
    remove: tuple[Path, ...] = ()
    made: tuple[Path, ...] = ()

    def carry_out(self) -> None:
        """Do it; config.yaml comes last, so that nothing is chosen before it is there."""
        for file, text in self.write.items():
            write_atomically(file, text)
        for file in self.remove:
            file.unlink(missing_ok=True)
        folder = plugin_folder(self.home)
        if self.remove and folder.is_dir():
            shutil.rmtree(folder / "__pycache__", ignore_errors=True)
            for emptied in (folder, *self.made):
                if not any(emptied.iterdir()):
                    emptied.rmdir()


@dataclass(frozen=True, kw_only=True)
class _Note:
    """What was before: the keys, whether config.yaml and `plugins` existed, its lines for a text of hash `after`."""

    engine: Any
    enabled: list[Any] | None
    existed: bool
    after: str
    lines: list[Any]
    plugins_existed: bool = True


def hermes_home(named: Path | None = None) -> Path:
    """Return the Hermes home that is meant: the named one, $HERMES_HOME, or ~/.hermes; it must be there."""
    home = (named or Path(os.environ.get("HERMES_HOME") or "~/.hermes")).expanduser().absolute()
    if not home.is_dir():
        raise ConfigError("there is no such Hermes home.", file=home, hint="Run `hermes` once, or name it with --home.")
    return home


def plugin_folder(home: Path) -> Path:
    """Return where the plugin lies."""
    return home / "plugins" / NAME


def plan_install(home: Path, engine: EngineName) -> HomeChanges:
    """Return what has to be written so that Hermes Agent uses an engine of ours."""
    folder, config = plugin_folder(home), home / "config.yaml"
    note = _note(folder)
    if folder.exists() and note is None and any(folder.iterdir()):
        raise ConfigError("another plugin has this folder.", file=folder, hint="Move it away first.")
    texts = {folder / name: _text(template, engine) for name, template in _TEMPLATES.items()}
    text = _read(config)
    before = _value(text, config, ENGINE_KEY)
    enabled = _value(text, config, ENABLED_KEY)
    if enabled is not None and not isinstance(enabled, list):
        raise ConfigError("this is not a list.", file=config, key=ENABLED_KEY)
    disabled = _value(text, config, DISABLED_KEY)
    if isinstance(disabled, list) and NAME in disabled:
        raise ConfigError(f"{NAME} is in this list.", file=config, key=DISABLED_KEY, hint="Take it out first.")
    lines = [f"write  {file.relative_to(home)}" for file in (*texts, folder / _NOTE)]
    changed = text
    if before != NAME:
        changed = with_key(changed, config, ENGINE_KEY, NAME)
        lines.append(f"set    config.yaml: {ENGINE_KEY}: {NAME}   (now: {before or 'not set'})")
    if NAME not in (enabled or []):
        changed = with_key(changed, config, ENABLED_KEY, [*(enabled or []), NAME])
        lines.append(f"set    config.yaml: {ENABLED_KEY}: + {NAME}")
    if note is None:
        note = _Note(
            engine=before,
            enabled=enabled,
            existed=config.exists(),
            plugins_existed=folder.parent.exists(),
            **_undo(text, changed),
        )
    elif changed != text:
        note = replace(note, after="", lines=[])
    texts[folder / _NOTE] = json.dumps(asdict(note), indent=2) + "\n"
    if changed != text:
        texts[config] = changed
    lines.append(f"Conversations are stored in {STORE}, beside config.yaml, from the first message on.")
    return HomeChanges(home=home, lines=tuple(lines), write=texts)


def plan_uninstall(home: Path) -> HomeChanges:
    """Return what has to be removed and set back; what is stored, and files of others, stay."""
    folder, config = plugin_folder(home), home / "config.yaml"
    note = _note(folder)
    if note is None:
        raise ConfigError("Leporello is not installed in this Hermes home.", file=home)
    removed = tuple(file for name in (*_TEMPLATES, _NOTE) if (file := folder / name).exists())
    lines = [f"remove {file.relative_to(home)}" for file in removed]
    text = _read(config)
    changed, told = (_undone(text, note), _BACK) if note.after == _hashed(text) else _keys_set_back(text, config, note)
    lines += told
    if (home / STORE).exists():
        lines.append(f"{STORE} stays: `leporello sessions list --store {home / STORE}` shows what is in it.")
    write = {config: changed} if changed != text else {}
    if not changed and not note.existed and config.exists():
        write, removed = {}, (*removed, config)
    made = () if note.plugins_existed else (folder.parent,)
    return HomeChanges(home=home, lines=tuple(lines), write=write, remove=removed, made=made)


def _keys_set_back(text: str, config: Path, note: _Note) -> tuple[str, list[str]]:
    """Return a text that was changed since then with both keys as they were, and what is told about it."""
    changed, lines = text, []
    if _value(text, config, ENGINE_KEY) == NAME:
        changed = _set_back(changed, config, ENGINE_KEY, note.engine)
        lines.append(f"set    config.yaml: {ENGINE_KEY}: {note.engine or 'not set'}")
    enabled = _value(text, config, ENABLED_KEY)
    if isinstance(enabled, list) and NAME in enabled and NAME not in (note.enabled or []):
        left = [name for name in enabled if name != NAME]
        changed = _set_back(changed, config, ENABLED_KEY, left if left or note.enabled is not None else None)
        lines.append(f"set    config.yaml: {ENABLED_KEY}: - {NAME}")
    return changed, lines


def _set_back(text: str, file: Path, key: str, value: Any) -> str:
    """Return the text with a key as it was; None: it was not there."""
    return without_key(text, file, key) if value is None else with_key(text, file, key, value)


def _text(template: str, engine: str) -> str:
    found = files("leporello.adapters.hermes").joinpath(template).read_text("utf-8")
    return Template(found).substitute(version=leporello.__version__, engine=engine)


def _note(folder: Path) -> _Note | None:
    """Return what was noted when the plugin was installed; None when it was not."""
    try:
        return _Note(**json.loads((folder / _NOTE).read_text("utf-8")))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        raise ConfigError(f"it cannot be read ({error}).", file=folder / _NOTE) from error


def _undo(before: str, after: str) -> dict[str, Any]:
    """Return the hash of the new text, and which of its lines were which ones before."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    changes = SequenceMatcher(None, new, old, autojunk=False).get_opcodes()
    lines = [[start, stop, old[first:last]] for kind, start, stop, first, last in changes if kind != "equal"]
    return {"after": _hashed(after), "lines": lines}


def _undone(text: str, note: _Note) -> str:
    lines = text.splitlines(keepends=True)
    for start, stop, old in reversed(note.lines):
        lines[start:stop] = old
    return "".join(lines)


def _hashed(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def _read(config: Path) -> str:
    try:
        return config.read_bytes().decode("utf-8")
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"it cannot be read ({error}).", file=config) from error


def _value(text: str, file: Path, key: str) -> Any:
    """Return the value of a key; one that is given twice is an error, as Hermes Agent takes the other one."""
    source = parse(text, file=file)
    for problem in source.problems:
        if problem.key and f"{key}.".startswith(f"{problem.key}."):
            raise problem
    value: Any = source.values
    for name in key.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value
