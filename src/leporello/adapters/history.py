"""Conversations for a framework that keeps the whole history itself and shows it before every request.

The framework's history stays as it is; only what is sent is folded. A history that goes on from what was heard adds its
new messages. One that differs (an answer asked for again, an edited question, a restart, another agent under the same
name) is looked for among the branches that are stored. It goes on there, on a branch of its own if something else was
said behind what they share.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import dropwhile
from threading import RLock
from typing import TYPE_CHECKING, Any, Final

from leporello.messages import fingerprint, is_system, role_of, spoken, text_of, tool_calls_of
from leporello.plugins import dispatch

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from leporello.messages import Message
    from leporello.session import Session

_MOST_LINES: Final = 8  # that are kept open beside the one that is used
_MOST_COMPARED: Final = 50  # branches, the ones used last first


@dataclass(frozen=True, kw_only=True)
class _Call:
    """A call of the newest answer: its id in the session, which takes none twice, and whether the engine answered."""

    id: str
    answered: bool


@dataclass(eq=False, kw_only=True)
class _Line:
    """A branch that is open: its session, the fingerprints of what was heard on it, and the newest answer's calls."""

    session: Session
    heard: list[str] = field(default_factory=list)
    calls: dict[str, _Call] = field(default_factory=dict)

    def record(self, message: Message, usage: dict[str, Any] | None) -> None:
        """Take an answer of the model; the engine answers the calls of its tools."""
        answer = {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}
        open_calls = {call.id for call in self.session.record(answer)}
        own = next((one for one in reversed(self.session.window) if role_of(one) == "assistant"), message)
        self.heard.append(fingerprint(message))
        self.calls = {
            theirs.id: _Call(id=ours.id, answered=ours.id not in open_calls)
            for theirs, ours in zip(tool_calls_of(message), tool_calls_of(own), strict=False)
        }

    def add(self, messages: Sequence[Message]) -> None:
        """Take what was said; results of calls that the engine answered are there already."""
        new = [one for one in map(self._taken, messages) if one is not None]
        if new:
            self.session.add(*new)

    def answer(self, call_id: str) -> str | None:
        """Return the result of a call that the window holds."""
        own = self.calls[call_id].id if call_id in self.calls else call_id
        results = (one for one in reversed(self.session.window) if one.get("tool_call_id") == own)
        return next(map(text_of, results), None)

    def _taken(self, message: Message) -> Message | None:
        call = self.calls.get(str(message.get("tool_call_id", "")))
        if call is None:
            return message
        return None if call.answered else {**message, "tool_call_id": call.id}


