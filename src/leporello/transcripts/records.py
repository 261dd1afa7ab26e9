"""The JSON values of a file, one at a time: the lines of JSON lines, the items of an array, or the one object."""

from __future__ import annotations

import gzip
import json
from io import BytesIO
from typing import IO, TYPE_CHECKING, Any, NamedTuple, cast

import ijson  # type: ignore[import-untyped]

from leporello.errors import TranscriptError
from leporello.transcripts.model import OnSkip, Skipped

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_PROBE = 1 << 16
_ZSTD = b"\x28\xb5\x2f\xfd"
_GZIP = b"\x1f\x8b"
_BOM = b"\xef\xbb\xbf"


class Record(NamedTuple):
    """A JSON value and the number of its line, or of its item in an array."""

    number: int
    value: Any


def records(path: Path, on_skip: OnSkip) -> Iterator[Record]:
    """Yield the values of a file; a broken line is skipped and told, the rest of a broken array too."""
    try:
        with _opened(path) as file:
            yield from _lines(file, path, on_skip) if _is_lines(file, path) else _document(file, path, on_skip)
    except OSError as error:
        raise TranscriptError(f"it cannot be read ({error.strerror or error}).", file=path) from error


def _opened(path: Path) -> IO[bytes]:
    file = path.open("rb")
    start = file.read(4)
    file.seek(0)
    if start.startswith(_ZSTD):
        file.close()
        raise TranscriptError("it is compressed with zstd.", file=path, hint=f"Unpack it first: zstd -d {path.name}")
    if start.startswith(_GZIP):
        file.close()
        return cast("IO[bytes]", gzip.open(path, "rb"))
    return file


def _is_lines(file: IO[bytes], path: Path) -> bool:
    """Tell whether every line is a value of its own; the file is left at its beginning."""
    probe = file.read(_PROBE).removeprefix(_BOM)
    file.seek(0)
    if ".jsonl" in path.name or ".ndjson" in path.name:
        return True
    first, newline, _ = probe.lstrip().partition(b"\n")
    return bool(newline) and _is_json(first)


def _is_json(text: bytes) -> bool:
    try:
        return isinstance(json.loads(text), (dict, list))
    except (ValueError, RecursionError):
        return False


def _lines(file: IO[bytes], path: Path, on_skip: OnSkip) -> Iterator[Record]:
    for number, line in enumerate(file, 1):
        text = line.removeprefix(_BOM) if number == 1 else line
        if not text.strip():
            continue
        try:
            yield Record(number, _loaded(text))
        except (ValueError, ijson.JSONError) as error:
            on_skip(Skipped(file=str(path), line=number, reason=f"not JSON ({_short(error)})"))


def _loaded(line: bytes) -> Any:
    """Return the value of a line, however deeply it is nested: what cannot be used of it is told later, by itself."""
    try:
        return json.loads(line)
    except RecursionError:
        return next(ijson.items(BytesIO(line), "", use_float=True))


def _document(file: IO[bytes], path: Path, on_skip: OnSkip) -> Iterator[Record]:
    """Yield the items of an array as they come, or the one value of the file."""
    start = file.read(_PROBE).removeprefix(_BOM).lstrip()[:1]
    file.seek(0)
    if not start:
        raise TranscriptError("there is nothing in it.", file=path)
    if start not in (b"[", b"{"):
        raise TranscriptError("it is neither JSON nor JSON lines.", file=path)
    prefix, number = ("item", 0) if start == b"[" else ("", 0)
    try:
        for number, value in enumerate(ijson.items(_without_bom(file), prefix, use_float=True), 1):
            yield Record(number, value)
    except (ijson.JSONError, UnicodeDecodeError) as error:
        if not number:
            raise TranscriptError(f"it is not JSON ({_short(error)}).", file=path) from error
        on_skip(Skipped(file=str(path), line=0, reason=f"broken behind item {number} ({_short(error)})"))


def _without_bom(file: IO[bytes]) -> IO[bytes]:
    if file.read(len(_BOM)) != _BOM:
        file.seek(0)
    return file


def _short(error: Exception) -> str:
    return " ".join(str(error).split())[:120]
