"""Files that are read exactly: exports of this program, one or many, and messages as JSON lines, with all their fields.

A mistake in one of them is an error with its line, and nothing of the conversation is stored.
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from errno import EINVAL
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

from leporello.cli.importing import TAKEN, Imported, Named, add
from leporello.config.untrusted_files import open_regular
from leporello.errors import MessageError, StoreError
from leporello.messages import is_system
from leporello.transcripts.blocks import has_blocks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from leporello.cli.importing import Status, Whose
    from leporello.messages import Message
    from leporello.store import Store

_LONGEST_LINE: Final = 64 * 1024 * 1024
_SHOULD: Final = 'Every line is a message such as {"role": "user", "content": "Hello"}, or the file is an export.'


def is_own(file: Path) -> bool:
    """Tell whether a file begins like an export of this program, or with a message in OpenAI's format on a line.

    So does one that cannot be read, whose error says why.
    """
    if str(file) == "-":
        return True
    try:
        with open_regular(file.expanduser()) as stream:
            first = next((line for line in stream if line.strip()), b"{}")
    except OSError:
        return True
    try:
        value = json.loads(first.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return False
    if not isinstance(value, dict) or not value:
        return value == {}
    return "leporello" in value or (isinstance(value.get("role"), str) and not has_blocks([value]))


def read_in(store: Store, file: Path, whose: Whose, on_added: Callable[[int], None]) -> Iterator[Imported]:
    """Store what a file holds, conversation by conversation; raise what is wrong with it, with its line."""
    with _opened(file) as stream:
        lines = _lines(stream, file)
        first = next(lines, None)
        if first is None:
            raise StoreError("there is nothing in it.", place=str(file), hint=_SHOULD)
        every = chain([first], lines)
        if "leporello" not in _parsed(first[1], first[0]):
            yield _messages(store, file, whose, [_message(line, number) for number, line in every], on_added)
            return
        exports = _exports(every)
        export: list[str] | None = next(exports)
        following = next(exports, None)
        several = following is not None
        while export is not None:
            head = _parsed(export[0], 1)
            _refuse_owner(head, whose)
            name = whose.name
            key = f"{name}{head.get('conversation', '')}" if several and name is not None else name
            yield _import(store, file, export, key, whose.owner)
            export, following = following, next(exports, None)


def _opened(file: Path) -> AbstractContextManager[BinaryIO]:
    if str(file) == "-":
        return nullcontext(sys.stdin.buffer)
    try:
        return open_regular(file.expanduser())
    except OSError as error:
        hint = "To read from a pipe, name it -." if error.errno == EINVAL else ""
        raise StoreError(f"it cannot be read ({error.strerror}).", place=str(file), hint=hint) from error


def _lines(stream: BinaryIO, file: Path) -> Iterator[tuple[int, str]]:
    """Yield the lines of a file that hold anything, with their numbers."""
    number = 0
    try:
        while line := stream.readline(_LONGEST_LINE + 1):
            number += 1
            if len(line) > _LONGEST_LINE:
                raise StoreError(f"longer than {_LONGEST_LINE:,} bytes.", place=f"line {number}", hint=_SHOULD)
            if line.strip():
                yield number, line.decode("utf-8-sig" if number == 1 else "utf-8")
    except OSError as error:
        raise StoreError(f"it cannot be read ({error.strerror}).", place=str(file)) from error
    except UnicodeDecodeError as error:
        place = f"line {number}"
        raise StoreError(f"it is not UTF-8 text ({error.reason}).", place=place, hint=_SHOULD) from error


def _stem(file: Path) -> str:
    return "input" if str(file) == "-" else file.stem


def _refuse_owner(head: dict[str, Any], whose: Whose) -> None:
    """Refuse a conversation that has an owner, unless it was said whose it shall be."""
    theirs = head.get("owner")
    if theirs and whose.owner is None and not whose.keep_owners:
        raise StoreError(
            f"the conversation {head.get('conversation')!r} belongs to {theirs!r}.",
            place="import",
            hint="Name its owner here with --owner NAME, or pass --keep-owners.",
        )


def _import(store: Store, file: Path, export: list[str], name: str | None, owner: str | None) -> Imported:
    head = json.loads(export[0])
    key = name if name is not None else str(head.get("conversation", ""))
    who = owner if owner is not None else str(head.get("owner", ""))
    info = store.info(key, owner=who)
    same = info is not None and _said(store.export(key, owner=who)) == _said(export)
    if not same:
        key = store.import_lines(export, conversation=name, owner=owner)
        info = store.info(key, owner=who)
    assert info is not None  # noqa: S101 - it was there, or imported in the line above
    status: Status = "unchanged" if same else "imported"
    added = 0 if same else info.messages + info.superseded
    return Imported(
        id=key, owner=who, status=status, messages=info.messages, added=added, format="leporello", file=str(file)
    )


def _said(export: Iterable[str]) -> list[Any]:
    """Return what the lines of an export say, without the first, which says whose the conversation is."""
    return [_parsed(line, number) for number, line in enumerate(export, 1) if number > 1]


def _messages(
    store: Store, file: Path, whose: Whose, messages: list[Message], on_added: Callable[[int], None]
) -> Imported:
    named = Named(key=whose.name or _stem(file), owner=whose.owner or "")
    status, added = add(store, named, messages, on_added)
    return Imported(
        id=named.key,
        owner=named.owner,
        status=status,
        messages=sum(not is_system(message) for message in messages),
        added=added,
        format="openai",
        file=str(file),
        reason=TAKEN if status == "left out" else "",
    )


def _exports(lines: Iterable[tuple[int, str]]) -> Iterator[list[str]]:
    """Cut a bundle into its conversations: each begins with a line that names the format."""
    export: list[str] = []
    for _, line in lines:
        if export and line.startswith('{"leporello"'):
            yield export
            export = []
        export.append(line)
    yield export


def _message(line: str, number: int) -> Message:
    value = _parsed(line, number)
    if not isinstance(value.get("role"), str):
        raise MessageError("this is not a message: it has no role.", path=f"line {number}")
    return cast("Message", value)


def _parsed(line: str, number: int) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"not JSON ({error}).", place=f"line {number}", hint=_SHOULD) from error
    if not isinstance(value, dict):
        raise StoreError("not a JSON object.", place=f"line {number}", hint=_SHOULD)
    return value
