"""`leporello doctor`: says what is configured, what was found, and what is wrong."""

from __future__ import annotations

import json
import os
import platform
import sqlite3
import stat
import sys
import warnings
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import click

import leporello
from leporello.cli.format import counted, echo, size
from leporello.cli.leftovers import leftovers
from leporello.cli.store_options import file_of
from leporello.cli.stores import schema_of
from leporello.config.home import default_path, home_folder
from leporello.config.keys import present_keys
from leporello.config.load import check_file
from leporello.config.problems import one_line
from leporello.errors import ConfigError, LeporelloWarning, PluginError, StoreError
from leporello.plugins import EngineSource, hermes
from leporello.plugins.discover import Found, places
from leporello.plugins.enabled import EnabledPlugins, survey
from leporello.plugins.hermes.host import serve
from leporello.prices import price_of
from leporello.store import open_store
from leporello.store.sqlite import SQLiteStore
from leporello.store.sqlite.migrations import versions

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leporello.config import Config
    from leporello.engine import ContextEngine
    from leporello.store import ConversationInfo, Finding, PurgeStatus

Status: TypeAlias = Literal["ok", "note", "warning", "problem"]
_SIGNS = {"ok": "✓", "note": "·", "warning": "!", "problem": "✗"}


@dataclass(frozen=True, kw_only=True)
class Diagnostic:
    """One thing that the doctor looked at."""

    section: str
    subject: str
    status: Status
    detail: str


