"""`leporello backup`: a consistent copy of the store, while it is in use."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import click

from leporello.cli.format import print_json, size, waiting
from leporello.cli.store_options import json_option, opened, store_option
from leporello.errors import StoreError


@click.command(name="backup")
@click.argument("path")
@store_option
@json_option
def command(path: str, address: str | None, as_json: bool) -> None:
    """Write a consistent copy of the store to PATH; others may read and write meanwhile.

    PATH is a new file, or a folder that gets one named after the moment; with a slash at its end, the folder is made
    when it is missing. The copy is a store: name it with --store to
    look into it, or put it in the place of a lost one.

    Example: leporello backup ~/backups/
    """
    with opened(address) as store, waiting(f"copying {store.url}"):
        target = _target(path)
        store.backup(str(target))
    written = target.stat().st_size
    if as_json:
        print_json({"path": str(target.absolute()), "bytes": written})
    else:
        click.echo(f"wrote {target} ({size(written)})")


def _target(path: str) -> Path:
    """Return the file to write; a folder that is named as one is made."""
    target = Path(path).expanduser()
    if path.endswith(os.sep):
        try:
            target.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"this folder cannot be made ({error.strerror}).", place=str(target)) from error
    return target / f"leporello-{datetime.now(UTC):%Y%m%d-%H%M%S}.db" if target.is_dir() else target
