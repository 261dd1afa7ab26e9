"""`leporello store`: look after a store as a whole."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from leporello.cli.format import counted, print_json, watched
from leporello.cli.group import CommandGroup
from leporello.cli.store_options import json_option, opened, refuse_missing, store_option
from leporello.errors import StoreError
from leporello.store import open_store
from leporello.store.relational.copying import copy_store, count_conversations
from leporello.store.relational.store import RelationalStore

if TYPE_CHECKING:
    from leporello.store import SchemaPlan, Store


@click.group(name="store", cls=CommandGroup)
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


@command.command()
@click.option("--plan", "only_plan", is_flag=True, help="Only show what would be done.")
@store_option
@json_option
def upgrade(only_plan: bool, address: str | None, as_json: bool) -> None:
    """Bring the tables of a store to the schema of this version.

    The first process of a new version that uses a store does the same. `--plan` shows before what will be done, and
    whether processes of the previous version may go on with the store meanwhile.

    Example: leporello store upgrade --plan --store postgresql://user@host/database
    """
    with opened(address) as store:
        plan = store.schema_plan()
        if plan.statements and not only_plan:
            store.upgrade()
        if as_json:
            print_json({"store": store.url, "done": not only_plan, **asdict(plan)})
            return
        if not plan.statements:
            newer = f"; this version knows {plan.newest}" if plan.version > plan.newest else ""
            click.echo(f"{store.url} has schema {plan.version}{newer}: nothing to do")
            return
        for statement in plan.statements if only_plan else ():
            click.echo(f"{' '.join(statement.split())};")
        done = "would be" if only_plan else "was"
        click.echo(f"{store.url} {done} brought from schema {plan.version or 'none'} to {plan.newest}.")
        if plan.version:
            click.echo(_meanwhile(plan))
        if plan.copy:
            click.echo(f"The file as it is now is kept at {plan.copy}.")


def _meanwhile(plan: SchemaPlan) -> str:
    """Say what becomes of the processes that use the store."""
    if plan.serves <= plan.version:
        return f"Processes that know schema {plan.serves} or a newer one go on meanwhile."
    return "Processes of older versions cannot use it then: end them first."


def _tables(store: Store) -> RelationalStore:
    if not isinstance(store, RelationalStore):
        raise StoreError("it is of a kind that cannot be copied.", place=store.url)
    return store
