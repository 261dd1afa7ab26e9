"""`leporello expand`: the original messages under a node, word for word."""

from __future__ import annotations

import shlex
from typing import Any

import click

from leporello.cli.format import print_json
from leporello.cli.store_options import again, json_option, opened, owner_option, store_option
from leporello.cli.stores import ask, home_of
from leporello.lcm.dag import flat_text
from leporello.messages.visible import visible


@click.command(name="expand")
@click.argument("name", metavar="ID")
@click.option(
    "--max-tokens", type=click.IntRange(100, 100_000), default=4_000, show_default=True, help="How much at a time."
)
@click.option("--cursor", metavar="TEXT", help="Go on where an earlier answer ended.")
@store_option
@owner_option
@json_option
def command(
    name: str, max_tokens: int, cursor: str | None, address: str | None, owner: str | None, as_json: bool
) -> None:
    """Print the original messages under a node (n12), or one message (m34); exit code 1 when there is none.

    Known secrets are hidden unless lcm.redact is false; `leporello sessions export` writes every message as it came.

    Example: leporello expand n12 --max-tokens 20000
    """
    with opened(address) as store:
        home, who = home_of(store, name, owner)
        asked = {"id": name, "max_tokens": max_tokens, "cursor": cursor}
        answer = ask(store, "lcm_expand", asked, conversation=home, owner=who)
    if as_json:
        print_json(answer)
        return
    for entry in answer["messages"]:
        click.echo(click.style(_head(entry), bold=True))
        click.echo(visible(_text(entry)) + "\n")
    if not answer["complete"]:
        more = f"--cursor {shlex.quote(str(answer['cursor']))}"
        click.echo(
            f"more: {again(more, without='--cursor')}\nor a larger --max-tokens ({answer['of']} messages in all)",
            err=True,
        )


def _head(entry: dict[str, Any]) -> str:
    part = f"  characters {entry['from']:,} to {entry['to']:,} of {entry['of']:,}" if "from" in entry else ""
    return f"{entry['id']}  {entry['role']}  {entry['time']}{part}"


def _text(entry: dict[str, Any]) -> str:
    return flat_text(entry["message"]) if "message" in entry else str(entry["text"])
