"""What must stay exact: files with what happened to them, values with their names, errors as they stood."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from leporello.summary.artifacts.errors import telling_errors
from leporello.summary.artifacts.files import endings
from leporello.summary.extract.salient_names import Names
from leporello.summary.template import Sections, file_line
from leporello.summary.template.file_lines import ABOUT_WORDS, READ_IN_PART, times
from leporello.summary.template.shape import name_line
from leporello.summary.template.update import not_renewed

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from leporello.summary.artifacts import Artifacts, ErrorTrace, FileTrace, ValueTrace
    from leporello.summary.artifacts.reading import ReadTurn

_MOST_FILES = 400
_LISTING = 5  # more paths than that in one output are a listing
_MOST_ERRORS = 120
_TOKENS_PER_VALUE = 40
SAID_SHARE = 0.8
"""The share of a budget that names take at most, before anything is trimmed."""
_MOST_SIBLINGS = 3  # more values of one name in an output are a column of data
_VALUES_PER_LINE = 8
_VALUES_PER_NAME = 16
_DULL_VALUE = re.compile(r"(?:.*: )?(?:[-$]?\d{1,2}|\d{1,2}\.\d|-?[\d.]+(?:px|r?em|ms|vh|vw|fr|deg))")
_SPOKEN = 2
_BARE = frozenset({"number", "id", "hash", "uuid"})  # in an output they say nothing without a name
_RECORD = re.compile(r"[A-Za-z][A-Za-z0-9]*[-_]\d{4,}(?:[-_][A-Za-z0-9]+)*")  # such as INV-20931 or job-48151-eu
_ACTION_WORTH = {
    "written": 5,
    "created": 5,
    "deleted": 5,
    "moved": 5,
    "read": 4,
    "run": 4,
    "in errors": 3,
    "searched": 2,
    "listed": 1,
}
_WORKED_ON = 3  # what is worth less, such as a hit of a search, may be another name of the same file
_PLURALS = {
    "url": "urls", "uuid": "uuids", "hash": "hashes", "id": "ids", "version": "versions", "amount": "amounts",
    "address": "addresses", "number": "numbers", "pair": "numbers", "setting": "settings",
}  # fmt: skip
_SAYS_ERROR = re.compile(r"\W*(?:E\s+)?(?:[\w.]*error|fatal|failed|panic|错误|失败|异常)", re.IGNORECASE)
_VALUE_LINE = re.compile(r"(?P<name>[^:=\"`]{1,44}): (?P<values>[^\s,]{1,200}(?:, [^\s,]{1,200})*)")
_COUNTED = re.compile(r" \((\d+)×\)$")
_NAMED = re.compile(r"(?P<name>[^:=\"]{1,44}): (?P<value>\S.*)")


def exact_sections(
    turns: Sequence[ReadTurn], artifacts: Artifacts, budget_tokens: int, *, names_listed: bool = False
) -> Sections:
    """Write files, names, values and errors, of each the least important first; nothing is told twice.

    With `names_listed` names of no file are left out, and those that only stood in an output: a list tells them.
    """
    names = Names(turns)
    files = _files(artifacts, names.said_paths)
    values = _values(artifacts, budget_tokens)
    of_files, others = names.under(
        [trace.text for trace in files], int(budget_tokens * SAID_SHARE), read=not names_listed
    )
    spoken = {word for trace in values if _told(trace) for word in trace.text.split()}
    parted = (trace.text.rpartition(": ") for trace in values)
    labels = {value: label for label, colon, value in parted if colon}
    alone = () if names_listed else (name for name in reversed(others) if name not in spoken and name not in labels)
    named = {name: words for name in alone if (words := names.beside(name)) and labels.get(words[-1]) != name}
    in_part = {result.about for turn in turns for result in turn.results if result.about and result.call_id}
    known = {*named, *(name for found in of_files.values() for name in found)}
    return Sections(
        files=tuple(
            _file_line(trace, of_files.get(trace.text, ()), names, is_part=trace.text in in_part) for trace in files
        ),
        critical=(
            *(name_line(name, words) for name, words in named.items()),
            *_value_lines(_told_once(trace for trace in values if trace.text not in known)),
            *(_error_line(trace) for trace in _telling(artifacts.errors[-_MOST_ERRORS:])),
        ),
    )


def _file_line(trace: FileTrace, inside: Sequence[str], names: Names, *, is_part: bool) -> str:
    """Write a file with its names and what happened to it; one that was only named, with words beside it."""
    told, happened = names.in_line_of(trace.text, inside), _what_happened(trace)
    if not told and not happened and not is_part:
        return name_line(trace.text, words) if (words := names.beside(trace.text)) else trace.text
    happened = happened or ([READ_IN_PART] if is_part else [])
    words = names.words_for(trace.text, inside)
    about = [ABOUT_WORDS + " ".join(words)] if words else []
    return file_line(trace.text, ", ".join([*told, *about, *happened]))


def _files(artifacts: Artifacts, said: Collection[str]) -> list[FileTrace]:
    """Return the files that something happened to or that were named, each once; no paths out of listings."""
    acted = [trace for trace in artifacts.files if trace.actions]
    shorter = {ending for trace in acted for ending in endings(trace.text)}
    wanted = [trace for trace in acted if _worth(trace) >= _WORKED_ON or trace.text not in shorter]
    named = [trace for trace in artifacts.files if trace.text in said or trace.bulk <= _LISTING]
    shorter.update(ending for trace in named for ending in endings(trace.text) if ending != trace.text)
    wanted += [trace for trace in named if not trace.actions and trace.text not in shorter]
    return sorted(wanted, key=_file_worth)[-_MOST_FILES:]


def _values(artifacts: Artifacts, budget_tokens: int) -> list[ValueTrace]:
    """Return the values that a reader depends on most, the least important first."""
    most = max(8, budget_tokens // _TOKENS_PER_VALUE)
    total = max(1, artifacts.messages)
    said = {word for trace in artifacts.values if _told(trace) for word in trace.text.split()}
    worthy = [
        trace
        for trace in artifacts.values
        if _told(trace)
        or not (
            _DULL_VALUE.fullmatch(trace.text)
            or (trace.kind == "number" and trace.text in said)
            or (trace.kind in _BARE and not trace.rank and not _says_what(trace.text))
            or (not trace.rank and trace.siblings > _MOST_SIBLINGS)
        )
    ]
    return sorted(worthy, key=lambda trace: (_value_worth(trace, total), trace.last, trace.text))[-most:]


def _says_what(text: str) -> bool:
    """Tell whether a value stands with its name, or is the number of a record, which says what it is by itself."""
    return ": " in text or bool(_RECORD.fullmatch(text))


def _told_once(values: Iterable[ValueTrace]) -> list[ValueTrace]:
    """Return the values without those that stand with another name, or in another value, already."""
    found: dict[str, ValueTrace] = {}
    for trace in reversed(list(values)):
        found.setdefault(_name_and_value(trace)[1], trace)
    told = "\n".join(found)
    return [trace for value, trace in reversed(found.items()) if ":" in trace.text or told.count(value) == 1]


def _value_lines(values: Iterable[ValueTrace]) -> list[str]:
    """Write values, those with one name on one line."""
    groups: dict[str, list[str]] = {}
    for trace in values:
        name, value = _name_and_value(trace)
        groups[name] = [*groups.pop(name, []), value]
    return [line for name, found in groups.items() for line in _group_lines(name, found[-_VALUES_PER_NAME:])]


def _telling(errors: Sequence[ErrorTrace]) -> list[ErrorTrace]:
    """Return the errors without bare exit codes, where any other says what went wrong."""
    telling = set(telling_errors(trace.text for trace in errors))
    return [trace for trace in errors if trace.text in telling]


def _error_line(trace: ErrorTrace) -> str:
    text = trace.text if _SAYS_ERROR.match(trace.text) else f"error: {trace.text}"
    return text + (f" ({trace.count}×)" if trace.count > 1 else "")


def _file_worth(trace: FileTrace) -> tuple[float, int, str]:
    return _worth(trace) - math.log10(max(1, trace.bulk)) / 2, trace.last, trace.text


def _worth(trace: FileTrace) -> int:
    return max((_ACTION_WORTH.get(action, 0) for action, _ in trace.actions), default=0)


def _what_happened(trace: FileTrace) -> list[str]:
    ordered = sorted(trace.actions, key=lambda pair: -_ACTION_WORTH.get(pair[0], 0))
    return [times(action, count) for action, count in ordered]


def _told(trace: ValueTrace) -> bool:
    """Tell whether this number was said with words around it."""
    return trace.rank == _SPOKEN and trace.kind == "pair"


def _value_worth(trace: ValueTrace, total: int) -> float:
    worth = 1.5 * trace.rank + min(math.log2(trace.count), 3.0) - math.log2(max(1, trace.siblings)) / 1.5
    bare = 1.0 if trace.kind == "number" else 0.0
    return worth + trace.last / total - bare


def _name_and_value(trace: ValueTrace) -> tuple[str, str]:
    match = _NAMED.fullmatch(trace.text) if trace.kind != "url" else None
    return (match["name"], match["value"]) if match else (_PLURALS.get(trace.kind, "values"), trace.text)


def _group_lines(name: str, found: list[str]) -> Iterable[str]:
    return (f"{name}: {', '.join(found[i : i + _VALUES_PER_LINE])}" for i in range(0, len(found), _VALUES_PER_LINE))


def merge_values(old: Iterable[str], new: Iterable[str]) -> tuple[str, ...]:
    """Join lines of Critical Context: values with one name stand on one line, a line that comes up again is recent."""
    groups: dict[str, dict[str, None]] = {}
    counts: dict[str, int] = {}
    new = list(new)
    for line in (*not_renewed(old, new), *new):
        name, values, count = _taken_apart(line)
        known = groups.pop(name, {})
        for value in values:
            known.pop(value, None)
            known[value] = None
        groups[name] = known
        counts[name] = counts.get(name, 0) + count
    return tuple(line for name, values in groups.items() for line in _put_together(name, list(values), counts[name]))


def _taken_apart(line: str) -> tuple[str, list[str], int]:
    """Return the name, the values and the count of a line; a line that is no list of values is all name."""
    match = _VALUE_LINE.fullmatch(line)
    if match and not _SAYS_ERROR.match(line):
        return match["name"], match["values"].split(", "), 1
    counted = _COUNTED.search(line)
    return (line[: counted.start()], [], int(counted[1])) if counted else (line, [], 1)


def _put_together(name: str, values: list[str], count: int) -> Iterable[str]:
    if values:
        return _group_lines(name, values)
    return [f"{name} ({count}×)" if count > 1 else name]
