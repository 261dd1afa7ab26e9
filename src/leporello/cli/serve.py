"""`leporello serve`: the gateway."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from leporello.cli.format import echo
from leporello.cli.store_options import store_option
from leporello.errors import MissingExtraError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

    from starlette.routing import Route

    from leporello.config import Config
    from leporello.gateway.job_workers import JobWorkers
    from leporello.store import Store


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to serve on.")
@click.option("--port", default=8765, show_default=True, type=click.IntRange(0, 65535), help="0: any free one.")
@click.option("--demo", is_flag=True, help="Serve a model that repeats what you say: no key, nothing is kept.")
@click.option("--new-key", "name", metavar="NAME", help="Make a key with this name, print it once, and leave.")
@click.option(
    "--workers",
    default=0,
    type=click.IntRange(0, 64),
    help="How many processes to start that write summaries, as `leporello worker` does.",
)
@click.option("--worker", is_flag=True, hidden=True, help="Serve behind another process.")
@click.option("--purges", is_flag=True, hidden=True, help="Of several such processes, one purges the store.")
@store_option
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="Another config.yaml than the one in the home folder.",
)
def command(
    host: str,
    port: int,
    demo: bool,
    name: str | None,
    workers: int,
    worker: bool,
    purges: bool,
    address: str | None,
    config_file: Path | None,
) -> None:
    """Serve conversations over HTTP: point the base_url of any OpenAI or Anthropic client here.

    The gateway recognises each conversation, keeps it in the store, folds it when it must, and passes the provider's
    answers on byte for byte. Providers and keys: the block `gateway` of config.yaml.

    Examples: leporello serve --port 8765, leporello serve --workers 2, leporello serve --demo
    """
    from leporello.config import Config

    if name:
        _print_key(name)
        return
    config = Config.load(config_file)
    if workers:
        left = config.lcm.model_copy(update={"background": "workers"})
        config = config.model_copy(update={"lcm": left})
    if worker:
        _serve(config, address, worker=True, purges=purges)
        return
    for line in () if demo else _missing_keys(config):
        echo(f"leporello: {line}", err=True)
    with ExitStack() as stack:
        if demo:
            config = stack.enter_context(_demonstration(config))
            address = address or ":memory:"
        elif workers:
            stack.enter_context(_job_workers(config, workers, address, config_file))
        _serve(config, address, config_file, demo=demo, workers=workers, host=host, port=port)


def _serve(
    config: Config,
    address: str | None,
    config_file: Path | None = None,
    *,
    worker: bool = False,
    purges: bool = False,
    demo: bool = False,
    workers: int = 0,
    **place: Any,
) -> None:
    from leporello.plugins.hermes import install
    from leporello.store import open_store

    server = _prepared()
    install(first=True)
    store = open_store(address, home=config.home, url=config.store.url)
    try:
        if worker:
            server.serve_behind(config, store, purges=purges, on_ready=click.echo)
        elif len(config.gateway.api_keys) > 1 < config.gateway.processes and store.url != ":memory:":
            next(store.conversations(), None)  # a store that cannot be read is told now, not with the first request
            command = _again("serve", address, config_file) + (["--workers", str(workers)] if workers else [])
            pages = _pages(config, store, actions=False)  # the processes hold conversations ready, not this one
            server.serve_in_processes(config, command, on_ready=_ready, pages=pages, **place)
        else:
            options = {"llm": None} if demo else None
            pages = _pages(config, store, actions=config.gateway.page_actions)
            server.serve(config, store, on_ready=_ready, engine_options=options, pages=pages, **place)
    finally:
        store.close()


def _pages(config: Config, store: Store, *, actions: bool) -> list[Route]:
    """Return the routes of the page, for the keys of the gateway; who opens its bare address is led there."""
    from starlette.routing import Route

    from leporello.gateway.keys import Keys
    from leporello.view.access import Access
    from leporello.view.actions import Actions
    from leporello.view.app import PageRoutes, home

    access = Access(keys=Keys(config.gateway.api_keys))
    pages = PageRoutes(store, access, actions=Actions(store=store, config=config) if actions else None)
    return [Route("/", home), *pages.routes()]


def _job_workers(config: Config, count: int, address: str | None, config_file: Path | None) -> JobWorkers:
    """Return the processes that write summaries beside the gateway."""
    from leporello.gateway.job_workers import JobWorkers

    if (address or config.store.url) == ":memory:":
        raise click.UsageError("--workers needs a store that other processes can open.")
    return JobWorkers(count, [*_again("worker", address, config_file), "--with-parent"])


def _again(name: str, address: str | None, config_file: Path | None) -> list[str]:
    """Return how a command of this program is started, with the same store and configuration."""
    command = [sys.executable, "-m", "leporello", name]
    command += ["--store", address] if address else []
    return command + (["--config", str(config_file)] if config_file else [])


def _prepared() -> ModuleType:
    """Return what serves; our own keys are where no other program sees them."""
    from leporello.agent.tools.environment import blank_environment, deny_inspection

    try:
        from leporello.gateway import server
    except ModuleNotFoundError as error:
        raise MissingExtraError.of("gateway", error, "the gateway") from error
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    blank_environment()
    deny_inspection()
    return server


@contextmanager
def _demonstration(config: Config) -> Iterator[Config]:
    """Run a provider on this machine, and return the configuration that leads to it."""
    try:
        from leporello.gateway.demo import demonstration
    except ModuleNotFoundError as error:
        raise MissingExtraError.of("gateway,testing", error, "--demo") from error
    with demonstration(config) as changed:
        yield changed


def _missing_keys(config: Config) -> Iterator[str]:
    """Say which keys are not there: of providers, and of clients."""
    upstreams = config.gateway.upstreams
    providers = (upstreams.openai, upstreams.anthropic)
    if not any(one.pass_client_key or not one.api_key_env or os.environ.get(one.api_key_env) for one in providers):
        variables = " or ".join(one.api_key_env for one in providers if one.api_key_env)
        yield f"no key of a provider: requests will be refused until {variables} is set where the gateway starts"
    if not config.gateway.api_keys:
        yield (
            "no keys for clients: every program on this machine may use the gateway; "
            "`leporello serve --new-key NAME` makes a key"
        )


def _ready(address: str) -> None:
    click.echo(
        f"leporello gateway on {address}\n"
        f"  base_url for OpenAI clients     {address}/v1\n"
        f"  base_url for Anthropic clients  {address}\n"
        f"  page                            {address}/view"
    )
    sys.stdout.flush()


def _print_key(name: str) -> None:
    from leporello.gateway.keys import hashed, new_key

    key = new_key()
    click.echo(f"The key of {name}, shown this once: {key}")
    click.echo(f"Let it in with: leporello config set gateway.api_keys.{name} {hashed(key)}")
