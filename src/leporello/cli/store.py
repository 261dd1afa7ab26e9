"""`leporello store`: look after a store as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from leporello.cli.format import counted, print_json, watched
from leporello.cli.store_options import json_option, refuse_missing
from leporello.errors import StoreError
from leporello.store import open_store
from leporello.store.relational.copying import copy_store, count_conversations
from leporello.store.relational.store import RelationalStore

if TYPE_CHECKING:
    from leporello.store import Store


@click.group(name="store")
def command() -> None:
    """Look after a store as a whole.

    Example: leporello store migrate ~/.leporello/leporello.db postgresql://user@host/database
    """


@command.command()
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
@json_option
def migrate(source: str, target: str, as_json: bool) -> None:
    """Copy every conversation of the store FROM to the store TO, with all ids, branches, summaries and journals.

    TO is empty, or an unfinished copy of FROM: what is there is not copied again, so a copy that was cut off goes on
    when it is started again, and a second run brings over what was said meanwhile. Each conversation is copied in one
    transaction and proven by its chain of hashes. FROM is only read.

    Example: leporello store migrate ~/.leporello/leporello.db postgresql://user@host/database
    """
    here, there = open_store(source), open_store(target)
    try:
        refuse_missing(here)
        if here.url == there.url:
            raise StoreError("FROM and TO are the same store.", place=here.url)
        tables, copies = _tables(here), _tables(there)
        done = list(watched(copy_store(tables, copies), "copying", total=count_conversations(tables)))
    finally:
        here.close()
        there.close()
    new = sum(each.new for each in done)
    messages = sum(each.messages for each in done)
    if as_json:
        print_json({"from": here.url, "to": there.url, "conversations": len(done), "copied": new, "messages": messages})
    else:
        text = f"{counted(new, 'conversation')} copied and proven, {len(done) - new:,} were there already"
        click.echo(f"{text}; {there.url} holds {counted(messages, 'message')}")


def _tables(store: Store) -> RelationalStore:
    if not isinstance(store, RelationalStore):
        raise StoreError("it is of a kind that cannot be copied.", place=store.url)
    return store
