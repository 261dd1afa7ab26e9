"""`leporello usage`: what was spent, and what folding and caching saved."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

import click

from leporello.cli.format import counted, echo, on_one_line, print_json
from leporello.cli.store_options import (
    NothingFoundError,
    age,
    conversation,
    json_option,
    opened,
    owner_option,
    store_option,
)
from leporello.config import Config
from leporello.messages.visible import visible
from leporello.store.titles import title_of

if TYPE_CHECKING:
    from leporello.proof.savings import Savings

_NAME = 23  # characters of a name: as many as the rest leaves of 80


@click.command(name="usage")
@click.argument("key", metavar="[SESSION]", required=False)
@click.option("--since", metavar="AGE", callback=age, default="100y", help="Only requests of the last 7d, 12h or 8w.")
@click.option("--model", help="Prices requests whose model the store does not know; default: model.default.")
@store_option
@owner_option
@json_option
def command(
    key: str | None, since: float, model: str | None, address: str | None, owner: str | None, as_json: bool
) -> None:
    """Say what was spent, and what folding and caching saved, per conversation and in all.

    Saved by caching: the same requests without the provider's cache cost that much more. Saved by folding: requests
    with the whole history, cached where the real ones were, cost that much more; an estimate from what is stored.

    \b
    Examples:
      leporello usage my-chat
      leporello usage --since 7d
    """  # noqa: D301 - click wants the character, not the two letters
    from leporello.proof.savings import savings_of, total_of

    named = model or Config.load().model.default or ""
    start = time.time() - since
    with opened(address) as store:
        infos = [conversation(store, key, owner)] if key else list(store.conversations(owner=owner))
        found = {info.key: savings_of(store, info, since=start, model=named) for info in infos}
        titles = {info.key: title_of(store, info) for info in infos}
    found = {name: one for name, one in found.items() if one.requests or one.compactions}
    if not found:
        raise NothingFoundError("no request was recorded in that time")
    total = total_of(found.values())
    if as_json:
        told = {name: one.as_dict() for name, one in found.items()}
        print_json({"conversations": told, "total": total.as_dict()})
        return
    _print(_names(titles), found, total)


def _names(titles: dict[str, str]) -> dict[str, str]:
    """Return what each conversation is called: its title, or its id where the title is missing or another's, too."""
    shared = Counter(titles.values())
    return {key: on_one_line(title, _NAME) if title and shared[title] == 1 else key for key, title in titles.items()}


def _print(names: dict[str, str], found: dict[str, Savings], total: Savings) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column("conversation", overflow="fold")
    for column in ("requests", "folds", "tokens\nread", "cached", "cost", "saved by\ncaching", "saved by\nfolding"):
        table.add_column(column, justify="right", no_wrap=True)
    for name, one in found.items():
        table.add_row(visible(names[name]), *_cells(one))
    if len(found) > 1:
        table.add_row("in all", *_cells(total), style="bold")
    Console().print(table)
    if total.unpriced:
        echo(f"{counted(total.unpriced, 'request')} of models whose price is not known are not in the dollars.")
    if total.too_long:
        echo(f"Unfolded, {counted(total.too_long, 'request')} would not have fit the model's window.")


def _cells(one: Savings) -> list[str]:
    share = one.cache_read_tokens / one.prompt_tokens if one.prompt_tokens else 0.0
    dollars = (one.cost_usd, one.caching_saved_usd, one.folding_saved_usd)
    return [
        f"{one.requests:,}",
        f"{one.compactions:,}",
        f"{one.prompt_tokens:,}",
        f"{share:.0%}",
        *("?" if 0 < one.requests == one.unpriced else _dollars(amount) for amount in dollars),
    ]


def _dollars(amount: float) -> str:
    return f"{'-' * (amount < 0)}${abs(amount):,.4f}"
