"""`leporello backup`: a consistent copy of the store, while it is in use."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import click

from leporello.cli.format import print_json, size, waiting
from leporello.cli.store_options import json_option, opened, store_option


@click.command(name="backup")
@click.argument("path", type=click.Path(path_type=Path))
@store_option
@json_option
def command(path: Path, address: str | None, as_json: bool) -> None:
    """Write a consistent copy of the store to PATH; others may read and write meanwhile.

    PATH is a new file, or a folder that gets one named after the moment. The copy is a store: name it with --store to
    look into it, or put it in the place of a lost one.

    Example: leporello backup ~/backups/
    """
    target = path.expanduser()
    if target.is_dir():
        target /= f"leporello-{datetime.now(UTC):%Y%m%d-%H%M%S}.db"
    with opened(address) as store, waiting(f"copying {store.url}"):
        store.backup(str(target))
    written = target.stat().st_size
    if as_json:
        print_json({"path": str(target.absolute()), "bytes": written})
    else:
        click.echo(f"wrote {target} ({size(written)})")
