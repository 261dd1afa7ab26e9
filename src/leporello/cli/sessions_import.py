"""Conversations from a file: exports of this program, one or many, or plain messages as JSON lines."""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from leporello.errors import MessageError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from leporello.messages import Message
    from leporello.store import ConversationInfo, Store

_SHOULD = 'Every line is a message such as {"role": "user", "content": "Hello"}, or the file is an export.'


def read_in(store: Store, file: Path, *, name: str | None, owner: str | None) -> Iterator[ConversationInfo]:
    """Store what a file holds, conversation by conversation; raise what is wrong with it, with its line."""
    lines = _lines(file)
    if not lines:
        raise StoreError("there is nothing in it.", place=str(file), hint=_SHOULD)
    number, first = lines[0]
    if "leporello" not in _parsed(first, number):
        yield _append(store, name or _stem(file), [_message(line, number) for number, line in lines], owner or "")
        return
    exports = list(_split([line for _, line in lines]))
    prefix = name if name is not None and len(exports) > 1 else None
    for export in exports:
        yield _import(store, export, name if prefix is None else prefix + _name_in(export), owner)


def _lines(file: Path) -> list[tuple[int, str]]:
    """Return the lines of a file that hold anything, with their numbers."""
    try:
        with nullcontext(sys.stdin) if str(file) == "-" else file.expanduser().open(encoding="utf-8") as opened:
            return [(number, line) for number, line in enumerate(opened, 1) if line.strip()]
    except OSError as error:
        raise StoreError(f"it cannot be read ({error.strerror}).", place=str(file)) from error
    except UnicodeDecodeError as error:
        raise StoreError(f"it is not UTF-8 text ({error.reason}).", place=str(file), hint=_SHOULD) from error


def _stem(file: Path) -> str:
    return "input" if str(file) == "-" else file.stem


def _name_in(export: list[str]) -> str:
    return str(_parsed(export[0], 1).get("conversation", ""))


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


def _split(lines: list[str]) -> Iterator[list[str]]:
    """Cut a bundle into its conversations: each begins with a line that names the format."""
    export: list[str] = []
    for line in lines:
        if export and line.startswith('{"leporello"'):
            yield export
            export = []
        export.append(line)
    yield export


def _message(line: str, number: int) -> Message:
    value = _parsed(line, number)
    if not isinstance(value.get("role"), str):
        raise MessageError("this is not a message: it has no role.", path=f"line {number}")
    return value


def _parsed(line: str, number: int) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"not JSON ({error}).", place=f"line {number}", hint=_SHOULD) from error
    if not isinstance(value, dict):
        raise StoreError("not a JSON object.", place=f"line {number}", hint=_SHOULD)
    return value
