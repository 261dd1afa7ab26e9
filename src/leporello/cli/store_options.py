"""What every command on a store shares: its options, opening the store, and finding the conversation that is meant."""

from __future__ import annotations

import difflib
import os
import re
import shlex
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, TypeAlias

import click

from leporello.cli.format import echo
from leporello.config import Config
from leporello.errors import StoreError
from leporello.store import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leporello.store import ConversationInfo, Store, TranscriptStore

Decorator: TypeAlias = "Callable[[Callable[..., Any]], Callable[..., Any]]"

store_option: Final[Decorator] = click.option(
    "--store",
    "address",
    metavar="ADDRESS",
    help="A path, sqlite:///path or postgresql://…; default: store.url, else leporello.db in the home folder.",
)
owner_option: Final[Decorator] = click.option(
    "--owner", metavar="NAME", help="Whose conversations; most stores have no owners."
)
json_option: Final[Decorator] = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")

_FILE_URL: Final = "sqlite:///"
_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800, "y": 31_536_000}
_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdwy])", re.IGNORECASE)


class NothingFoundError(click.ClickException):
    """What was asked for is not there: one line, and exit code 1."""

    exit_code = 1

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the line."""
        echo(f"leporello: {self.format_message()}", err=True)


def age(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    """Read a length of time such as 90d, for an option's callback; return seconds, None when it was not given."""
    if value is None:
        return None
    seconds = seconds_of(value)
    if not seconds:
        raise click.BadParameter(f"{value!r} is not a length of time such as 12h, 90d, 8w or 1y.", ctx, param)
    return seconds


def seconds_of(text: str) -> float | None:
    """Return a length of time such as "90d" in seconds, or None for anything else."""
    found = _AGE.fullmatch(text.strip())
    return float(found[1]) * _SECONDS[found[2].lower()] if found else None


@contextmanager
def opened(address: str | None, *, must_exist: bool = True, clock: Callable[[], float] = time.time) -> Iterator[Store]:
    """Open the store that a command works on; one that does not exist is told, not created."""
    store = open_store(address, url=None if address else Config.load().store.url, clock=clock)
    try:
        if must_exist:
            refuse_missing(store)
        yield store
    finally:
        store.close()


def file_of(store: TranscriptStore) -> Path | None:
    """Return the file that a store is kept in, or None when it is kept elsewhere."""
    return Path(store.url.removeprefix(_FILE_URL)) if store.url.startswith(_FILE_URL) else None


def refuse_missing(store: TranscriptStore) -> None:
    """Raise when there is nothing that could be read."""
    if store.url == ":memory:":
        raise StoreError("a store in memory is empty in every new process.", place=store.url, hint="Name a file.")
    file = file_of(store)
    try:
        missing = file is not None and not file.exists()
    except OSError as error:
        raise StoreError(f"it cannot be looked at ({error.strerror}).", place=str(file)) from error
    if missing:
        raise StoreError(
            "there is no such store; one is made when the first message is kept.",
            place=str(file),
            hint="Name another with --store, or set store.url.",
        )


def refuse_unreachable(store: Store) -> None:
    """Raise when a store can neither be opened nor be made; a file that is not there yet is not made."""
    file = file_of(store)
    try:
        if file is None or file.exists():
            next(iter(store.conversations()), None)
            return
        folder = next((parent for parent in file.parents if parent.exists()), Path("/"))
        if not folder.is_dir() or not os.access(folder, os.W_OK):
            raise StoreError("it cannot be made there.", place=str(file), hint=f"{folder} cannot be written to.")
    finally:
        store.close()


def on_store(command: str) -> str:
    """Return a command that works on the store and for the owner that this one was given."""
    context = click.get_current_context(silent=True)
    given = context.params if context else {}
    options = (("--store", given.get("address")), ("--owner", given.get("owner")))
    return command + "".join(f" {name} {shlex.quote(value)}" for name, value in options if value)


def again(added: str, without: str = "") -> str:
    """Return the command that runs, complete, with something added; an option and its value can be left out."""
    words, kept = iter(sys.argv[1:]), list[str]()
    for word in words:
        if not without or word.partition("=")[0] != without:
            kept.append(word)
        elif "=" not in word:
            next(words, None)
    return f"leporello {shlex.join(kept)} {added}"


def conversation(store: TranscriptStore, key: str, owner: str | None) -> ConversationInfo:
    """Return the conversation of that name; without an owner, it may belong to any, if it is the only one."""
    info = store.info(key, owner=owner or "")
    if info is not None:
        return info
    known = list(store.conversations(owner=owner))
    found = [one for one in known if one.key == key]
    if len(found) == 1:
        return found[0]
    if found:
        owners = ", ".join(sorted(one.owner for one in found))
        raise StoreError(f"several owners have a conversation {key!r}: {owners}.", place=store.url, hint="Use --owner.")
    near = difflib.get_close_matches(key, [one.key for one in known], n=1)
    listing = on_store("leporello sessions list")
    hint = f"did you mean {near[0]!r}?" if near else f"`{listing}` shows what there is."
    raise NothingFoundError(f"there is no conversation {key!r} in {store.url}; {hint}")


def owners(store: TranscriptStore, owner: str | None) -> list[str]:
    """Return whose conversations are meant: the named owner's, else everybody's, those without an owner first."""
    return [owner] if owner is not None else sorted({"", *(info.owner for info in store.conversations())})
