"""`leporello config`: read, check and change config.yaml."""

from __future__ import annotations

import json
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from leporello.cli.group import CommandGroup
from leporello.cli.store_options import refuse_unreachable
from leporello.config import Config
from leporello.config.edit import get_value, set_value, unset_value
from leporello.config.fields import keys, split_key
from leporello.config.home import default_path
from leporello.config.keys import hidden
from leporello.config.layout import inline
from leporello.config.load import Checked, check_file
from leporello.config.problems import one_line
from leporello.config.source import parse_value
from leporello.errors import ConfigError
from leporello.store import open_store

_file_option = click.option(
    "--config",
    "path",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="The file; default: config.yaml in the home folder.",
)
_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


@click.group(name="config", cls=CommandGroup)
def command() -> None:
    """Read, check and change config.yaml.

    Comments and layout stay when a value is changed, and a value that would be refused is never written.

    Example: leporello config set compression.threshold 0.6
    """


@command.command()
@click.argument("key")
@_file_option
@_json_option
def get(key: str, path: Path | None, as_json: bool) -> None:
    """Print the value in force for KEY: the file's, or the default.

    Example: leporello config get compression.threshold
    """
    value = get_value(check_file(path).result(), key)
    click.echo(_as_json(value) if as_json else _as_text(value))


@command.command(name="set", context_settings={"ignore_unknown_options": True})
@click.argument("key")
@click.argument("value")
@click.option("--untried", is_flag=True, help="Write an engine or a store although it cannot be used here and now.")
@_file_option
def set_command(key: str, value: str, untried: bool, path: Path | None) -> None:
    """Write VALUE, read as YAML, for KEY into the file; the file and the block are created when they are missing.

    An engine (context.engine) and a store (store.url) are tried first; one that cannot be used is not written.

    \b
    Examples:
      leporello config set context.engine lcm
      leporello config set plugins.paths '[~/engines]'
      leporello config set windows.openai/gpt-5.5 1050000
    """  # noqa: D301 - click wants the character, not the two letters
    if not untried:
        _try(path, key, value)
    stored = set_value(path, key, value)
    click.echo(f"{key} is now {inline(hidden(key, stored))} in {path or default_path()}")


@command.command()
@click.argument("key")
@_file_option
def unset(key: str, path: Path | None) -> None:
    """Take KEY out of the file, so that its default is in force again; exit code 1 when it was not there.

    Example: leporello config unset compression.threshold
    """
    file = path or default_path()
    if not unset_value(path, key):
        click.echo(f"{key} is not set in {file}", err=True)
        sys.exit(1)
    click.echo(f"{key} is no longer set in {file}")


@command.command()
@_file_option
@_json_option
def show(path: Path | None, as_json: bool) -> None:
    """Print every key with its value, and whether it is a default or where it stands in the file.

    Example: leporello config show --json
    """
    checked = check_file(path)
    config = checked.result()
    rows = [_row(config, checked, name) for name in _shown_keys(config)]
    if as_json:
        click.echo(_as_json({"path": _file_of(config), "values": {row["key"]: _without_key(row) for row in rows}}))
        return
    click.echo(_file_of(config) or f"{default_path()} does not exist; these are the defaults")
    width, value_width = (max(len(_column(row, part)) for row in rows) for part in ("key", "value"))
    for row in rows:
        origin = "default" if row["source"] == "default" else f"line {row['line']}"
        click.echo(f"  {row['key']:<{width}}  {_column(row, 'value'):<{value_width}}  {origin}")


@command.command()
@_file_option
def path(path: Path | None) -> None:
    """Print where config.yaml is, or would be.

    Example: $EDITOR "$(leporello config path)"
    """
    click.echo(path or default_path())


@command.command()
@_file_option
@_json_option
def check(path: Path | None, as_json: bool) -> None:
    """Report everything that is wrong with the file; exit code 1 when something is.

    Example: leporello config check --config ./config.yaml
    """
    checked = _checked(path)
    file = path or default_path()
    if as_json:
        click.echo(_as_json({"path": str(file), "ok": not checked.problems, "problems": _problems(checked)}))
    elif checked.problems:
        click.echo(f"{file}:")
        click.echo("\n".join(f"  {one_line(problem)}" for problem in checked.problems))
    else:
        assert checked.config is not None  # noqa: S101 - without problems there is one
        click.echo(f"{file}: " + ("correct" if checked.config.path else "there is no file; the defaults are in force"))
    sys.exit(1 if checked.problems else 0)


def _try(path: Path | None, key: str, value: str) -> None:
    """Raise when the engine or the store that a value names cannot be used."""
    if key not in ("context.engine", "store.url"):
        return
    config = check_file(path).config or Config.from_mapping({})  # of a file that is not there yet
    named = parse_value(value, key=key)
    if not isinstance(named, str) or not named:
        return  # what is wrong is told when it is written
    if key == "context.engine":
        from leporello.cli.plugins import refuse_unusable

        refuse_unusable(config, named)
    else:
        refuse_unreachable(open_store(home=config.home, url=named))


def _checked(path: Path | None) -> Checked:
    """Check a file; whose the block of an engine is, the enabled plugins tell where nothing else does."""
    checked = check_file(path)
    config = checked.config
    if config is None or config.context.engine not in config.engine_blocks() or not config.plugins.enabled:
        return checked
    from leporello.plugins import EngineSource, hermes

    hermes.install(first=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            _ = EngineSource(config).shipped
        except ConfigError as error:
            return replace(checked, config=None, problems=(error,))
    return checked


def _shown_keys(config: Config) -> list[str]:
    """Name every key of the model, and each key that the file gives to an engine."""
    unchecked = config.engine_blocks()
    own_keys = [key.name for key in keys() if key.name.partition(".")[0] not in unchecked]
    return own_keys + [f"{block}.{name}" for block in unchecked for name in config.block(block)]


def _row(config: Config, checked: Checked, key: str) -> dict[str, Any]:
    line = checked.lines.get(split_key(key))
    value = hidden(key.rpartition(".")[2], get_value(config, key))
    return {"key": key, "value": value, "source": "default" if line is None else "file", "line": line}


def _without_key(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name != "key"}


def _column(row: dict[str, Any], part: str) -> str:
    return str(row[part]) if part == "key" else inline(row[part])


def _file_of(config: Config) -> str | None:
    return None if config.path is None else str(config.path)


def _problems(checked: Checked) -> list[dict[str, Any]]:
    return [
        {"line": problem.line, "key": problem.key, "problem": problem.problem, "hint": problem.hint}
        for problem in checked.problems
    ]


def _as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2, default=str)


def _as_text(value: Any) -> str:
    """Write a value for people and shells: text bare, a block one key per line, all else as YAML."""
    if isinstance(value, dict):
        return "\n".join(f"{inline(name)}: {inline(item)}" for name, item in value.items())
    return str(value) if isinstance(value, str) else inline(value)