@click.command(name="doctor")
@click.option(
    "--config",
    "path",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="The file; default: config.yaml in the home folder.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def command(path: Path | None, as_json: bool) -> None:
    """Say what is configured, what was found, and what is wrong; exit code 1 when something is.

    Of the plugins only the chosen engine and those in plugins.enabled are loaded. Keys are never shown.

    Example: leporello doctor --json
    """
    hermes.install(first=True)
    findings = list(examine(path))
    ill = any(finding.status == "problem" for finding in findings)
    if as_json:
        click.echo(
            json.dumps({"ok": not ill, "findings": [asdict(one) for one in findings]}, ensure_ascii=False, indent=2)
        )
    else:
        _print(findings)
    sys.exit(1 if ill else 0)


def examine(path: Path | None = None) -> Iterator[Diagnostic]:
    """Look at everything; what is wrong is a finding, never an exception."""
    yield from _versions()
    yield from _home()
    config, findings = _configuration(path)
    yield from findings
    yield from _keys()
    yield from _leftovers()
    if config is not None:
        enabled = EnabledPlugins(config)
        yield from _plugins(config, enabled)
        yield from _engine(config, enabled)
        yield from _summariser(config)
        yield from _store(config.store.url)
        if config.lcm.store:
            yield from _store(config.lcm.store)


def _versions() -> Iterator[Diagnostic]:
    yield Diagnostic(section="versions", subject="python", status="ok", detail=platform.python_version())
    yield Diagnostic(section="versions", subject="leporello", status="ok", detail=leporello.__version__)
    for package in ("openai", "anthropic"):
        try:
            yield Diagnostic(section="versions", subject=package, status="ok", detail=version(package))
        except PackageNotFoundError:
            yield Diagnostic(section="versions", subject=package, status="problem", detail="is not installed")
    yield Diagnostic(section="versions", subject="sqlite", status="ok", detail=sqlite3.sqlite_version)


def _home() -> Iterator[Diagnostic]:
    try:
        home = home_folder()
    except ConfigError as error:
        yield Diagnostic(section="home", subject="LEPORELLO_HOME", status="problem", detail=str(error))
        return
    status, detail = _state_of(home)
    yield Diagnostic(section="home", subject=str(home), status=status, detail=detail)


def _state_of(home: Path) -> tuple[Status, str]:
    try:
        mode = home.stat().st_mode
    except FileNotFoundError:
        return "ok", "does not exist yet; it is made when something is written"
    except OSError as error:
        return "problem", f"cannot be read: {error.strerror}"
    if not stat.S_ISDIR(mode):
        return "problem", "is not a folder"
    if not os.access(home, os.R_OK | os.W_OK | os.X_OK):
        return "problem", f"cannot be read and written by you (mode {stat.S_IMODE(mode):04o})"
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        return "warning", f"other users can get in (mode {stat.S_IMODE(mode):04o}): chmod 700 {home}"
    return "ok", f"mode {stat.S_IMODE(mode):04o}"


def _configuration(path: Path | None) -> tuple[Config | None, list[Diagnostic]]:
    try:
        file = path or default_path()
        checked = check_file(path)
    except ConfigError as error:
        return None, [Diagnostic(section="configuration", subject="config.yaml", status="problem", detail=str(error))]
    if checked.config is None:
        return None, [
            Diagnostic(section="configuration", subject=str(file), status="problem", detail=one_line(problem))
            for problem in checked.problems
        ]
    detail = "is fine" if checked.config.path else "does not exist; the defaults are in force"
    return checked.config, [Diagnostic(section="configuration", subject=str(file), status="ok", detail=detail)]


def _keys() -> Iterator[Diagnostic]:
    for variable, present in present_keys().items():
        yield Diagnostic(
            section="keys", subject=variable, status="ok" if present else "note", detail="set" if present else "not set"
        )


def _leftovers() -> Iterator[Diagnostic]:
    found = list(leftovers())
    for one in found:
        yield Diagnostic(section="agents", subject=one.subject, status="warning", detail=one.detail)
    if not found:
        text = "no setting and no variable points to a gateway that has ended"
        yield Diagnostic(section="agents", subject="settings", status="ok", detail=text)


def _plugins(config: Config, enabled: EnabledPlugins) -> Iterator[Diagnostic]:
    for place in places(config):
        if place.problem:
            yield Diagnostic(section="plugins", subject=str(place.path), status="problem", detail=place.problem)
    serve(config)
    found = survey(config, enabled)
    for one in found:
        yield Diagnostic(
            section="plugins", subject=one.name, status=_plugin_status(one, config), detail=_described(one)
        )
    installed = {one.name for one in found if one.kind == "plugin"}
    for name in config.plugins.enabled:
        if name not in installed:
            yield Diagnostic(
                section="plugins",
                subject=name,
                status="problem",
                detail="plugins.enabled names it, but it is not installed",
            )


def _plugin_status(one: Found, config: Config) -> Status:
    if not one.problem:
        return "note" if one.note else "ok"
    wanted = one.name in config.plugins.enabled if one.kind == "plugin" else one.name == config.context.engine
    return "problem" if wanted else "warning"


def _described(one: Found) -> str:
    kind = {"built-in": "built-in engine", "engine": f"engine, {one.origin}"}.get(one.kind) or (
        f"plugin, {one.origin}, {'enabled' if one.enabled else 'not enabled'}"
    )
    version_of = one.version and f"version {one.version}"
    shadows = f"takes precedence over {', '.join(one.shadows)}" if one.shadows else ""
    place = str(one.path or one.target)
    return "; ".join(filter(None, (kind, version_of, place, shadows, one.note, one.problem)))


def _engine(config: Config, enabled: EnabledPlugins) -> Iterator[Diagnostic]:
    name = config.context.engine
    engine, assumed, problem, oddities = _loaded(config, enabled)
    if engine is None:
        yield Diagnostic(section="engine", subject=name, status="problem", detail=problem)
        return
    yield Diagnostic(section="engine", subject=name, status="ok", detail=f"loads ({type(engine).__name__})")
    for oddity in oddities:
        yield Diagnostic(section="engine", subject=name, status="warning", detail=oddity)
    yield _window(config, 0 if assumed else engine.context_length)
    yield from _price(config)
    close = getattr(engine, "close", None)  # an engine on another host's contract may have none
    if callable(close):
        close()


def _loaded(config: Config, enabled: EnabledPlugins) -> tuple[ContextEngine | None, bool, str, list[str]]:
    """Load the chosen engine; return it and whether its window is assumed, or the problem, and what was odd."""
    source = EngineSource(config, enabled=enabled)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            engine = source.make()
        except PluginError as error:
            return None, False, error.problem, []
        except ConfigError as error:
            return None, False, str(error), []
    oddities = [str(one.message) for one in caught if issubclass(one.category, LeporelloWarning)]
    return engine, source.assumes_window(engine), "", oddities


def _price(config: Config) -> Iterator[Diagnostic]:
    """Say what the configured model costs, and who says so."""
    model, provider = config.model.default, config.model.provider
    if not model:
        return
    price = price_of(model, "" if provider == "auto" else provider, overrides=config.own_prices())
    if price is None:
        text = f"the price of {model} is not known: leporello config set prices.{model} '{{input: 0.5, output: 2}}'"
        yield Diagnostic(section="engine", subject="price", status="note", detail=text)
        return
    text = f"${price.input:g} in, ${price.output:g} out for a million tokens ({price.source})"
    yield Diagnostic(section="engine", subject="price", status="ok", detail=text)


def _window(config: Config, context_length: int) -> Diagnostic:
    model = config.model.default
    if context_length:
        return Diagnostic(section="engine", subject="window", status="ok", detail=f"{context_length:,} tokens")
    if model:
        text = f"the window of {model} is not known: leporello config set model.context_length TOKENS"
        return Diagnostic(section="engine", subject="window", status="warning", detail=text)
    text = "no model is configured; name one when you open a session (or: leporello config set model.default NAME)"
    return Diagnostic(section="engine", subject="window", status="note", detail=text)


def _summariser(config: Config) -> Iterator[Diagnostic]:
    from leporello.llm.connect import connect

    try:
        llm = connect(config)
    except ConfigError as error:
        yield Diagnostic(section="summariser", subject="auxiliary.compression", status="problem", detail=str(error))
        return
    if llm is None:
        text = "no key is set: summaries are made without a model"
        yield Diagnostic(section="summariser", subject="auxiliary.compression", status="note", detail=text)
    else:
        yield Diagnostic(section="summariser", subject=llm.model, status="ok", detail=f"through {llm.provider}")


def _store(address: str | None) -> Iterator[Diagnostic]:
    try:
        store = open_store(address)
    except StoreError as error:
        yield Diagnostic(section="store", subject=error.place, status="problem", detail=f"{error.problem} {error.hint}")
        return
    except ConfigError as error:
        yield Diagnostic(section="store", subject="the default", status="problem", detail=str(error))
        return
    file = file_of(store)
    if store.url.startswith("postgresql://"):
        yield from _database(address or store.url)
    elif file is None:
        text = "is kept in memory; nothing of it stays when the program ends"
        yield Diagnostic(section="store", subject=store.url, status="note", detail=text)
    elif not os.path.lexists(file):
        text = "does not exist yet; it is made when the first message is kept"
        yield Diagnostic(section="store", subject=str(file), status="ok", detail=text)
    else:
        yield _store_file(file)
        yield from _store_contents(file)


def _database(address: str) -> Iterator[Diagnostic]:
    """Look into a PostgreSQL database without changing it."""
    from leporello.store.postgres import PostgresStore

    with PostgresStore(address, read_only=True) as store:
        try:
            trouble = store.check_file()
            infos = list(store.conversations())
            purge = store.purge_status()
        except StoreError as error:
            text = f"{error.problem} {error.hint}".strip()
            yield Diagnostic(section="store", subject=store.url, status="problem", detail=text)
            return
        yield Diagnostic(section="store", subject=store.url, status="ok", detail="can be reached")
    yield from _contents("database", trouble, infos, purge)


def _store_file(file: Path) -> Diagnostic:
    beside = [file.with_name(file.name + ending) for ending in ("", "-wal", "-shm")]
    try:
        mode = file.stat().st_mode
        taken = size(sum(one.stat().st_size for one in beside if one.exists()))
    except OSError as error:
        return Diagnostic(
            section="store", subject=str(file), status="problem", detail=f"cannot be read: {error.strerror}"
        )
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        text = f"{taken}; other users can get at it (mode {stat.S_IMODE(mode):04o}): chmod 600 {file}"
        return Diagnostic(section="store", subject=str(file), status="warning", detail=text)
    return Diagnostic(section="store", subject=str(file), status="ok", detail=f"{taken}, mode {stat.S_IMODE(mode):04o}")


def _store_contents(file: Path) -> Iterator[Diagnostic]:
    """Look into a store without changing it."""
    try:
        number, newest = schema_of(file), max(versions())
        if number < newest:
            text = f"{number}; it is brought to {newest} when the store is used next"
            yield Diagnostic(section="store", subject="schema", status="note", detail=text)
            return
        with SQLiteStore(file, read_only=True) as store:
            trouble = store.check_file()
            infos = list(store.conversations())
            purge = store.purge_status()
    except StoreError as error:
        yield Diagnostic(section="store", subject=str(file), status="problem", detail=error.problem)
        return
    yield Diagnostic(section="store", subject="schema", status="ok", detail=str(number))
    yield from _contents("file", trouble, infos, purge)


def _contents(
    what: str, trouble: list[Finding], infos: list[ConversationInfo], purge: PurgeStatus
) -> Iterator[Diagnostic]:
    """Say what was found in a store."""
    for one in trouble:
        yield Diagnostic(section="store", subject="integrity", status="problem", detail=f"{one.where}: {one.problem}")
    if not trouble:
        text = f"the {what} is whole; `leporello verify` proves what it holds"
        yield Diagnostic(section="store", subject="integrity", status="ok", detail=text)
    if not purge.complete:
        text = f"words of what was deleted are still in its {purge.step}; `leporello gc --purge` takes them out"
        yield Diagnostic(section="store", subject="purge", status="note", detail=text)
    text = f"{len(infos):,}, with {counted(sum(info.messages for info in infos), 'message')}"
    yield Diagnostic(section="store", subject="conversations", status="ok", detail=text)


def _print(findings: list[Diagnostic]) -> None:
    section = ""
    for finding in findings:
        if finding.section != section:
            section = finding.section
            click.echo(section)
        detail = finding.detail.replace("\n", "\n    ")
        echo(f"  {_SIGNS[finding.status]} {finding.subject}: {detail}")
    wrong = sum(finding.status == "problem" for finding in findings)
    click.echo(f"\n{wrong or 'no'} problem{'' if wrong == 1 else 's'}")
