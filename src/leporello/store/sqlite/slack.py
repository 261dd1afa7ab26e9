"""Find old bytes in the unused space of a SQLite file's pages: what is left of rows that SQLite moved elsewhere.

    python -I -S slack.py FILE < b-trees > pages

The input is a JSON object: the names of b-trees and their root pages. For each page with something in its unused space
there is a JSON line: see `Page`. It is a process of its own because a process that closes a file loses the locks that
SQLite holds on it; it uses nothing but the standard library, and reads only.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from zlib import crc32

if TYPE_CHECKING:
    from collections.abc import Iterator

_TEXT: Final = re.compile(rb"[\x10-\xff]{4,}")
"""What may be a part of a word. SQLite's own notes in unused space are places on the page: their first bytes are lower
in pages of 4,096 bytes, which is what a store has."""

_TABLE_LEAF, _INDEX_LEAF, _TABLE_INTERIOR, _INDEX_INTERIOR = 13, 10, 5, 2
_LEAVES: Final = (_TABLE_LEAF, _INDEX_LEAF)
_HEADER: Final = {_TABLE_LEAF: 8, _INDEX_LEAF: 8, _TABLE_INTERIOR: 12, _INDEX_INTERIOR: 12}
_INTEGERS: Final = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8, 8: 0, 9: 0}
_SHOWN_CELLS: Final = 12
_NO_TEXT: Final = 28  # a row of ours begins with numbers: on a page of a table no text stands before this place


class Cell(NamedTuple):
    """A row on a page: its key, the size of its record, and the bytes that it takes on the page."""

    key: Any
    record: int
    size: int


class Page(NamedTuple):
    """A page with old bytes: its b-tree, its free bytes, what its cells look like, and the old bytes' checksums."""

    tree: str
    number: int
    kind: int
    usable: int
    free: int
    cells: list[Cell]
    old: dict[str, int]


def local_size(record: int, kind: int, usable: int) -> int:
    """Return how many bytes of a record stand on the page itself, with the number of the page that has the rest."""
    most, least, surplus = _limits(record, kind, usable)
    if record <= most:
        return record
    return (surplus if surplus <= most else least) + 4


def growth(record: int, kind: int, usable: int) -> range:
    """Return by how much a record may grow so that its part on the page grows with it."""
    most, least, surplus = _limits(record, kind, usable)
    if record <= most:
        return range(most - record + 1)
    if surplus <= most:
        return range(most - surplus + 1)
    start = usable - 4 - (surplus - least)
    return range(start, start + most - least + 1)


def _limits(record: int, kind: int, usable: int) -> tuple[int, int, int]:
    """Return the most and the least that stands on the page, and what would fill the last page of the rest."""
    most = usable - 35 if kind == _TABLE_LEAF else (usable - 12) * 64 // 255 - 23
    least = (usable - 12) * 32 // 255 - 23
    return most, least, least + (record - least) % (usable - 4)


def cell_size(record: int, key: Any, kind: int, usable: int) -> int:
    """Return how many bytes a cell with such a record takes on its page."""
    size = varint_size(record) + local_size(record, kind, usable)
    if kind == _TABLE_LEAF:
        size += varint_size(key)
    return max(4, size + (4 if kind == _INDEX_INTERIOR else 0))


def varint_size(value: int) -> int:
    """Return the length of a number in SQLite's variable-length form."""
    return 9 if value < 0 else min(9, max(1, -(-value.bit_length() // 7)))


def scan(path: str, trees: dict[str, int]) -> Iterator[Page]:
    """Yield the pages of some b-trees that have something in their unused space."""
    with open(path, "rb", buffering=0) as file:  # noqa: PTH123 - by its plain name, in an isolated interpreter
        header = file.read(100)
        size = int.from_bytes(header[16:18], "big")
        size = 65536 if size == 1 else size
        for tree, root in trees.items():
            todo = [root]
            while todo:
                number = todo.pop()
                page = os.pread(file.fileno(), size, (number - 1) * size)
                if len(page) < size or page[0] not in _HEADER:
                    continue  # it changed while we looked; the next look finds it
                todo += _children(page)
                found = _old(page, tree, number, size - header[20])
                if found:
                    yield found


def _children(page: bytes) -> list[int]:
    if page[0] in _LEAVES:
        return []
    pointers = _pointers(page)
    return [int.from_bytes(page[at : at + 4], "big") for at in pointers] + [int.from_bytes(page[8:12], "big")]


def _pointers(page: bytes) -> list[int]:
    start, count = _HEADER[page[0]], int.from_bytes(page[3:5], "big")
    return [int.from_bytes(page[start + 2 * n : start + 2 * n + 2], "big") for n in range(count)]


def _old(page: bytes, tree: str, number: int, usable: int) -> Page | None:
    kind = page[0]
    pointers = _pointers(page)
    start, top = _HEADER[kind] + 2 * len(pointers), int.from_bytes(page[5:7], "big") or 65536
    free, block = top - start + page[7], int.from_bytes(page[1:3], "big")
    first = max(start, _NO_TEXT) if kind == _TABLE_LEAF else start
    old = {str(found.start()): crc32(found[0]) for found in _TEXT.finditer(page, first, top)}
    if kind == _TABLE_INTERIOR or not old:
        return None
    while 0 < block < usable - 3:
        free += int.from_bytes(page[block + 2 : block + 4], "big")
        following = int.from_bytes(page[block : block + 2], "big")
        block = following if following > block else 0
    cells = sorted((_cell(page, at, kind, usable) for at in pointers), key=lambda cell: cell.record)
    return Page(tree, number, kind, usable, free, cells[:_SHOWN_CELLS], old)


def _cell(page: bytes, at: int, kind: int, usable: int) -> Cell:
    at += 4 if kind == _INDEX_INTERIOR else 0
    record, at = _varint(page, at)
    if kind == _TABLE_LEAF:
        rowid, at = _varint(page, at)
        key: Any = rowid
    else:
        key = _values(page[at : at + local_size(record, kind, usable)])
    return Cell(key, record, cell_size(record, key, kind, usable))


def _values(record: bytes) -> list[Any]:
    """Return the values of an index record: numbers, and texts and bytes as hexadecimal digits."""
    length, at = _varint(record, 0)
    kinds = []
    while at < length:
        kind, at = _varint(record, at)
        kinds.append(kind)
    values: list[Any] = []
    for kind in kinds:
        size = _INTEGERS[kind] if kind in _INTEGERS else (kind - 12) // 2 if kind >= 12 else 8  # noqa: PLR2004 - texts and bytes
        data = record[at : at + size]
        at += size
        if kind in (8, 9):
            values.append(kind - 8)
        else:
            values.append(int.from_bytes(data, "big", signed=True) if kind in _INTEGERS else data.hex())
    return values


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for count in range(9):
        byte = data[at + count]
        if count == 8:  # noqa: PLR2004 - the ninth byte counts whole
            return value << 8 | byte, at + 9
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            return value, at + count + 1
    return value, at + 9


def main() -> None:
    """Print the pages with old bytes."""
    for page in scan(sys.argv[1], json.load(sys.stdin)):
        print(json.dumps(page))  # noqa: T201 - this is its answer


if __name__ == "__main__":
    main()
