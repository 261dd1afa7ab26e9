"""`leporello gc`: forget what is older than you want to keep it."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from leporello.cli.format import counted, print_json, waiting, watched
from leporello.cli.private_file import new_private_file
from leporello.cli.store_options import age, json_option, opened, owner_option, store_option
from leporello.messages.visible import one_line

if TYPE_CHECKING:
    from leporello.store import Deletion, MaintenanceStore, PurgeStatus


PURGE_LATER: Final = "words of it may stay in the file until `leporello gc --purge`"


@click.command(name="gc")
@click.option("--older-than", callback=age, metavar="AGE", help="Such as 12h, 90d, 8w, 1y.")
@click.option("--dry-run", is_flag=True, help="Only show what would go; this is the default.")
@click.option("--yes", is_flag=True, help="Really delete.")
@click.option("--purge", is_flag=True, help="Take every word of what was deleted, now or before, out of the file.")
@click.option(
    "--export", "bundle", metavar="FILE", type=click.Path(path_type=Path), help="First write what goes to a new file."
)
@store_option
@owner_option
@json_option
def command(
    older_than: float | None,
    dry_run: bool,
    yes: bool,
    purge: bool,
    bundle: Path | None,
    address: str | None,
    owner: str | None,
    as_json: bool,
) -> None:
    """Delete conversations that are older than AGE, and the oldest messages of the others; without --yes, show what.

    What a conversation's window shows stays, and so do summaries. A tombstone takes the place of what goes, so that
    `leporello verify` still proves the rest. `leporello import FILE` brings an export back.

    With --purge, every word of what was deleted leaves the file, its index and its log; others may read and write
    meanwhile. Exit code 1 says that it is not complete.

    Example: leporello gc --older-than 90d --export old.jsonl --yes --purge
    """
    _check(older_than, dry_run=dry_run, yes=yes, purge=purge)
    planned: list[Deletion] = []
    exported = None
    if older_than is not None:
        planned = _collect(address, older_than, owner, bundle, yes=yes)
        exported = str(bundle) if bundle and yes and planned else None
    status = _purge(address) if purge else None
    if as_json:
        left = None if status is None else {"complete": status.complete, "left_in": status.step or None}
        conversations = [asdict(one) for one in planned]
        print_json({"deleted": yes, "export": exported, "conversations": conversations, "purge": left})
    else:
        if older_than is not None:
            _print(planned, exported, done=yes, purged=purge)
        if status is not None:
            click.echo(_told(status))
    if status is not None and not status.complete:
        sys.exit(1)


def _check(older_than: float | None, *, dry_run: bool, yes: bool, purge: bool) -> None:
    if dry_run and yes:
        raise click.UsageError("--dry-run and --yes contradict each other.")
    if older_than is None and not purge:
        raise click.UsageError("say what to delete: --older-than AGE, --purge, or both.")
    if older_than is not None and purge and not yes:
        raise click.UsageError("--purge is for what was deleted: add --yes, or leave --older-than out.")


def _collect(
    address: str | None, older_than: float, owner: str | None, bundle: Path | None, *, yes: bool
) -> list[Deletion]:
    """Return what goes; with `yes` it is exported, if that was asked for, and deleted."""
    now = time.time()  # one moment for both passes: what goes is exactly what was exported
    with opened(address, clock=lambda: now) as store:
        planned = store.gc(older_than=older_than, owner=owner, dry_run=True)
        if not yes or not planned:
            return planned
        if bundle:
            _export(store, planned, bundle)
        with waiting("deleting"):
            return store.gc(older_than=older_than, owner=owner)


def _purge(address: str | None) -> PurgeStatus:
    with opened(address) as store, waiting("purging"):
        return store.purge()


def _told(status: PurgeStatus) -> str:
    if status.complete:
        return "purge complete: no word of what was deleted is left in the file, its index and its log"
    return f"purge not complete: others keep the {status.step} of the store in use; run it again later"


def _export(store: MaintenanceStore, planned: list[Deletion], bundle: Path) -> None:
    with new_private_file(bundle) as file:
        for one in watched(planned, "exporting", total=len(planned)):
            file.writelines(line + "\n" for line in store.export(one.conversation, owner=one.owner))


def _print(planned: list[Deletion], exported: str | None, *, done: bool, purged: bool) -> None:
    for one in planned:
        what = "the whole conversation" if one.whole else f"seq {one.first_seq} to {one.last_seq}"
        click.echo(f"  {one_line(one.conversation)}: {what}, {counted(one.messages, 'message')}")
    total = counted(sum(one.messages for one in planned), "message")
    if not planned:
        click.echo("nothing is that old")
    elif done:
        kept = f"; they are in {exported}" if exported else ""
        click.echo(f"deleted {total}{kept}" + ("" if purged else f"; {PURGE_LATER}"))
    else:
        click.echo(f"would delete {total}; nothing was changed, add --yes to do it")
