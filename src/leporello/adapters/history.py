"""Sessions for a framework that keeps the whole history itself and shows it before every request.

The framework's history stays as it is; only what is sent is folded. A history that goes on from what was heard adds its
new messages. One that differs (an answer asked for again, an edited question, a restart) is compared with what is
stored, and goes on there on a branch of its own.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import dropwhile, takewhile
from typing import TYPE_CHECKING, Any

from leporello.messages import fingerprint, is_system, role_of, spoken, text_of, tool_calls_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leporello.messages import Message
    from leporello.session import Session


class HistorySession:
    """Folds what is sent; use it from one thread at a time."""

    def __init__(self, session: Session, *, owner: str = "") -> None:
        self.session: Session = session
        self._owner = owner
        self._heard: list[str] = []
        self.answers: dict[str, str] = {}
        """The answers to calls of the engine's tools, by the id of the call."""

    def request(
        self, history: Sequence[Message], tools: Sequence[dict[str, Any]], system: str = ""
    ) -> list[tuple[Message, int | None]]:
        """Return the messages to send for a history in OpenAI's format, both without system messages in front.

        With each comes its place in the history; None for one that the engine wrote or changed. `system` is what the
        framework puts in front of them; a new conversation begins with it.
        """
        if system and not self.session.window:
            self.session.add({"role": "system", "content": system})
        marks = [fingerprint(message) for message in history]
        if not self._heard or marks[: len(self._heard)] != self._heard:
            self._find_place(history, marks)
        new = [message for message in history[len(self._heard) :] if not self._is_answered(message)]
        if new:
            self.session.add(*new)
        self._heard = marks
        return _with_places(list(dropwhile(is_system, self.session.request(tools)["messages"])), marks)

    def record(self, message: Message, usage: dict[str, Any] | None) -> None:
        """Take the model's answer as the history will hold it; calls of the engine's tools are answered now."""
        answer = {"choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}
        theirs = {call.id for call in self.session.record(answer)}
        self._heard.append(fingerprint(message))
        asked = {call.id for call in tool_calls_of(message)} - theirs
        for one in reversed(self.session.window):
            if role_of(one) == "tool" and one.get("tool_call_id") in asked:
                self.answers[str(one["tool_call_id"])] = text_of(one)
            elif role_of(one) == "assistant":
                break

    def _is_answered(self, message: Message) -> bool:
        return role_of(message) == "tool" and message.get("tool_call_id") in self.answers

    def _find_place(self, history: Sequence[Message], marks: list[str]) -> None:
        """Go on behind the last message that is stored; on a branch of its own, if something else was said there."""
        rows = list(self.session.store.messages(self.session.id, owner=self._owner, branch=self.session.branch))
        pairs = zip(rows, history, strict=False)
        shared = sum(1 for _ in takewhile(lambda pair: spoken(pair[0].message) == spoken(pair[1]), pairs))
        if shared < len(rows):
            before, self.session = self.session, self.session.fork(before=rows[shared].id)
            before.close()
        self._heard = marks[:shared]


class NamedHistories:
    """The conversations of an agent by their names; each is opened when it is first needed."""

    def __init__(self, open_session: Callable[[str], Session]) -> None:
        self._open = open_session
        self._histories: dict[str, HistorySession] = {}

    def __getitem__(self, name: str) -> HistorySession:
        if name not in self._histories:
            self._histories[name] = HistorySession(self._open(name))
        return self._histories[name]

    def close(self) -> None:
        """Close the sessions."""
        while self._histories:
            self._histories.popitem()[1].session.close()


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


def _with_places(sent: Sequence[Message], marks: Sequence[str]) -> list[tuple[Message, int | None]]:
    """Find each message that is sent in the history, from the end: equal ones are more likely the newest."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, mark in enumerate(marks):
        places[mark].append(place)
    found = [places[mark].pop() if places.get(mark := fingerprint(one)) else None for one in reversed(sent)]
    return list(zip(sent, reversed(found), strict=True))
