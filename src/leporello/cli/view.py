"""`leporello view`: the page, for the conversations in a store."""

from __future__ import annotations

import webbrowser
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import click

from leporello.cli.format import waiting
from leporello.cli.store_options import opened, owner_option, store_option
from leporello.errors import MissingExtraError

if TYPE_CHECKING:
    from leporello.store import Store
    from leporello.view.access import Access


@click.command()
@click.option("--port", default=0, show_default=True, type=click.IntRange(0, 65535), help="0: any free one.")
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@click.option("--demo", is_flag=True, help="Show the demonstration conversation; nothing is kept.")
@store_option
@owner_option
def command(port: int, no_browser: bool, demo: bool, address: str | None, owner: str | None) -> None:
    """See what the model saw, why, and what it cost, in the browser.

    The page reads the store and changes nothing. It serves this machine only, and opens with a link that works once.

    Examples: leporello view, leporello view --demo
    """
    try:
        from leporello.gateway.keys import Keys
        from leporello.gateway.server import Server, bound
        from leporello.view.access import Access
        from leporello.view.app import PageRoutes, create_app
    except ModuleNotFoundError as error:
        raise MissingExtraError.of("view", error, "the page") from error
    with ExitStack() as stack:
        store = stack.enter_context(_demonstration() if demo else opened(address))
        access = Access(keys=Keys({}), local=owner, tokens=True)
        app = create_app(PageRoutes(store, access))
        with bound("127.0.0.1", port) as listener:
            Server(app, on_ready=lambda place: _tell(place, access, no_browser=no_browser)).run(listener)


def _demonstration() -> closing[Store]:
    from leporello.view.demo import demo_store

    with waiting("folding the demonstration"):
        return closing(demo_store())


def _tell(place: str, access: Access, *, no_browser: bool) -> None:
    """Print a link that works once, and open the browser with another."""
    click.echo(f"leporello: the page is at {place}/view/enter?token={access.new_token()}")
    click.echo("The link works once, within ten minutes. End with Ctrl-C.", err=True)
    if not no_browser:
        webbrowser.open(f"{place}/view/enter?token={access.new_token()}")
