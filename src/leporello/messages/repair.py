"""Make any list of messages valid, visibly: every change is named.

What is whole stays the same object. User messages are never merged or moved, so that the newest one stays byte for
byte wherever the rules allow it: between two of them stands a fixed line of the assistant. Two assistant messages side
by side become one, their parts in order. That is how Anthropic reads them anyway, signed thinking blocks stay as they
were, and no message has to be put into the user's mouth. Only a summary is not joined to calls or thinking blocks: it
moves in front of the user message before it. A system message stays where it was said; only results that it parts from
their calls move in front of it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from leporello.messages import codes
from leporello.messages.fixed import BEFORE_SUMMARY, FIRST_USER, NO_REPLY, STUB_RESULT, SUMMARY_MARK
from leporello.messages.merge import answer_parts, merged
from leporello.messages.message_repair import repaired_message
from leporello.messages.rules import all_violations, is_thinking
from leporello.messages.types import Message, is_system, leading_systems, role_of, text_of, tool_result


@dataclass(frozen=True, kw_only=True)
class Change:
    """One repair: the place in the list that came in, the code of what was wrong there, and what was done."""

    index: int
    code: str
    action: str


@dataclass(frozen=True, kw_only=True)
class Repaired:
    """A valid list, and what had to be changed for that."""

    messages: list[Message]
    changes: tuple[Change, ...]


@dataclass(kw_only=True)
class _Slot:
    """A call that waits for its result: the id it came with, and the one it has now."""

    came_as: str
    id: str
    answered: bool = False


@dataclass(kw_only=True)
class _Turn:
    """A user, assistant or system message, and for an assistant's its calls and their results."""

    index: int
    message: Message
    slots: list[_Slot] = field(default_factory=list)
    results: list[Message] = field(default_factory=list)

    def take(self, slot: _Slot, result: Message) -> None:
        slot.answered = True
        self.results.append(result if result.get("tool_call_id") == slot.id else {**result, "tool_call_id": slot.id})


def repair(messages: list[Any]) -> Repaired:
    """Return the list made valid for both dialects; a valid list comes back equal, with the same objects.

    The input is not changed. An empty list stays empty; any other comes out valid, even if nothing but a fixed first
    line is left of it.
    """
    if not isinstance(messages, (list, tuple)):
        raise TypeError(f"a conversation is a list of messages, not {type(messages).__name__}")
    messages = list(messages)
    broken = {violation.index for violation in all_violations(messages)} if messages else set()
    if not broken:
        return Repaired(messages=messages, changes=())
    changes: list[Change] = []
    whole = _repaired_messages(messages, broken, changes)
    turns = _Pairing(changes).turns(whole)
    first = leading_systems([turn.message for turn in turns])
    turns = [*turns[:first], *_taking_turns(turns[first:], len(messages), changes)]
    repaired = [message for turn in turns for message in _flat(turn, changes)]
    return Repaired(messages=repaired, changes=tuple(sorted(changes, key=lambda change: change.index)))


def _repaired_messages(messages: list[Any], broken: set[int], changes: list[Change]) -> list[tuple[int, Message]]:
    """Return the messages that hold anything, each whole by itself, with the places they came from."""
    whole = []
    for index, message in enumerate(messages):

        def note(code: str, action: str, index: int = index) -> None:
            changes.append(Change(index=index, code=code, action=action))

        repaired = repaired_message(message, note) if index in broken else message
        if repaired is not None:
            whole.append((index, repaired))
    return whole


