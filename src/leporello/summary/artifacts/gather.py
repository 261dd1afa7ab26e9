"""One pass over a conversation that gathers everything exact."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from leporello.summary.artifacts import files, survey
from leporello.summary.artifacts.call_lines import call_text
from leporello.summary.artifacts.errors import errors_at, telling_errors
from leporello.summary.artifacts.model import LIMITS, Artifacts
from leporello.summary.artifacts.outcome import outcome_of
from leporello.summary.artifacts.reading import NOTICE, ReadTurn, lines_of, read_turns
from leporello.summary.artifacts.sayings import decisions_at
from leporello.summary.artifacts.tally import (
    CommandTally,
    DecisionTally,
    ErrorTally,
    FileTally,
    Tallies,
)
from leporello.summary.artifacts.values import pairs_at
from leporello.summary.artifacts.words import HANDED_OVER, OUTPUT, SPOKEN, Passage, Words
from leporello.summary.outline import WITH_CALLS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from leporello.messages.types import ToolCall
    from leporello.redact import RedactedMessage
    from leporello.summary.outline import Outline

_LONG_ARGUMENT = 400
_BATCH = 65_536


def collect(messages: Iterable[RedactedMessage]) -> Artifacts:
    """Gather files, commands, errors, decisions and exact values from messages, in one linear pass."""
    return collect_turns(read_turns(messages))


def collect_turns(turns: Iterable[ReadTurn], older: Outline | None = None, *, decisions: bool = True) -> Artifacts:
    """Gather the same from turns that were read already, and from the outline of those before them.

    The search for decisions can be left out.
    """
    gathering = _Gathering(decisions=decisions)
    if older:
        gathering.survey(older)
    for turn in turns:
        gathering.add(turn)
    return gathering.finish()


class _Gathering:
    """The traces found so far."""

    def __init__(self, *, decisions: bool = True) -> None:
        self._wants_decisions = decisions
        self._files = Tallies(FileTally, LIMITS["files"])
        self._commands = Tallies(CommandTally, LIMITS["commands"])
        self._errors = Tallies(ErrorTally, LIMITS["errors"])
        self._decisions = Tallies(DecisionTally, LIMITS["decisions"])
        self._words = Words(self._files)
        self._open: dict[str, tuple[int, ToolCall]] = {}
        self._batch: list[Passage] = []
        self._batch_length = 0
        self._messages = 0

    def survey(self, older: Outline) -> None:
        """Take in the outline of old turns."""
        recent = older.stop - WITH_CALLS
        if self._wants_decisions:
            self._read_decisions(list(survey.said(older, 0, recent)))
        for passage in survey.said(older, recent, older.stop):
            self._read(passage)
        for called in survey.called(older):
            for path, count in called.paths.items():
                tally = self._files.seen(path, called.at)
                tally.bulk = 1
                tally.actions[called.action] += count
        self._flush()
        for index, line in survey.errors(older):
            self._errors.seen(line, index)

    def add(self, turn: ReadTurn) -> None:
        """Take in one turn."""
        self._messages = turn.at + 1
        for position, call in enumerate(turn.calls):
            self._open[call.id or f"{turn.at}.{position}"] = (turn.at, call)
            self._read_arguments(call, turn.at)
        for result in turn.results:
            if result.about:
                self._files.seen(result.about, turn.at).bulk = 1
            self._read(
                Passage(at=turn.at, rank=OUTPUT, role="tool", text=result.text, answers=self._call(result.call_id))
            )
        if turn.text:
            rank = HANDED_OVER if turn.role == NOTICE else SPOKEN
            self._read(Passage(at=turn.at, rank=rank, role=turn.role, text=turn.text))

    def finish(self) -> Artifacts:
        """Return what was found; a call that nothing answered has an unknown outcome."""
        self._flush()
        for index, call in self._open.values():
            self._settle(call, index, "unknown", "")
        return Artifacts(
            files=tuple(tally.trace(text) for text, tally in self._files.best()),
            commands=tuple(tally.trace(text) for text, tally in self._commands.best()),
            errors=tuple(tally.trace(text) for text, tally in self._errors.best()),
            decisions=tuple(tally.trace(text) for text, tally in self._decisions.best()),
            values=self._words.traces(),
            messages=self._messages,
        )

    def _call(self, call_id: str) -> tuple[int, ToolCall] | None:
        """Return the open call that a result answers; one without an id answers the newest."""
        return self._open.pop(call_id or next(reversed(self._open), ""), None)

    def _settle(self, call: ToolCall, index: int, outcome: str, detail: str) -> None:
        """Count what a call did, now that its outcome is known: what failed was run, but has touched no file."""
        actions = dict.fromkeys(
            (action, path) for action, given in files.call_actions(call) if (path := files.clean(given))
        )
        for action, path in actions:
            tally = self._files.seen(path, index)
            tally.bulk = 1
            tally.actions["" if outcome == "failed" and action != "run" else action] += 1
        if not actions or files.command_of(call):
            run = self._commands.seen(call_text(call), index)
            run.tool, run.outcome, run.detail = call.name, outcome, detail
            run.failures += outcome == "failed"

    def _read_arguments(self, call: ToolCall, index: int) -> None:
        """Read what was handed to a tool; the long texts among it, such as a file to write, are read like outputs."""
        told = files.telling_arguments(call)
        short = {key: value for key, value in told.items() if not _is_long(value)}
        long = {key: value for key, value in told.items() if _is_long(value)}
        if short or not long:
            self._read(Passage(at=index, rank=HANDED_OVER, role="", text=lines_of(short) or call.raw))
        if long:
            self._read(Passage(at=index, rank=OUTPUT, role="", text=lines_of(long)))

    def _read(self, passage: Passage) -> None:
        """Take in a passage; of a very long one, no search covers more than a batch."""
        if len(passage.text) <= 2 * _BATCH:
            self._add(passage)
            return
        pieces = list(_pieces(passage.text))
        for piece in pieces:
            self._add(passage._replace(text=piece, answers=None))
        if passage.answers:
            index, call = passage.answers
            ends = f"{pieces[0]}\n{pieces[-1]}"  # how a command ended stands at either end
            self._settle(call, index, *outcome_of(ends, telling_errors([line for _, line in errors_at(ends)])))

    def _add(self, passage: Passage) -> None:
        self._batch.append(passage)
        self._batch_length += len(passage.text)
        if self._batch_length > _BATCH:
            self._flush()

    def _flush(self) -> None:
        """Search the passages that came together as one text: many short ones cost no more than one long one."""
        batch, self._batch, self._batch_length = self._batch, [], 0
        spoken = [passage for passage in batch if passage.rank == SPOKEN]
        received = [passage for passage in batch if passage.role != "assistant"]
        errors = {id(passage): telling_errors(lines) for passage, lines in _grouped(received, errors_at)}
        for passage in received:
            lines = errors.get(id(passage), [])
            for line in lines:
                self._errors.seen(line, passage.at)
            if passage.answers:
                index, call = passage.answers
                self._settle(call, index, *outcome_of(passage.text, lines))
        for passage, paths in _grouped(received, files.frames_at):
            for path in dict.fromkeys(paths):
                self._files.seen(path, passage.at).actions["in errors"] += 1
        if self._wants_decisions:
            self._read_decisions(spoken)
        self._words.read(batch)
        for passage, pairs in _grouped(batch, pairs_at):
            self._words.read_pairs(passage, pairs)

    def _read_decisions(self, spoken: list[Passage]) -> None:
        for passage, sentences in _grouped(spoken, decisions_at):
            for sentence in sentences:
                self._decisions.seen(sentence, passage.at).role = passage.role


def _pieces(text: str) -> Iterator[str]:
    """Cut a text into batches behind a line, a word or a comma, whichever there is."""
    start = 0
    while len(text) - start > _BATCH:
        end = start + _BATCH
        cut = next((at for mark in "\n ," if (at := text.rfind(mark, start, end)) > start), end - 1)
        yield text[start : cut + 1]
        start = cut + 1
    yield text[start:]


def _grouped(
    passages: list[Passage], find: Callable[[str], Iterable[tuple[int, str]]]
) -> Iterator[tuple[Passage, list[str]]]:
    """Search all passages at once, and say for each what was found in it."""
    ends = list(accumulate(len(passage.text) + 1 for passage in passages))
    found: dict[int, list[str]] = {}
    for position, text in find("\n".join(passage.text for passage in passages)):
        found.setdefault(bisect_right(ends, position), []).append(text)
    return ((passages[number], found[number]) for number in sorted(found))


def _is_long(value: Any) -> bool:
    return isinstance(value, (dict, list)) or (
        isinstance(value, str) and (len(value) > _LONG_ARGUMENT or "\n" in value)
    )
