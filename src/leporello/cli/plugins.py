"""`leporello plugins`: choose, list, create and check context engines."""

from __future__ import annotations

import json
import os
import sys
import warnings
from collections import Counter
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from leporello.cli.format import counted, echo, waiting
from leporello.cli.group import CommandGroup
from leporello.config import Config
from leporello.config.edit import set_value
from leporello.config.engines import BUILT_IN, MANIFEST
from leporello.config.home import default_path
from leporello.errors import LeporelloWarning, PluginError
from leporello.plugins import EngineSource, hermes
from leporello.plugins.enabled import survey
from leporello.plugins.hermes.host import serve

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello.engine import ContextEngine
    from leporello.plugins.discover import Found
    from leporello.testing.contract import CheckResult

TITLE = "Provider Plugins → Context Engine"
_SIGNS = {"passed": "✓", "failed": "✗", "not checked": "–"}

_file_option = click.option(
    "--config",
    "path",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="The file; default: config.yaml in the home folder.",
)
_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")


@click.group(name="plugins", cls=CommandGroup, invoke_without_command=True)
@_file_option
@click.pass_context
def command(context: click.Context, path: Path | None) -> None:
    """Choose, list, create and check context engines.

    Without a subcommand, on a terminal, the engine is picked from a list; elsewhere the list is printed.

    Example: leporello plugins use lcm
    """
    hermes.install(first=True)
    if context.invoked_subcommand is not None:
        context.obj = path
    elif sys.stdin.isatty() and sys.stdout.isatty():
        _pick(path)
    else:
        _print_list(Config.load(path))
        click.echo("\nThis is not a terminal; choose with: leporello plugins use NAME")


@command.command(name="list")
@_file_option
@_json_option
@click.pass_obj
def list_command(outer: Path | None, path: Path | None, as_json: bool) -> None:
    """List the engines and plugins that were found; of their code only the plugins in plugins.enabled are run.

    Example: leporello plugins list --json
    """
    config = Config.load(path or outer)
    if as_json:
        rows = [asdict(one) | {"path": str(one.path) if one.path else None} for one in _survey(config)]
        click.echo(_json({"engine": config.context.engine, "found": rows}))
    else:
        _print_list(config)


@command.command()
@click.argument("name")
@_file_option
@click.pass_obj
def use(outer: Path | None, name: str, path: Path | None) -> None:
    """Make NAME the context engine: loads it, and writes context.engine into config.yaml if it can be used.

    Example: leporello plugins use lcm
    """
    path = path or outer
    refuse_unusable(Config.load(path), name)
    _write(path, name)


@command.command()
@click.argument("name")
@click.option(
    "--path", "parent", metavar="DIR", type=click.Path(path_type=Path), help="Where; default: the home folder."
)
@click.option("--package", is_flag=True, help="A package that pip installs; by default in the current folder.")
def new(name: str, parent: Path | None, package: bool) -> None:
    """Write the folder of a new engine, with a small engine that works and its test.

    Example: leporello plugins new my-engine --path ./engines
    """
    from leporello.config.home import home_folder
    from leporello.plugins.new import new_engine_folder, new_engine_package

    if package:
        folder = new_engine_package(name, parent or Path())
        click.echo(f"{folder}: a package with an engine and its test")
        path = quote(str(folder) if folder.is_absolute() else f"./{folder}")
        steps = [f"pip install {path}", f"leporello plugins check {name}"]
    else:
        before = [str(path) for path in Config.load().plugins.paths]
        if parent is None:
            home_folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        folder = new_engine_folder(name, parent or home_folder() / "plugins" / "context_engine")
        click.echo(f"{folder}: an engine, its manifest and its test")
        steps = [f"leporello plugins check {quote(str(folder))}"]
        if not (find_spec("pytest") and find_spec("hypothesis")):
            steps.append("pip install '.[testing]'          in a checkout, for the test")
        steps.append(f"python -m pytest {quote(str(folder))}")
        if parent is not None:
            paths = json.dumps([*before, str(parent.absolute())], ensure_ascii=False)
            steps.append(f"leporello config set plugins.paths {quote(paths)}")
    click.echo("Next:")
    for step in (*steps, f"leporello plugins use {name}"):
        click.echo(f"  {step}")


@command.command()
@click.argument("engine", metavar="NAME|PATH")
@click.option("--conversations", type=click.IntRange(min=1), default=30, show_default=True, help="How many to try.")
@_file_option
@_json_option
@click.pass_obj
def check(outer: Path | None, engine: str, conversations: int, path: Path | None, as_json: bool) -> None:
    """Check an engine, by its name or by its folder, against the contract; exit code 1 when a check fails.

    Example: leporello plugins check ./engines/my-engine
    """
    from leporello.testing.contract import CHECKS, check_engine

    config, name = _subject(engine, path or outer)
    make = _maker(config, name)
    if not as_json:
        click.echo(f"{name}:")
    results: list[CheckResult] = []
    for number, check in enumerate(CHECKS, start=1):
        with waiting(f"{number} of {len(CHECKS)}: {CHECKS[check][0]}"):
            results += check_engine(make, conversations=conversations, checks=[check])
        if not as_json:
            _print_check(results[-1])
    failed = [result for result in results if result.status == "failed"]
    if as_json:
        click.echo(_json({"engine": name, "ok": not failed, "checks": [asdict(result) for result in results]}))
    else:
        click.echo(_summary(results))
    sys.exit(1 if failed else 0)


