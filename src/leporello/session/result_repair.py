"""Repairs the result of a third party's engine before it is judged.

Each message of the result is matched with the window; one without a match was written by the engine. Messages of the
window are restored to their text and order; the system prompt, the newest message of the user and unread messages are
put back when they are missing. Messages of the engine in places where the rules do not allow them become one summary
(`leporello.summary.placement`). Then the list is repaired for the dialect (`leporello.messages.repair`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from leporello.messages import (
    call_ids_of,
    copied_as_text,
    fingerprint,
    group_start,
    is_system,
    repair,
    role_of,
    text_of,
    violations,
)
from leporello.messages.codes import DIALECTS, RULES
from leporello.session.calls import key_of_calls
from leporello.summary.placement import place

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leporello.messages import Dialect, Message
    from leporello.session.window import Window

ROLES = frozenset({"user", "assistant", "tool"})  # in which an engine may write

REPEATED = "removed a repeated message"
REORDERED = "restored the order of the messages"
PROMPT_MISSING = "put the system prompt back"
PROMPT_MOVED = "moved the system prompt to the front"
NEWEST_MISSING = "put the newest message of the user back"
UNREAD_MISSING = "put messages that the model has not read back"
SUMMARY_PLACED = "placed a message of the engine as a summary"


@dataclass(frozen=True, kw_only=True)
class RepairedResult:
    """The repaired messages, and the kinds of changes that were made."""

    messages: list[Message]
    changes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class _Entry:
    """A message of the result; `place` is its index in the window, None when the engine wrote it."""

    message: Message
    place: int | None = None
    repeated: bool = False
    """Whether a message of the window says the same, or makes the same call; without a place it is one too many."""

    @property
    def role(self) -> str:
        return role_of(self.message)

    def answers(self, calls: set[str]) -> bool:
        """Tell whether the engine wrote this as the result of one of these calls."""
        return self.place is None and self.role == "tool" and self.message.get("tool_call_id") in calls


def repaired_result(result: Sequence[Message], window: Window, dialect: Dialect, *, room: int) -> RepairedResult:
    """Return an engine's result, a list of dicts, in order and valid; the input is not changed.

    `room` is how many tokens of the window may be put back because the model has not read them.
    """
    work = _ResultRepair(window, matched(result, window))
    work.remove_repeats()
    work.restore_order()
    work.restore_prompt()
    work.restore_newest()
    work.restore_unread(room)
    messages = work.placed()
    return _valid(messages, window, dialect, work.changes)


def matched(result: Sequence[Message], window: Window) -> list[_Entry]:
    """Match each message of a result with the message of the window that it is or was made of, newest first."""
    texts: dict[str, list[int]] = {}
    keys: dict[tuple[str, ...], list[int]] = {}
    for at, message in enumerate(window.messages):
        texts.setdefault(_print(message), []).append(at)
        if key := key_of_calls(message):
            keys.setdefault(key, []).append(at)
    places: list[int | None] = [None] * len(result)
    used: set[int] = set()
    prints = [_print(message) for message in result]
    _pair([texts.get(one, ()) for one in prints], places, used, len(window))
    whole = [at is not None for at in places]
    _pair([keys.get(key_of_calls(message), ()) for message in result], places, used, len(window))
    calls = {call_id for at in used for call_id in call_ids_of(window.messages[at])}
    return [
        _Entry(
            window.messages[at] if is_whole and at is not None else message,
            at,
            repeated=one in texts or not calls.isdisjoint(call_ids_of(message)),
        )
        for message, at, is_whole, one in zip(result, places, whole, prints, strict=True)
    ]


def _print(message: Message) -> str:
    """Return what tells a message as a third party's engine is handed it."""
    return fingerprint(copied_as_text(message))


