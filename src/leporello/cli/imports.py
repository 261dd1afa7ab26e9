"""`leporello import`: conversations of other programs, and our own exports, into the store."""

from __future__ import annotations

import sys
from collections import Counter
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from leporello.cli import own_exports
from leporello.cli.format import counted, print_json
from leporello.cli.importing import TAKEN, Imported, Named, Whose, add
from leporello.cli.store_options import json_option, opened, owner_option, store_option
from leporello.errors import LeporelloError, StoreError, TranscriptError
from leporello.messages import leading_systems
from leporello.transcripts import Skipped, read_transcripts, transcript_files

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leporello.store import Store
    from leporello.transcripts import Transcript

_SHOWN = 10
_SAID = {
    "imported": "imported {id}: {messages}",
    "extended": "imported {id}: {added} new, {messages} in the file",
    "branched": "imported {id}: {added} new on a branch, {messages} in the file",
    "unchanged": "unchanged {id}: {messages}",
    "left out": "left out {id}: {reason}",
}


@click.command(name="import")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path, allow_dash=True))
@click.option("--as", "name", metavar="ID", help="The conversation's name; of several, what to put before each.")
@click.option("--keep-owners", is_flag=True, help="Every conversation stays that of the owner whom the file names.")
@store_option
@owner_option
@json_option
def command(
    files: tuple[Path, ...], name: str | None, keep_owners: bool, address: str | None, owner: str | None, as_json: bool
) -> None:
    """Read conversations from files and folders: what other programs wrote, and exports; - is the standard input.

    Known are session logs of Claude Code and Codex, exports of ChatGPT, messages in OpenAI's and Anthropic's format,
    trajectories of SWE-agent, databases of Hermes Agent (state.db), hermes-lcm and lossless-claw, and exports of
    leporello. They are only read.

    The same file can be imported again: only what is new is stored. What goes on in another way than here becomes a
    branch; a conversation that says something else under a name that is taken is left out, and the exit code is 1. One
    that has an owner is imported only if you name its owner with --owner, or pass --keep-owners.

    Example: leporello import ~/.claude/projects ~/.hermes/state.db
    """
    if keep_owners and owner is not None:
        raise click.UsageError("--owner and --keep-owners contradict each other.")
    whose = Whose(name=name, owner=owner, keep_owners=keep_owners)
    done: list[Imported] = []
    skipped: list[Skipped] = []
    try:
        with opened(address, must_exist=False) as store, _progress() as on_added:
            for file in files:
                done += _file(store, file, whose, skipped.append, on_added)
    finally:  # what came before a mistake in a file is stored, and told
        if as_json:
            print_json({"conversations": [asdict(one) for one in done], "skipped": [asdict(one) for one in skipped]})
        else:
            _print(done, skipped)
    if any(one.status == "left out" for one in done):
        sys.exit(1)


def _file(
    store: Store, file: Path, whose: Whose, on_skip: Callable[[Skipped], None], on_added: Callable[[int], None]
) -> Iterator[Imported]:
    """Store what a file holds, or every file of a folder; in a folder, what cannot be read is skipped."""
    if str(file) == "-" or not file.expanduser().is_dir():
        yield from _one_file(store, file, whose, on_skip, on_added)
        return
    found = False
    for each in transcript_files(file):
        try:
            for one in _one_file(store, each, whose, on_skip, on_added):
                found = True
                yield one
        except LeporelloError as error:
            reason = error.problem if isinstance(error, TranscriptError) else str(error)
            on_skip(Skipped(file=str(each), line=0, reason=reason))
    if not found:
        raise TranscriptError("no conversation could be read in this folder.", file=file)


def _one_file(
    store: Store, file: Path, whose: Whose, on_skip: Callable[[Skipped], None], on_added: Callable[[int], None]
) -> Iterator[Imported]:
    if own_exports.is_own(file):
        yield from own_exports.read_in(store, file, whose, on_added)
        return
    transcripts = read_transcripts(file, on_skip=on_skip)
    first = next(transcripts, None)
    second = next(transcripts, None)
    for transcript in filter(None, (first, second)):
        yield _transcript(store, file, whose, transcript, on_added, several=second is not None)
    for transcript in transcripts:
        yield _transcript(store, file, whose, transcript, on_added, several=True)


def _transcript(
    store: Store,
    file: Path,
    whose: Whose,
    transcript: Transcript,
    on_added: Callable[[int], None],
    *,
    several: bool,
) -> Imported:
    key = transcript.name if whose.name is None else f"{whose.name}{transcript.name}" if several else whose.name
    about = {"model": transcript.model, "parent": transcript.parent, **transcript.meta}
    meta = {"imported": {"format": transcript.format, **{name: value for name, value in about.items() if value}}}
    title = transcript.meta.get("title")
    named = Named(key=key, owner=whose.owner or "", meta=meta, title=title if isinstance(title, str) else None)
    try:
        status, added = add(store, named, transcript.messages, on_added) if transcript.messages else ("left out", 0)
        reason = TAKEN if transcript.messages else "it has no messages"
    except StoreError as error:
        status, added, reason = "left out", 0, str(error)
    return Imported(
        id=key,
        owner=named.owner,
        status=status,
        messages=len(transcript.messages) - leading_systems(transcript.messages),
        added=added,
        format=transcript.format,
        file=str(file),
        reason=reason if status == "left out" else "",
        left_out=transcript.left_out,
    )


@contextmanager
def _progress() -> Iterator[Callable[[int], None]]:
    """Count the stored messages on a terminal, while they are stored."""
    from rich.console import Console
    from rich.progress import Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("importing: {task.completed:,.0f} messages"), TimeElapsedColumn())
    quiet = not sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=quiet) as bar:
        task = bar.add_task("", total=None)
        yield lambda added: bar.advance(task, added)


def _print(done: list[Imported], skipped: list[Skipped]) -> None:
    from leporello.messages.visible import one_line

    for one in done:
        words = {"messages": counted(one.messages, "message"), "added": f"{one.added:,}", "reason": one.reason}
        click.echo(_SAID[one.status].format(id=one_line(one.id), **words))
    for skip in skipped[:_SHOWN] if done else ():  # else the error says why
        click.echo(f"skipped: {one_line(str(skip))}", err=True)
    if done and len(skipped) > _SHOWN:
        click.echo(f"skipped: {len(skipped) - _SHOWN:,} more; --json names all", err=True)
    left_out: Counter[str] = Counter()
    for one in done:
        left_out.update(one.left_out)
    if left_out:
        counts = ", ".join(f"{count:,} {what}" for what, count in left_out.items())
        click.echo(f"records that are no messages: {counts}", err=True)
    if len(done) > 1:
        total = counted(sum(one.added for one in done), "message")
        click.echo(
            f"{total} added, {sum(one.status == 'unchanged' for one in done)} of {len(done)} unchanged", err=True
        )
