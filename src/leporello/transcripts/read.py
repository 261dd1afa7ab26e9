"""Reads conversations from files and folders; the format is recognised by what a file holds."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import replace
from itertools import accumulate, chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from leporello.errors import MessageError, TranscriptError
from leporello.messages import role_of
from leporello.messages.as_json import require_json
from leporello.messages.types import ROLES
from leporello.transcripts import chat, chatgpt, claude_code, codex, database, export
from leporello.transcripts.model import OnSkip, Skipped
from leporello.transcripts.records import Record, records

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    from leporello.messages import Message
    from leporello.transcripts.model import Transcript

_log = logging.getLogger("leporello")
_ENDINGS = (".json", ".jsonl", ".ndjson", ".traj", ".jsonl.gz", ".json.gz", ".jsonl.zst", ".db", ".sqlite")
_LOOKED_AT = 200  # values before a format must have been recognised
_FORMATS = (export, claude_code, codex, chatgpt, chat)
_EXPECTED = (
    "Known are OpenAI's and Anthropic's messages, logs of Claude Code and Codex, exports of ChatGPT, "
    "trajectories of SWE-agent, exports of leporello, and databases of Hermes Agent, hermes-lcm and lossless-claw."
)


def read_transcripts(path: str | os.PathLike[str], *, on_skip: OnSkip | None = None) -> Iterator[Transcript]:
    """Yield the conversations of a file, or of all files of a folder, each with those of its sub-agents.

    What cannot be read is left out and told to `on_skip` (else logged), with its line; a file in which nothing can be
    read is a TranscriptError.
    """
    tell = on_skip or _logged
    root = Path(path).expanduser()
    if not root.is_dir():
        yield from _file(root, tell)
        return
    for file in transcript_files(root):
        try:
            yield from _file(file, tell)
        except TranscriptError as error:
            tell(Skipped(file=str(file), line=0, reason=error.problem))


def transcript_files(path: str | os.PathLike[str]) -> list[Path]:
    """Return the file, or the files of a folder that may hold conversations; sub-agents' logs come with their own."""
    root = Path(path).expanduser()
    if not root.is_dir():
        return [root]
    files = sorted(file for file in root.rglob("*") if file.name.endswith(_ENDINGS) and file.is_file())
    known = set(files)
    return [file for file in files if claude_code.parent_log(file) not in known]


def _file(path: Path, on_skip: OnSkip) -> Iterator[Transcript]:
    if database.is_database(path):
        yield from _usable(database.read(path, on_skip), path, on_skip)
        return
    skipped: list[Skipped] = []

    def told(skip: Skipped) -> None:
        skipped.append(skip)
        on_skip(skip)

    values = records(path, told)
    first, reader = _recognised(values, path, skipped)
    found = False
    for transcript in _usable(reader.read(chain(first, values), path, told), path, told):
        found = found or bool(transcript.messages)
        yield transcript
    if not found:
        raise TranscriptError(f"no conversation could be read{_because(skipped)}.", file=path, hint=_EXPECTED)
    for log in claude_code.subagent_logs(path) if reader is claude_code else ():
        yield from _usable(claude_code.read(records(log, told), log, told), log, told)


def _recognised(values: Iterator[Record], path: Path, skipped: list[Skipped]) -> tuple[list[Record], Any]:
    """Return the values that were looked at, and the reader that knows them."""
    seen: list[Record] = []
    for record in values:
        seen.append(record)
        for reader in _FORMATS:
            if reader.knows(record.value):
                return seen, reader
        if len(seen) == _LOOKED_AT:
            break
    problem = f"no known format{_because(skipped)}" if seen or skipped else "there is nothing in it"
    raise TranscriptError(f"{problem}.", file=path, hint=_EXPECTED)


def _usable(transcripts: Iterable[Transcript], path: Path, on_skip: OnSkip) -> Iterator[Transcript]:
    """Yield the conversations without messages that no host takes, telling how many there are and why."""
    for transcript in transcripts:
        problems = [_problem(message) for message in transcript.messages]
        for problem, count in Counter(filter(None, problems)).items():
            told = f"{count} message{'s' * (count > 1)} of {transcript.name}: {problem}"
            on_skip(Skipped(file=str(path), line=0, reason=told))
        if not any(problems):
            yield transcript
            continue
        left = list(accumulate((not problem for problem in problems), initial=0))
        yield replace(
            transcript,
            messages=[one for one, problem in zip(transcript.messages, problems, strict=True) if not problem],
            compactions=tuple(replace(one, at=left[min(one.at, len(problems))]) for one in transcript.compactions),
        )


def _problem(message: Message) -> str:
    role = role_of(message)
    if role not in ROLES:
        return f"{role!r} is no role"
    try:
        require_json(message, "message")
    except MessageError as error:
        return error.problem.partition(";")[0].rstrip(".")
    return ""


def _because(skipped: Iterable[Skipped]) -> str:
    first = next(iter(skipped), None)
    return f" (line {first.line}: {first.reason})" if first and first.line else f" ({first.reason})" if first else ""


def _logged(skipped: Skipped) -> None:
    _log.warning("skipped: %s", skipped)
