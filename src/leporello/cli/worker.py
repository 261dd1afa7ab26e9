"""`leporello worker`: writes the summaries that gateways and sessions leave to it."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from leporello.cli.format import counted
from leporello.cli.store_options import store_option
from leporello.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from types import FrameType

    from leporello.config import Config
    from leporello.config.model import AnthropicUpstream, OpenAIUpstream
    from leporello.lcm.job_worker import JobWorker
    from leporello.llm import LLM

_ENDING: Final = (signal.SIGTERM, signal.SIGINT)


@click.command()
@click.option(
    "--threads", default=2, show_default=True, type=click.IntRange(1, 64), help="How many summaries it writes at once."
)
@click.option("--once", is_flag=True, help="Write what is due, then leave.")
@click.option("--with-parent", is_flag=True, hidden=True, help="End when the standard input is closed.")
@store_option
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="Another config.yaml than the one in the home folder.",
)
def command(threads: int, once: bool, with_parent: bool, address: str | None, config_file: Path | None) -> None:
    """Write summaries for the gateways on a store that leave them to workers (lcm.background: workers).

    Any number of workers share a store. Each summary to write is a row that one of them claims; the claim of a worker
    that dies expires within a minute, and another writes it. A signal ends a worker after what it has begun.

    Examples: leporello worker --store postgresql://user@host/database, leporello worker --once
    """
    from leporello.agent.tools.environment import blank_environment, deny_inspection
    from leporello.config import Config
    from leporello.lcm.job_worker import JobWorker
    from leporello.lcm.settings import LCMSettings
    from leporello.store import open_store

    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    blank_environment()  # our own keys are where no other program sees them
    deny_inspection()
    config = Config.load(config_file)
    stop = threading.Event()
    stop_on_signals(stop)
    if with_parent:
        threading.Thread(target=_stop_with_parent, args=[stop], name="leporello-parent", daemon=True).start()
    store = open_store(address, home=config.home, url=config.store.url)
    try:
        if store.url == ":memory:":
            raise StoreError("a store in memory is seen by one process only.", place=store.url, hint="Name another.")
        next(store.conversations(), None)  # a store that cannot be read is told now
        click.echo(f"leporello worker on {store.url}")
        sys.stdout.flush()
        workers = [
            JobWorker(store, LCMSettings.of(config), lambda route: model_for(config, route)) for _ in range(threads)
        ]
        _run(workers, stop, once=once)
    finally:
        store.close()
    done = sum(worker.done for worker in workers)
    click.echo(f"{counted(done, 'job')} done")


def stop_on_signals(stop: threading.Event) -> None:
    """Let SIGTERM and SIGINT stop the workers; once one has come, both are ignored.

    A second signal could otherwise interrupt `stop.set()`, and wait for ever for the lock that it holds.
    """

    def end(number: int, frame: FrameType | None) -> None:
        for known in _ENDING:
            signal.signal(known, signal.SIG_IGN)
        stop.set()

    for number in _ENDING:
        signal.signal(number, end)


def model_for(config: Config, route: Mapping[str, str]) -> LLM | None:
    """Connect to the model for the summaries of a conversation, by the route of its main model, as the gateway does.

    Keys are those of this process's environment. An address that the configuration does not name gets none of them.
    """
    from leporello.config.keys import VARIABLES
    from leporello.llm import connect

    address, provider = route.get("base_url") or "", route.get("provider") or ""
    environ = dict(os.environ)
    upstreams: dict[str, OpenAIUpstream | AnthropicUpstream] = {
        "openai": config.gateway.upstreams.openai,
        "anthropic": config.gateway.upstreams.anthropic,
    }
    known = {"", config.model.base_url or ""}
    for name, upstream in upstreams.items():
        own = upstream.base_url.rstrip("/")
        known.add(own)
        key = environ.get(upstream.api_key_env or "", "").strip()
        if key and (address == own if address else provider == name):
            environ[VARIABLES[name]] = key
    if address not in known:
        return None
    changed = {"default": route.get("model") or None, "provider": provider or "auto", "base_url": address or None}
    main = config.model.model_copy(update={name: value for name, value in changed.items() if value})
    return connect(config, environ=environ, main=main)


def _run(workers: Sequence[JobWorker], stop: threading.Event, *, once: bool) -> None:
    """Run each in a thread, until all have ended."""
    threads = [
        threading.Thread(target=worker.run, args=[stop], kwargs={"once": once}, name="leporello-worker")
        for worker in workers
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _stop_with_parent(stop: threading.Event) -> None:
    """Stop when the other end of the standard input is closed: the parent process has ended."""
    while os.read(0, 1024):
        pass
    stop.set()
