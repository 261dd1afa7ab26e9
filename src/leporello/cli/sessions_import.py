"""Conversations from a file: exports of this program, one or many, or plain messages as JSON lines."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from errno import EINVAL
from itertools import chain
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

from leporello.config.untrusted_files import open_regular
from leporello.errors import MessageError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from leporello.messages import Message
    from leporello.store import ConversationInfo, Store

_LONGEST_LINE: Final = 64 * 1024 * 1024
_SHOULD: Final = 'Every line is a message such as {"role": "user", "content": "Hello"}, or the file is an export.'


def read_in(
    store: Store, file: Path, *, name: str | None, owner: str | None, keep_owners: bool = False
) -> Iterator[ConversationInfo]:
    """Store what a file holds, conversation by conversation; raise what is wrong with it, with its line.

    They become those of `owner`, or keep the owners that the file names when that was asked for.
    """
    with _opened(file) as stream:
        lines = _lines(stream, file)
        first = next(lines, None)
        if first is None:
            raise StoreError("there is nothing in it.", place=str(file), hint=_SHOULD)
        every = chain([first], lines)
        if "leporello" not in _parsed(first[1], first[0]):
            messages = [_message(line, number) for number, line in every]
            yield _append(store, name or _stem(file), messages, owner or "")
            return
        exports = _exports(every)
        export: list[str] | None = next(exports)
        following = next(exports, None)
        several = following is not None
        while export is not None:
            head = _parsed(export[0], 1)
            _refuse_owner(head, owner, keep_owners=keep_owners)
            key = f"{name}{head.get('conversation', '')}" if several and name is not None else name
            yield _import(store, export, key, owner)
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


def _refuse_owner(head: dict[str, Any], owner: str | None, *, keep_owners: bool) -> None:
    """Refuse a conversation that has an owner, unless it was said whose it shall be."""
    theirs = head.get("owner")
    if theirs and owner is None and not keep_owners:
        raise StoreError(
            f"the conversation {head.get('conversation')!r} belongs to {theirs!r}.",
            place="import",
            hint="Say whose it shall be with --owner NAME, or --keep-owners.",
        )


def _import(store: Store, export: list[str], name: str | None, owner: str | None) -> ConversationInfo:
    key = store.import_lines(export, conversation=name, owner=owner)
    who = owner if owner is not None else str(json.loads(export[0]).get("owner", ""))
    info = store.info(key, owner=who)
    assert info is not None  # noqa: S101 - it was imported in the line above
    return info


def _append(store: Store, key: str, messages: list[Message], owner: str) -> ConversationInfo:
    info = store.info(key, owner=owner)
    if info is not None and (info.messages or info.superseded):
        raise StoreError(f"there is a conversation {key!r} already.", place=store.url, hint="Name another with --as.")
    store.append(key, messages, owner=owner)
    stored = store.info(key, owner=owner)
    assert stored is not None  # noqa: S101 - it was stored in the line above
    return stored


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