class HistorySession:
    """Folds what is sent of one conversation; it may be used from several threads, and by several agents in turn."""

    def __init__(self, session: Session) -> None:
        self._given = session
        self._lines = [_Line(session=session)]  # the one used last at the end
        self._waiting: dict[Hashable, _Line] = {}
        self._lock = RLock()

    @property
    def session(self) -> Session:
        """The session that was used last."""
        return self._lines[-1].session

    def request(
        self, history: Sequence[Message], tools: Sequence[dict[str, Any]], system: str = "", *, by: Hashable = None
    ) -> list[tuple[Message, int | None]]:
        """Return the messages to send for a history in OpenAI's format, both without system messages in front.

        With each comes its place in the history; None for one that the engine wrote or changed. `system` is what the
        framework puts in front of them; a new conversation begins with it. `by` names the request where several may
        wait for their answers at the same time.
        """
        with self._lock:
            marks = [fingerprint(message) for message in history]
            line = self._line_of(history, marks)
            if system and not line.session.window:
                line.session.add({"role": "system", "content": system})
            if line in self._waiting.values():
                self._take_unrecorded(line, history)
            line.add(history[len(line.heard) :])
            line.heard = marks
            self._waiting[by] = line
            return _with_places(list(dropwhile(is_system, line.session.request(tools)["messages"])), marks)

    def record(self, message: Message, usage: dict[str, Any] | None, *, by: Hashable = None) -> None:
        """Take the model's answer as the history will hold it; calls of the engine's tools are answered now."""
        with self._lock:
            self._waiting.pop(by, self._lines[-1]).record(message, usage)

    def waits(self, by: Hashable) -> bool:
        """Tell whether a request has no answer yet."""
        return by in self._waiting

    def recover(self, error: BaseException, *, by: Hashable = None) -> bool:
        """Fold after the provider found a request too long; tells whether it is to be sent again."""
        with self._lock:
            return self._waiting.pop(by, self._lines[-1]).session.recover(error)

    def answer(self, call_id: str, name: str, arguments: Any) -> str:
        """Return the engine's answer to a call of one of its tools; one that was not recorded is asked now."""
        with self._lock:
            for line in reversed(self._lines):
                if (answer := line.answer(call_id)) is not None:
                    return answer
            function = {"name": name, "arguments": arguments}
            [call] = tool_calls_of({"tool_calls": [{"id": call_id, "function": function}]})
            return dispatch(self.session.engine, call.name, call.arguments, self.session.window)

    def close(self) -> None:
        """Close the sessions, the given one last: the others use its store."""
        with self._lock, ExitStack() as stack:
            stack.callback(self._given.close)
            for line in self._lines:
                if line.session is not self._given:
                    stack.callback(line.session.close)

    def _line_of(self, history: Sequence[Message], marks: list[str]) -> _Line:
        """Return the line that a history goes on from; it is the one used last from now on."""
        heard = [line for line in self._lines if line.heard and marks[: len(line.heard)] == line.heard]
        line = max(heard, key=lambda one: len(one.heard)) if heard else self._found(history, marks)
        if line is not self._lines[-1]:
            session = line.session
            session.store.set_head(session.id, session.branch, owner=session.owner)
            self._lines = [*(one for one in self._lines if one is not line), line]
            self._close_oldest()
        return line

    def _take_unrecorded(self, line: _Line, history: Sequence[Message]) -> None:
        """Record an answer that only the history shows: one that was streamed past, or cancelled."""
        self._waiting = {by: one for by, one in self._waiting.items() if one is not line}
        following = history[len(line.heard) :]
        if following and role_of(following[0]) == "assistant":
            line.record(following[0], None)

    def _found(self, history: Sequence[Message], marks: list[str]) -> _Line:
        """Return a line on the stored branch that shares most with a history; on a fork if it says more than that."""
        now = self.session
        numbers = [one.id for one in sorted(now.branches(), key=lambda one: one.used, reverse=True)[:_MOST_COMPARED]]
        shared, behind, number = max(
            ((*_shared(now, one, history), one) for one in dict.fromkeys([now.branch, *numbers])),
            key=lambda found: (found[0], not found[1]),
        )
        line = next((one for one in self._lines if one.session.branch == number), None)
        session = line.session if line else now.open_branch(number)
        if behind:
            fork = session.fork(before=behind)
            if line is None:
                session.close()
            return _Line(session=fork, heard=marks[:shared])
        line = line or _Line(session=session)
        line.heard, line.calls = marks[:shared], {}
        return line

    def _close_oldest(self) -> None:
        for line in [one for one in self._lines if one.session is not self._given][:-_MOST_LINES]:
            self._lines.remove(line)
            self._waiting = {by: one for by, one in self._waiting.items() if one is not line}
            line.session.close()


class NamedHistories:
    """The conversations of an agent by their names; each is opened when it is first needed."""

    def __init__(self, open_session: Callable[[str], Session]) -> None:
        self._open = open_session
        self._histories: dict[str, HistorySession] = {}
        self._lock = RLock()

    def __getitem__(self, name: str) -> HistorySession:
        with self._lock:
            if name not in self._histories:
                self._histories[name] = HistorySession(self._open(name))
            return self._histories[name]

    def close(self) -> None:
        """Close the sessions."""
        with self._lock:
            while self._histories:
                self._histories.popitem()[1].close()


def usage_of(prompt: int, completion: int, cached: int = 0, written: int = 0) -> dict[str, Any] | None:
    """Return what an answer used as a session takes it; None where a provider did not tell.

    `prompt` is all that the model read, `cached` and `written` what of it was read from a cache or written to one.
    """
    if not prompt + completion:
        return None
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
    }


def _shared(session: Session, branch: int, history: Sequence[Message]) -> tuple[int, str]:
    """Count the messages that a branch and a history begin with, and return the id of the one behind them there."""
    rows = iter(session.store.messages(session.id, owner=session.owner, branch=branch))
    shared = 0
    for message, row in zip(history, rows, strict=False):
        if spoken(row.message) != spoken(message):
            return shared, row.id
        shared += 1
    return shared, next((row.id for row in rows), "")


def _with_places(sent: Sequence[Message], marks: Sequence[str]) -> list[tuple[Message, int | None]]:
    """Find each message that is sent in the history, from the end: equal ones are more likely the newest."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, mark in enumerate(marks):
        places[mark].append(place)
    found = [places[mark].pop() if places.get(mark := fingerprint(one)) else None for one in reversed(sent)]
    return list(zip(sent, reversed(found), strict=True))