class _Pairing:
    """Bring every result to its call, and give every call an id of its own."""

    def __init__(self, changes: list[Change]) -> None:
        self.changes = changes
        self.taken: set[str] = set()
        self.reserved: set[str] = set()
        self.copies: dict[str, int] = {}
        self.current: _Turn | None = None
        self.open: dict[str, list[_Slot]] = {}  # the current turn's calls, by the id they came with
        self.parted = False  # whether a system message stands behind the current turn
        self.nameless: list[tuple[int, Message]] = []  # results without an id behind them
        self.waiting: dict[str, list[tuple[_Turn, _Slot]]] = {}  # calls without a result so far
        self.answered: set[str] = set()

    def turns(self, messages: list[tuple[int, Message]]) -> list[_Turn]:
        """Return the turns of a conversation; a system message is one by itself and ends no run of results."""
        self.reserved = {call["id"] for _, message in messages for call in message.get("tool_calls") or ()}
        turns = []
        for index, message in messages:
            if role_of(message) == "tool":
                self._result(index, message)
                continue
            if is_system(message):
                self.parted = True
                turns.append(_Turn(index=index, message=message))
                continue
            self._close()
            self.current = self._turn(index, message)
            turns.append(self.current)
        self._close()
        return turns

    def _turn(self, index: int, message: Message) -> _Turn:
        calls = message.get("tool_calls") or []
        slots = [_Slot(came_as=call["id"], id=self._own_id(index, call["id"])) for call in calls]
        if any(slot.id != slot.came_as for slot in slots):
            renamed = [{**call, "id": slot.id} for call, slot in zip(calls, slots, strict=True)]
            message = {**message, "tool_calls": renamed}
        for slot in reversed(slots):
            self.open.setdefault(slot.came_as, []).append(slot)
        return _Turn(index=index, message=message, slots=slots)

    def _own_id(self, index: int, call_id: str) -> str:
        """Return the call's id, or a new one if it has none or an earlier call has the same."""
        if call_id and call_id not in self.taken:
            self.taken.add(call_id)
            return call_id
        stem = call_id or "call"
        number = self.copies.get(stem, 1)
        own = stem
        while own in self.taken or own in self.reserved or own == "call":
            number += 1
            own = f"{stem}_{number}"
        self.copies[stem] = number
        self.taken.add(own)
        code = codes.CALL_ID_DUPLICATE if call_id else codes.CALL_ID_MISSING
        self._change(index, code, f"gave the call the id {own}")
        return own

    def _result(self, index: int, message: Message) -> None:
        call_id = message.get("tool_call_id")
        if not isinstance(call_id, str) or not call_id:
            self.nameless.append((index, message))
        elif self.current and self.open.get(call_id):
            self.current.take(self.open[call_id].pop(), message)
            self.answered.add(call_id)
            if self.parted:
                self._change(index, codes.RESULT_LATE, "moved the result to its call")
        elif self.waiting.get(call_id):
            turn, slot = self.waiting[call_id].pop()
            turn.take(slot, message)
            self.answered.add(call_id)
            self._change(index, codes.RESULT_LATE, "moved the result to its call")
        elif call_id in self.answered:
            self._change(index, codes.RESULT_DUPLICATE, "removed a second result")
        else:
            self._change(index, codes.RESULT_ORPHAN, "removed a result without a call")

    def _close(self) -> None:
        """End the run of results behind a call: those without an id answer what is still open, in order."""
        turn = self.current or _Turn(index=-1, message={})
        unanswered = deque(slot for slot in turn.slots if not slot.answered)
        for index, message in self.nameless:
            if unanswered:
                slot = unanswered.popleft()
                turn.take(slot, message)
                self.answered.add(slot.came_as)
                self._change(index, codes.RESULT_ID_MISSING, f"taken as the result of {slot.id}")
            else:
                self._change(index, codes.RESULT_ID_MISSING, "removed a result without a call")
        for slot in unanswered:
            self.waiting.setdefault(slot.came_as, []).append((turn, slot))
        self.nameless, self.open, self.current, self.parted = [], {}, None, False

    def _change(self, index: int, code: str, action: str) -> None:
        self.changes.append(Change(index=index, code=code, action=action))


