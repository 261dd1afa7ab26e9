"""`leporello mcp`: stored conversations for MCP clients, over standard input and output or HTTP."""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from leporello.cli.store_options import opened, owner_option, store_option
from leporello.config import Config
from leporello.errors import ConfigError, MissingExtraError, StoreError

if TYPE_CHECKING:
    from leporello.adapters.mcp import Retrieval

_HOST = "127.0.0.1"


@click.command(name="mcp")
@click.option("--session", "key", metavar="ID", help="The conversation; default: the newest at the first question.")
@click.option("--all", "everything", is_flag=True, help="Let clients read the owner's other conversations too.")
@click.option("--http", is_flag=True, help="Serve over HTTP, this machine only; default: standard input and output.")
@click.option("--port", default=8766, show_default=True, type=click.IntRange(0, 65535), help="0: any free one.")
@click.option(
    "--page",
    "pages",
    multiple=True,
    metavar="ORIGIN",
    help="The origin of a web page that may send requests, with --http.",
)
@store_option
@owner_option
def command(
    key: str | None,
    everything: bool,
    http: bool,
    port: int,
    pages: tuple[str, ...],
    address: str | None,
    owner: str | None,
) -> None:
    """Let MCP clients search and unfold a stored conversation.

    They get the tools of the lossless engine, and conversations as resources. Nothing can be changed, no model is
    asked, known secrets are hidden, and clients reach one conversation only unless you say --all.

    \b
    Examples:
      leporello mcp
      leporello mcp --session my-chat --http
      claude mcp add leporello -- leporello mcp
    """  # noqa: D301 - click wants the character, not the two letters
    try:
        from leporello.adapters.mcp import Retrieval
    except ModuleNotFoundError as error:
        raise MissingExtraError.of("mcp", error, "the MCP server") from error
    with opened(address, must_exist=False) as store:
        if store.url == ":memory:":
            raise StoreError("a store in memory is empty in every new process.", place=store.url, hint="Name a file.")
        retrieval = Retrieval(
            store=store,
            owner=owner or "",
            conversation=key,
            everything=everything,
            redact=Config.load().lcm.redact,
        )
        if http:
            _serve_http(retrieval, port, pages)
        else:
            _serve_stdio(retrieval)


def _serve_stdio(retrieval: Retrieval) -> None:
    import anyio

    from leporello.adapters.mcp import serve_stdio

    signal.signal(signal.SIGINT, signal.SIG_DFL)  # the thread that reads the input would wait for a line first
    anyio.run(serve_stdio, retrieval)


def _serve_http(retrieval: Retrieval, port: int, pages: tuple[str, ...]) -> None:
    import socket

    import uvicorn

    from leporello.adapters.mcp import create_app

    try:
        listener = socket.create_server((_HOST, port))
    except OSError as error:
        why = str(error.strerror).partition(" (while ")[0]  # the standard library adds the address
        raise ConfigError(f"{why}.", file=f"{_HOST}:{port}", hint="--port 0 takes any free port.") from error
    with listener, suppress(KeyboardInterrupt):  # Ctrl-C is how it ends
        port = listener.getsockname()[1]
        app = create_app(retrieval, port, pages)
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, access_log=False, ws="none"))
        click.echo(f"leporello: MCP clients are served at http://{_HOST}:{port}/mcp")
        server.run(sockets=[listener])
