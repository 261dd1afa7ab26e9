"""One conversation of a client that sends its whole history each time.

It is the same conversation as that of every session (`leporello.session.conversation`). All its calls are made in one
thread, because an engine may hold something that belongs to a thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leporello.errors import StoreError
from leporello.llm.errors import classify
from leporello.messages import fingerprint, last_speaker, leading_systems, tool_calls_of
from leporello.session.answers import INCOMPLETE
from leporello.session.dialects import requests_in
from leporello.session.factory import switched

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leporello.messages import Message
    from leporello.session.answers import Answered
    from leporello.session.conversation import Conversation
    from leporello.session.factory import Opened
    from leporello.session.window import Entry


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a client asks: messages that are new, and everything around them as it is now.

    `again`: it did not get the newest answer, and asks for another. A long history is taken in slices: `systems` is
    None in all but the first, `last` is true for the last one, which is answered.
    """

    systems: Sequence[Message] | None
    new: Sequence[Message]
    tools: Sequence[dict[str, Any]]
    model: str
    again: bool = False
    last: bool = True


class Dialogue:
    """One conversation: takes what is new, says what to send, records what was answered."""

    def __init__(self, opened: Opened, *, with_tools: bool = False) -> None:
        self.with_tools = with_tools
        """Whether the model may use the tools of the engine; the client does not see that it does."""
        self._opened = opened
        self._conversation = opened.conversation
        self._conversation.engine.offers_tools = with_tools
        self._requests = requests_in(opened.conversation.dialect)
        self._systems = _spoken(_first_said(opened.conversation))
        self._conversation.begin()

    @property
    def window(self) -> int:
        """The model's window in tokens, corrected if the provider named another."""
        return self._conversation.route.context_length

    @property
    def folds(self) -> int:
        """How often the conversation was folded."""
        return self._conversation.accounts.conversation.compactions

    def take(self, asked: Asked) -> dict[str, Any] | None:
        """Store what is new and return the folded request; None when the client's own can be sent, or more is to come.

        Raises StoreError when it could not be stored: nothing may be sent then, and the dialogue is to be abandoned.
        """
        self._switch(asked.model)
        if asked.again or self.dangles:
            self._conversation.retract_answer()
        if asked.systems is not None:
            self._preface(asked.systems)
        self._conversation.add(asked.new[self._heard_systems(asked.new) :])
        self._check_stored("the conversation cannot be stored at the moment.", "Nothing was sent; try again.")
        return self._request(asked.tools) if asked.last else None

    def record(self, answer: Answered) -> int:
        """Take the model's answer; returns how many messages the client does not see, 0 when it must see this one.

        That is an answer whose calls were all for the engine, which has answered them by now. Raises StoreError when
        it could not be stored: the client must not get it then, and the dialogue is to be abandoned.
        """
        self._conversation.record(answer)
        self._check_stored("the answer cannot be stored at the moment.", "It was not passed on; ask again.")
        calls = len(tool_calls_of(answer.message))
        inner = calls and not answer.incomplete and not self._conversation.open_calls() and not self._conversation.done
        return 1 + calls if inner else 0

    def go_on(self, tools: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
        """Return the next request of a turn in which the engine has answered."""
        return self._request(tools)

    def refused(
        self, status: int, body: bytes, headers: Mapping[str, str], tools: Sequence[dict[str, Any]]
    ) -> dict[str, Any] | None:
        """Take a refusal of the provider; returns the request to send instead when the input was too long."""
        error = classify(status=status, body=body, headers=headers, provider=self._conversation.route.provider)
        return self._request(tools) if self._conversation.recover(error) else None

    def failed(self, why: str) -> None:
        """Take note that no answer came."""
        self._conversation.unanswered(why)

    def close(self) -> None:
        """End the conversation properly; its next message resumes it."""
        self._conversation.end()
        self._opened.close()

    def abandon(self) -> None:
        """Let go of everything, without storing what is not stored."""
        self._opened.close()

    @property
    def dangles(self) -> bool:
        """Whether the newest message is an answer that broke off: the client may have seen all of it, some or none."""
        entries = self._conversation.window.entries
        return bool(entries) and bool(entries[-1].message.get(INCOMPLETE))

    def _request(self, tools: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
        self._conversation.request(tools)
        if not self.folds and not self.with_tools:
            return None
        request = self._requests.request(self._conversation)
        if self.with_tools:
            return request
        return {key: value for key, value in request.items() if key != "tools"}  # those of the client stay as they are

    def _preface(self, systems: Sequence[Message]) -> None:
        spoken = _spoken(systems)
        if spoken != self._systems:
            self._conversation.replace_system_messages(systems)
            self._systems = spoken

    def _heard_systems(self, new: Sequence[Message]) -> int:
        """Return how many system messages at the front of new ones stand at the end of the window already.

        They carry no mark, so those behind the last known message come again when an answer is asked for again.
        """
        window = self._conversation.window
        end = _spoken(_said(window.entries[max(window.systems(), last_speaker(window.messages) + 1) :]))
        here = _spoken(new[: leading_systems(new)])
        same = [one == other for one, other in zip(end, here, strict=False)]
        return same.index(False) if False in same else len(same)

    def _switch(self, model: str) -> None:
        if model == self._conversation.route.model:
            return
        route, self._conversation.caching = switched(self._opened, model, None, None, None)
        self._conversation.switch_model(route)

    def _check_stored(self, problem: str, hint: str) -> None:
        if self._conversation.persistence.waiting:
            raise StoreError(problem, hint=hint)


def _first_said(conversation: Conversation) -> list[Message]:
    """Return the system messages as they were said: a compaction may have written its note behind one."""
    return _said(conversation.window.entries[: conversation.window.systems()])


def _said(entries: Sequence[Entry]) -> list[Message]:
    return [entry.sources[0].message if entry.sources else entry.message for entry in entries]


def _spoken(messages: Sequence[Message]) -> list[str]:
    return [fingerprint(message) for message in messages]