def _summary(results: list[CheckResult]) -> str:
    """Count the checks by what came of them, and name those that failed."""
    by_status = Counter(result.status for result in results)
    parts = [f"{counted(by_status['passed'], 'check')} passed"]
    if by_status["not checked"]:
        parts.append(f"{by_status['not checked']} could not be made")
    failed = [result.check for result in results if result.status == "failed"]
    parts.append(f"{len(failed)} failed: {', '.join(failed)}" if failed else "none failed")
    return ", ".join(parts)


def refuse_unusable(config: Config, name: str) -> None:
    """Raise when there is no engine of this name, or when it cannot be used."""
    hermes.install(first=True)
    found = _engines(config).get(name)
    if found is not None and found.problem:
        raise PluginError(f"{found.problem}.", plugin=name, file=found.path)
    _try(config, name)  # says what was looked for, where, and why it failed


def _subject(engine: str, path: Path | None) -> tuple[Config, str]:
    """Return the configuration and the name under which an engine is found, given its name or its folder."""
    config = Config.load(path)
    folder = Path(engine)
    if engine in _engines(config) or not (folder.is_dir() or os.sep in engine):
        return config, engine
    if not folder.is_dir():
        raise PluginError("there is no such folder.", plugin=engine, file=folder)
    folder = folder.resolve()
    plugins = config.plugins.model_copy(update={"paths": [*config.plugins.paths, folder]})
    return config.model_copy(update={"plugins": plugins}), folder.name


def _maker(config: Config, name: str) -> Callable[..., ContextEngine]:
    """Return a function that makes fresh engines for the checks; it names the clock only if the engine takes one."""
    source = EngineSource(config, name=name)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", LeporelloWarning)
        takes_clock = source.takes("clock")  # loads the plugin; one that cannot be loaded ends the command here
    for warning in caught:
        echo(f"leporello: {warning.message}", err=True)

    def make(context_length: int, llm: Any, **options: Any) -> ContextEngine:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return EngineSource(config, name=name, context_length=context_length, llm=llm, **options).make()

    def make_with_clock(context_length: int, llm: Any, clock: Any) -> ContextEngine:
        return make(context_length, llm, clock=clock)

    def make_plain(context_length: int, llm: Any) -> ContextEngine:
        return make(context_length, llm)

    return make_with_clock if takes_clock else make_plain


def _pick(path: Path | None) -> None:
    from leporello.cli.picker import pick

    config = Config.load(path)
    current = config.context.engine
    usable = {name: found for name, found in _engines(config).items() if not found.problem}
    names = list(usable)
    width = max(len(_row(name, current)) for name in names)
    rows = [f"{_row(name, current):<{width}}  {found.description}".rstrip() for name, found in usable.items()]
    if current not in names:
        names.append(current)
        rows.append(f"● {current} (not found)")
    chosen = pick(TITLE, rows, start=names.index(current))
    if chosen is None or names[chosen] == current:
        click.echo(f"context.engine stays {current}")
    else:
        refuse_unusable(config, names[chosen])
        _write(path, names[chosen])


def _row(name: str, current: str) -> str:
    return f"{'●' if name == current else '○'} {name}{' (default)' if name == BUILT_IN else ''}"


def _engines(config: Config) -> dict[str, Found]:
    """Return what can be chosen by name: the built-in engine, the folders, the engines of enabled plugins."""
    engines: dict[str, Found] = {}
    for one in _survey(config):
        if one.kind != "plugin":
            engines.setdefault(one.name, one)  # the built-in engine comes first, and wins over a folder of its name
    return engines


def _survey(config: Config) -> list[Found]:
    """List what there is; what a plugin's code warns of is not part of the list."""
    serve(config)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return survey(config)


def _try(config: Config, name: str) -> None:
    """Load an engine; a PluginError says why it cannot be had."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        engine = EngineSource(config, name=name).make()
    close = getattr(engine, "close", None)  # an engine on another host's contract may have none
    if callable(close):
        close()


def _write(path: Path | None, name: str) -> None:
    set_value(path, "context.engine", json.dumps(name))
    click.echo(f"context.engine is now {name} in {path or default_path()}; new conversations use it")


def _print_list(config: Config) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    current = config.context.engine
    found = _survey(config)
    table = Table(title=TITLE, title_justify="left", box=None, pad_edge=False)
    for column in ("", "name", "version", "from", "what it is"):
        table.add_column(column, overflow="fold")
    for one in found:
        mark = "●" if one.name == current and one.kind != "plugin" and not one.problem else ""
        called = f"({MANIFEST}: {one.called})" if one.called not in ("", one.name) else ""
        shadows = f"(takes precedence over {', '.join(one.shadows)})" if one.shadows else ""
        note, problem = one.note and f"({one.note})", one.problem and f"✗ {one.problem}"
        what = " ".join(filter(None, (one.description, called, shadows, note, problem)))
        table.add_row(mark, *(escape(text) for text in (one.name, one.version, _origin(one), what)))
    if not any(one.name == current and one.kind != "plugin" for one in found):
        table.add_row("●", escape(f"{current} (not found)"), "", "context.engine", "`leporello doctor` says more")
    Console(width=None if sys.stdout.isatty() else 160).print(table)


def _origin(one: Found) -> str:
    if one.kind != "plugin":
        return one.origin
    return f"plugin, {one.origin}, {'enabled' if one.enabled else 'not enabled'}"


def _print_check(result: CheckResult) -> None:
    detail = f": {result.detail}" if result.detail else ""
    echo(f"  {_SIGNS[result.status]} {result.check:<9}  {result.title} — {result.status}{detail}")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)