def _taking_turns(turns: list[_Turn], end: int, changes: list[Change]) -> list[_Turn]:
    """Let the user begin, and user and assistant alternate."""
    if not turns:
        changes.append(Change(index=end, code=codes.NO_USER, action="added a first line of the user"))
        return [_line("user", FIRST_USER, end)]
    result: list[_Turn] = []
    for turn in _joined(_summaries_apart(turns, changes), changes):
        if not result and turn.message["role"] != "user":
            changes.append(Change(index=turn.index, code=codes.FIRST_NOT_USER, action="added a first line of the user"))
            result.append(_line("user", FIRST_USER, turn.index))
        elif turn.message["role"] == _spoke_last(result) == "user":
            action = "added a line of the assistant between two user messages"
            changes.append(Change(index=turn.index, code=codes.REPEATED_ROLE, action=action))
            result.append(_line("assistant", NO_REPLY, turn.index))
        result.append(turn)
    return result


def _spoke_last(turns: list[_Turn]) -> str:
    """Return who spoke last, "" when there is no message yet."""
    return next((turn.message["role"] for turn in reversed(turns) if not is_system(turn.message)), "")


def _line(role: str, text: str, index: int) -> _Turn:
    return _Turn(index=index, message={"role": role, "content": text})


def _summaries_apart(turns: list[_Turn], changes: list[Change]) -> list[_Turn]:
    """Move a summary that stands before calls or thinking blocks in front of the user message before it."""
    apart: list[_Turn] = []
    for index, turn in enumerate(turns):
        if not (_is_summary(turn) and _stands_before_signed(turns, index)):
            apart.append(turn)
            continue
        changes.append(Change(index=turn.index, code=codes.REPEATED_ROLE, action="moved before the user message"))
        place = max((at for at, earlier in enumerate(apart) if earlier.message["role"] == "user"), default=None)
        if place is None:
            apart = [_line("user", BEFORE_SUMMARY, turn.index), turn, _line("user", FIRST_USER, turn.index), *apart]
        else:
            led_in = [_line("user", BEFORE_SUMMARY, turn.index)] if place else []
            apart[place:place] = [*led_in, turn]
    return apart


def _is_summary(turn: _Turn) -> bool:
    return turn.message["role"] == "assistant" and not turn.slots and text_of(turn.message).startswith(SUMMARY_MARK)


def _stands_before_signed(turns: list[_Turn], index: int) -> bool:
    following = next((later for later in islice(turns, index + 1, None) if not _is_summary(later)), None)
    return following is not None and _is_signed(following)


def _is_signed(turn: _Turn) -> bool:
    """Tell whether providers sign or order what this assistant message holds: thinking blocks and calls."""
    if turn.message["role"] != "assistant":
        return False
    return bool(turn.slots) or any(is_thinking(part) for part in answer_parts(turn.message))


def _joined(turns: list[_Turn], changes: list[Change]) -> list[_Turn]:
    """Make one turn of assistant messages that stand side by side; one that calls tools is the last of them."""
    runs: list[list[_Turn]] = []
    for turn in turns:
        last = runs[-1][-1] if runs else None
        if last and last.message["role"] == turn.message["role"] == "assistant" and not last.slots:
            changes.append(Change(index=turn.index, code=codes.REPEATED_ROLE, action="joined to the message before"))
            runs[-1].append(turn)
        else:
            runs.append([turn])
    return [_one(run) for run in runs]


def _one(run: list[_Turn]) -> _Turn:
    if len(run) == 1:
        return run[0]
    message = merged([turn.message for turn in run])
    return _Turn(index=run[0].index, message=message, slots=run[-1].slots, results=run[-1].results)


def _flat(turn: _Turn, changes: list[Change]) -> list[Message]:
    stubs = [tool_result(slot.id, STUB_RESULT) for slot in turn.slots if not slot.answered]
    for stub in stubs:
        action = f"added a stub for the result of {stub['tool_call_id']}"
        changes.append(Change(index=turn.index, code=codes.RESULT_MISSING, action=action))
    return [turn.message, *turn.results, *stubs]
