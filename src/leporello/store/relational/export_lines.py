"""Reads and checks the lines of an export: what is wrong with one is an error that names it."""

from __future__ import annotations

import json
from typing import Any, Final

from leporello.errors import StoreError
from leporello.store.codec import HASH_SIZE, verbatim
from leporello.store.records import ROOT
from leporello.store.relational.rows import checked, is_time

MOST: Final = 2**53  # seqs and places beyond it are not exact in every program
LOST: Final = "Lines are missing or out of order; export the conversation again."
_READ: Final = (1, 2)  # formats
_EXPECTED: Final = 'Its first line should be {"leporello": 2, "conversation": ...}.'


def checked_head(head: dict[str, Any], number: int) -> dict[str, Any]:
    """Return the first line of an export, with what it leaves out."""
    if head.get("leporello") not in _READ or isinstance(head["leporello"], bool):
        raise StoreError("this is not an export of a conversation.", place=f"line {number}", hint=_EXPECTED)
    if not _are_branches(head.get("branches", [_ALONE]), head.get("head", ROOT), head.get("pins", [])):
        raise StoreError("'branches', 'head' or 'pins' is wrong.", place=f"line {number}", hint=_EXPECTED)
    for key in ("conversation", "owner"):
        checked(field(head, key, str, number)) if key in head else None
    for key in ("created", "updated", "ended"):
        if head.get(key) is not None:
            time_field(head, key, number)
    verbatim(head.get("meta", {}), f"line {number}: meta")
    present = {key: value for key, value in head.items() if value is not None}
    return {"conversation": "", "owner": "", "head": ROOT, "branches": [_ALONE], "pins": [], **present}


_ALONE: Final = {"id": ROOT, "parent": None, "place": None, "seq": None}


def _are_branches(branches: Any, head: Any, pins: Any) -> bool:
    """Tell whether branches form a tree that the head belongs to, each behind its parent."""
    known: set[int] = set()
    for branch in branches if isinstance(branches, list) else ():
        if not isinstance(branch, dict) or not is_count(branch.get("id")) or branch["id"] in known:
            return False
        if not (branch["id"] == ROOT or known) or not (branch.get("parent") is None or _is_fork(branch, known)):
            return False
        known.add(branch["id"])
    return ROOT in known and is_count(head) and head in known and isinstance(pins, list) and all(map(is_count, pins))


def _is_fork(branch: dict[str, Any], known: set[int]) -> bool:
    """Tell whether a branch says properly where it was forked, from one that was made before it."""
    parent, place = branch["parent"], branch.get("place")
    number = isinstance(place, (int, float)) and not isinstance(place, bool)
    behind = place is None or (number and abs(place) < MOST)
    earlier = is_count(parent) and parent in known and parent < branch["id"]
    return earlier and behind and is_count(branch.get("seq"), least=0)


def is_count(value: Any, least: int = 1) -> bool:
    """Tell whether a value is a whole number in the range of ids and seqs."""
    return isinstance(value, int) and not isinstance(value, bool) and least <= value < MOST


def parsed(line: str, number: int) -> dict[str, Any]:
    """Parse a line, which must be a JSON object."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise StoreError(f"not JSON ({error}).", place=f"line {number}", hint=_EXPECTED) from error
    if not isinstance(value, dict):
        raise StoreError("not a JSON object.", place=f"line {number}", hint=_EXPECTED)
    return value


def field(line: Any, key: str, kind: Any, number: int) -> Any:
    """Return a field of a line, which must be of this type."""
    value = line.get(key) if isinstance(line, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise StoreError(f"'{key}' is missing or wrong.", place=f"line {number}", hint=LOST)
    return value


def number_field(line: Any, key: str, number: int) -> float:
    """Return a field that is a number in the range of places."""
    value = field(line, key, (int, float), number)
    if not -MOST < value < MOST:
        raise StoreError(f"'{key}' is not a number that can be used.", place=f"line {number}", hint=LOST)
    return float(value)


def time_field(line: Any, key: str, number: int) -> float:
    """Return a field that is a time in seconds."""
    value = field(line, key, (int, float), number)
    if not is_time(value):
        raise StoreError(f"'{key}' is not a time in seconds.", place=f"line {number}", hint=LOST)
    return float(value)


def hash_field(line: Any, key: str, number: int) -> bytes:
    """Return a field that is a hash, or empty."""
    value = field(line, key, str, number)
    try:
        data = bytes.fromhex(value)
    except ValueError:
        data = None
    if data is None or len(data) not in (0, HASH_SIZE):
        raise StoreError(f"'{key}' is not a hash.", place=f"line {number}", hint=LOST)
    return data