def _pair(candidates: Sequence[Sequence[int]], places: list[int | None], used: set[int], end: int) -> None:
    """Give every message that has no place yet one of its candidates, from the newest message to the oldest."""
    limit = end
    for index in range(len(places) - 1, -1, -1):
        at = places[index]
        if at is None:
            at = places[index] = _latest(candidates[index], used, limit)
        if at is not None:
            used.add(at)
            limit = at


def _latest(places: Sequence[int], used: set[int], limit: int) -> int | None:
    """Return the latest place that is free, if possible one before `limit`."""
    free = [at for at in places if at not in used]
    return max((at for at in free if at < limit), default=free[-1] if free else None)


class _ResultRepair:
    """The steps of a repair, and the changes that they made."""

    def __init__(self, window: Window, entries: list[_Entry]) -> None:
        self._window = window
        self._entries = entries
        self._systems: list[Message] = []
        self._newest = window.newest_user()
        self._unread = _first_unread(window)
        self.changes: list[str] = []

    def remove_repeats(self) -> None:
        """Remove copies of a message that the result has more often than the window."""
        once = [entry for entry in self._entries if entry.place is not None or not entry.repeated]
        self._replace(once, REPEATED)

    def restore_order(self) -> None:
        """Sort the messages of the window; one of the engine stays before the message that followed it."""
        ordered: list[tuple[int, list[_Entry]]] = []
        waiting: list[_Entry] = []
        for entry in self._entries:
            waiting.append(entry)
            if entry.place is not None:
                ordered.append((entry.place, waiting))
                waiting = []
        ordered.sort(key=lambda group: group[0])
        self._replace([*(entry for _, group in ordered for entry in group), *waiting], REORDERED)

    def restore_prompt(self) -> None:
        """Let the result begin with the system messages that the window begins with; one that was added to stays."""
        here = [entry for entry in self._entries if is_system(entry.message)]
        prompt: list[_Entry] = []
        for at in range(self._window.systems()):
            entry = next((one for one in here if one.place == at or self._carries(one, at)), None)
            if entry is None:
                self._note(PROMPT_MISSING)
                prompt.append(_Entry(self._window.messages[at], at))
            elif entry not in prompt:
                prompt.append(entry)
        found = [entry for entry in prompt if entry in here]
        if self._entries[: len(found)] != found:
            self._note(PROMPT_MOVED)
        self._systems = [entry.message for entry in prompt]
        self._entries = [entry for entry in self._entries if entry not in prompt]

    def restore_newest(self) -> None:
        """Put the newest message of the user back, unless another one in the user's name stands in its place."""
        at = self._newest
        if at is None or any(entry.place == at for entry in self._entries):
            return
        last = self._entries[-1] if self._entries else None
        if last is not None and last.place is None and last.role == "user" and at == len(self._window) - 1:
            return
        self._put_back(at)
        self._note(NEWEST_MISSING)

    def restore_unread(self, room: int) -> None:
        """Put back what the model has not read yet, as it was."""
        messages, prompt = self._window.messages, range(self._window.systems())
        if self._window.tokens_from(self._unread) > room:
            return
        calls = {str(m.get("tool_call_id")) for m in messages[self._unread :] if role_of(m) == "tool"}
        self._replace([entry for entry in self._entries if not entry.answers(calls)], UNREAD_MISSING)
        for at in range(self._unread, len(messages)):
            entry = next((entry for entry in self._entries if entry.place == at), None)
            if at in (self._newest, *prompt) or (entry and entry.message is messages[at]):
                continue
            if entry:
                self._entries.remove(entry)
            self._put_back(at)
            self._note(UNREAD_MISSING)

    def placed(self) -> list[Message]:
        """Return the messages, with what cannot stand where the engine wrote it as one summary."""
        entries = self._entries
        newest, unread = self._index(self._newest), self._first(self._unread)
        misplaced = self._speaking_twice()
        for n, entry in enumerate(entries):
            if entry.place is None and (
                entry.role not in ROLES
                or (entry.role == "user" and n > newest)
                or (entry.role == "assistant" and n > unread)
            ):
                misplaced.add(n)
        text = "\n\n".join(text for n in sorted(misplaced) if (text := text_of(entries[n].message).strip()))
        if misplaced:
            self._note(SUMMARY_PLACED)
        split = min([newest, unread, *misplaced])
        head = [*self._systems, *(entries[n].message for n in range(split) if n not in misplaced)]
        tail = [entries[n].message for n in range(split, len(entries)) if n not in misplaced]
        return _with_summary(head, text, tail) if text else [*head, *tail]

    def _speaking_twice(self) -> set[int]:
        """Return the indexes of assistant messages of the engine next to one of the window.

        A user message of the engine directly before them belongs to them.
        """
        found: set[int] = set()
        for run in _runs(self._entries):
            written = {
                n for n in run if self._entries[n].place is None and not self._entries[n].message.get("tool_calls")
            }
            if written and len(written) < len(run):
                found |= written
                before = run[0] - 1
                if before >= 0 and self._entries[before].place is None and self._entries[before].role == "user":
                    found.add(before)
        return found

    def _index(self, place: int | None) -> int:
        """Return where the message from a place of the window stands now; the end when it does not."""
        found = (n for n, entry in enumerate(self._entries) if entry.place == place is not None)
        return next(found, len(self._entries))

    def _put_back(self, at: int) -> None:
        """Put a message of the window where it stood: before the first one that followed it."""
        self._entries.insert(self._first(at), _Entry(self._window.messages[at], at))

    def _first(self, place: int) -> int:
        """Return where the first message stands that is from this place of the window or a later one."""
        later = (n for n, entry in enumerate(self._entries) if entry.place is not None and entry.place >= place)
        return next(later, len(self._entries))

    def _carries(self, entry: _Entry, at: int) -> bool:
        """Tell whether the engine wrote this message around a system message of the window."""
        shown = self._window.entries[at]
        texts = (text_of(message) for message in (shown.message, *shown.source_messages))
        return entry.place is None and any(text.strip() and text in text_of(entry.message) for text in texts)

    def _replace(self, entries: list[_Entry], change: str) -> None:
        if entries != self._entries:
            self._entries = entries
            self._note(change)

    def _note(self, change: str) -> None:
        if change not in self.changes:
            self.changes.append(change)


