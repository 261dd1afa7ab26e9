"""`leporello gc`: forget what is older than you want to keep it."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from leporello.cli.private_file import new_private_file
from leporello.cli.shown import counted, print_json, waiting, watched
from leporello.cli.store_options import age, json_option, opened, owner_option, store_option
from leporello.messages.visible import visible

if TYPE_CHECKING:
    from leporello.store import Deletion, Store


@click.command(name="gc")
@click.option("--older-than", callback=age, metavar="AGE", required=True, help="Such as 12h, 90d, 8w, 1y.")
@click.option("--dry-run", is_flag=True, help="Only show what would go; this is the default.")
@click.option("--yes", is_flag=True, help="Really delete.")
@click.option(
    "--export", "bundle", metavar="FILE", type=click.Path(path_type=Path), help="First write what goes to a new file."
)
@store_option
@owner_option
@json_option
def command(
    older_than: float,
    dry_run: bool,
    yes: bool,
    bundle: Path | None,
    address: str | None,
    owner: str | None,
    as_json: bool,
) -> None:
    """Delete conversations that are older than AGE, and the oldest messages of the others; without --yes, show what.

    What a conversation's window shows stays, and so do summaries. A tombstone takes the place of what goes, so that
    `leporello verify` still proves the rest. `leporello sessions import FILE` brings an export back.

    Example: leporello gc --older-than 90d --export old.jsonl --yes
    """
    if dry_run and yes:
        raise click.UsageError("--dry-run and --yes contradict each other.")
    now = time.time()  # one moment for both passes: what goes is exactly what was exported
    with opened(address, clock=lambda: now) as store:
        planned = store.gc(older_than=older_than, owner=owner, dry_run=True)
        if yes and planned:
            if bundle:
                _export(store, planned, bundle)
            with waiting("deleting"):
                planned = store.gc(older_than=older_than, owner=owner)
    exported = str(bundle) if bundle and yes and planned else None
    if as_json:
        print_json({"deleted": yes, "export": exported, "conversations": [asdict(one) for one in planned]})
    else:
        _print(planned, exported, done=yes)


def _export(store: Store, planned: list[Deletion], bundle: Path) -> None:
    with new_private_file(bundle) as file:
        for one in watched(planned, "exporting", total=len(planned)):
            file.writelines(line + "\n" for line in store.export(one.conversation, owner=one.owner))


def _print(planned: list[Deletion], exported: str | None, *, done: bool) -> None:
    for one in planned:
        what = "the whole conversation" if one.whole else f"seq {one.first_seq} to {one.last_seq}"
        click.echo(f"  {visible(one.conversation)}: {what}, {counted(one.messages, 'message')}")
    total = counted(sum(one.messages for one in planned), "message")
    if not planned:
        click.echo("nothing is that old")
    elif done:
        click.echo(f"deleted {total}" + (f"; they are in {exported}" if exported else ""))
    else:
        click.echo(f"would delete {total}; nothing was changed, add --yes to do it")
