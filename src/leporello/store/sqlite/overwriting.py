"""Overwrite old bytes in the unused space of pages.

`secure_delete` overwrites rows that are deleted, but not the copies that stay behind when SQLite moves rows from page
to page. Only a full page has no unused space: so one of its rows is made as long as fits, and then what it was before,
in one transaction. Nothing else changes, and no reader sees the long row.
"""

# ruff: noqa: S608 - statements are put together from constants; values are always bound

from __future__ import annotations

import json
import subprocess
import sys
from bisect import bisect_right
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from leporello.errors import StoreError
from leporello.store.sqlite import slack
from leporello.store.sqlite.slack import Cell, Page, cell_size, growth, varint_size

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.store.relational.dialect import Connection


class _Tree(NamedTuple):
    """How a row of a b-tree is found, and which of its columns is made longer."""

    table: str
    column: str
    where: str = "rowid = ?"


_TREES: Final = {
    "messages": _Tree("messages", "body"),
    "payloads": _Tree("payloads", "data"),
    "nodes": _Tree("nodes", "text"),
    "windows": _Tree("windows", "items"),
    "requests": _Tree("requests", "report"),
    "artifacts": _Tree("artifacts", "note"),
    "jobs": _Tree("jobs", "payload"),
    "handed_out": _Tree("handed_out", "origins"),
    "conversations": _Tree("conversations", "meta"),
    "search_data": _Tree("search_data", "block"),
    "search_idx": _Tree("search_idx", "pgno", "segid = ? AND term = ?"),
    "sqlite_autoindex_conversations_1": _Tree("conversations", "key"),
}


def pages_with_remains(connection: Connection, file: Path) -> list[Page]:
    """Return the pages that hold old bytes; the file has to be up to date with its log."""
    roots = dict(connection.execute("SELECT name, rootpage FROM sqlite_schema WHERE rootpage > 1"))
    trees = {name: roots[name] for name in _TREES if name in roots}
    done = subprocess.run(  # noqa: S603 - our own file; the store's name is an argument
        [sys.executable, "-I", "-S", str(Path(slack.__file__)), str(file)],
        input=json.dumps(trees),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise StoreError(f"the file cannot be searched for remains: {done.stderr[-200:]}", place=str(file))
    pages = (Page(*json.loads(line)) for line in done.stdout.splitlines())
    return [page._replace(cells=[Cell(*cell) for cell in page.cells]) for page in pages]


def still_there(before: Page, now: Page | None) -> bool:
    """Tell whether some of the old bytes of a page are where they were."""
    return now is not None and any(now.old.get(at) == value for at, value in before.old.items())


def overwrite(connection: Connection, page: Page) -> None:
    """Fill a page, then make its rows what they were."""
    before: list[tuple[str, Any, Sequence[Any]]] = []
    free = page.free
    for cell in page.cells:
        if free < 4:  # noqa: PLR2004 - too little for a word
            break
        tree, key = _TREES[page.tree], _key(page.tree, cell)
        row = connection.execute(f"SELECT {tree.column} FROM {tree.table} WHERE {tree.where}", key).fetchone()
        if row is None:
            continue
        value, grown = _longer(row[0], page, cell, free)
        statement = f"UPDATE {tree.table} SET {tree.column} = ? WHERE {tree.where}"
        connection.execute(statement, (value, *key))
        before.append((statement, row[0], key))
        free -= grown
    for statement, value, key in reversed(before):
        connection.execute(statement, (value, *key))


def _key(tree: str, cell: Cell) -> tuple[Any, ...]:
    if tree == "search_idx":
        return cell.key[0], bytes.fromhex(cell.key[1])
    return (cell.key,) if isinstance(cell.key, int) else (cell.key[-1],)


def _longer(value: Any, page: Page, cell: Cell, free: int) -> tuple[Any, int]:
    """Return a value that makes a row fill the free bytes of its page, as far as one row can; and by how much."""
    if isinstance(value, int):
        rest, length = cell.record - 1 - _integer_size(value), 0
    else:
        length = len(value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value)
        rest = cell.record - length - varint_size(13 + 2 * length)

    def size(longer: int) -> int:
        new = rest + length + longer + varint_size(13 + 2 * (length + longer))
        return cell_size(new, cell.key, page.kind, page.usable)

    choices = growth(cell.record, page.kind, page.usable)
    fitting = bisect_right(choices, cell.size + free, key=size)
    more = choices[fitting - 1] if fitting else 0
    if isinstance(value, int):
        return b"\0" * more, size(more) - cell.size
    return value + (" " if isinstance(value, str) else b"\0") * more, size(more) - cell.size


def _integer_size(value: int) -> int:
    """Return the bytes of a number in a record."""
    if value in (0, 1):
        return 0
    bits = (value if value >= 0 else ~value).bit_length() + 1
    return next((size for size in (1, 2, 3, 4, 6, 8) if bits <= 8 * size), 8)