def _first_unread(window: Window) -> int:
    """Return the index of the first unread message; an answer with open calls counts as unread with their results."""
    roles = [role_of(message) for message in window.messages]
    answer = max((at for at, role in enumerate(roles) if role == "assistant"), default=-1)
    return answer if "tool" in roles[answer + 1 :] else answer + 1


def _runs(entries: Sequence[_Entry]) -> Iterator[list[int]]:
    """Yield the places of assistant messages that stand side by side."""
    for is_assistant, run in groupby(range(len(entries)), key=lambda n: entries[n].role == "assistant"):
        if is_assistant:
            yield list(run)


def _with_summary(head: list[Message], text: str, tail: list[Message]) -> list[Message]:
    """Put a summary between head and tail; a call stays with its results, and a result without a call is left out."""
    results = next((n for n, message in enumerate(tail) if role_of(message) != "tool"), len(tail))
    if results:
        start = group_start([*head, *tail], len(head))
        head, tail = (head[:start], [*head[start:], *tail]) if start < len(head) else (head, tail[results:])
    return place(head, text, tail)


def _valid(messages: list[Message], window: Window, dialect: Dialect, changes: Sequence[str]) -> RepairedResult:
    """Repair what is against the rules of the session's dialect, or of the other one if the window kept to them."""
    dialects = [one for one in DIALECTS if one == dialect or not violations(window.messages, one)]
    if not any(violations(messages, one) for one in dialects):
        return RepairedResult(messages=messages, changes=tuple(changes))
    repaired = repair(messages)
    wrong = dict.fromkeys(f"repaired: {RULES[change.code].meaning}" for change in repaired.changes)
    return RepairedResult(messages=repaired.messages, changes=(*changes, *wrong))
