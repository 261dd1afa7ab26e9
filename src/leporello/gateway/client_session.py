"""One branch of a conversation of a client that sends its whole history each time.

It is the same conversation as that of every session (`leporello.session.conversation`); its calls are made in one
thread (`leporello.gateway.worker`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from leporello.errors import StoreError
from leporello.llm.errors import classify
from leporello.messages import fingerprint, last_speaker, leading_systems, role_of, tool_calls_of
from leporello.session import rewriting
from leporello.session.dialects import requests_in
from leporello.session.factory import switched

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leporello.messages import Message
    from leporello.session.answers import Answered
    from leporello.session.factory import Opened
    from leporello.session.window import Entry


@dataclass(frozen=True, kw_only=True)
class Added:
    """Messages that are new, and the hashes that the client's list is known by then.

    `listed` is what stands before them in a list that the client may have changed; None when it has not.
    """

    new: Sequence[Message]
    listed: Sequence[Message] | None = None
    known: Sequence[bytes] = ()


class ClientSession:
    """Takes what is new, says what to send, records what was answered."""

    def __init__(self, opened: Opened, *, with_tools: bool = False) -> None:
        self.with_tools = with_tools
        """Whether the model may use the tools of the engine; the client does not see that it does."""
        self._opened = opened
        self._conversation = opened.conversation
        self._conversation.engine.offers_tools = with_tools
        self._requests = requests_in(opened.conversation.dialect)
        self._conversation.begin()

    @property
    def branch(self) -> int:
        """The branch that it is on."""
        return self._conversation.branch.number or 1

    @property
    def context_length(self) -> int:
        """The model's window in tokens, corrected if the provider named another."""
        return self._conversation.route.context_length

    @property
    def folds(self) -> int:
        """How often the conversation was folded."""
        return self._conversation.accounts.conversation.compactions

    def stand_behind(self, id_: str) -> bool:
        """Be ready to go on behind a message; False when something else was said there meanwhile, on this branch."""
        conversation = self._conversation
        persistence = conversation.persistence
        if persistence.tip != id_:
            if persistence.tip is not None:
                conversation.follow(persistence.load(), "another process went on with the conversation")
            newest = conversation.branch.store.newest(conversation.id, **conversation.branch.here) or ""
            if newest != id_:
                return False
            persistence.tip = id_
        return True

    def follow(self, listed: Sequence[Message]) -> None:
        """Take over what the client changed in the part of its list that is stored."""
        rewriting.follow(self._conversation, listed)

    def set_up(self, model: str, systems: Sequence[Message]) -> None:
        """Go on with this model and this system prompt."""
        if model != self._conversation.route.model:
            route, self._conversation.caching = switched(self._opened, model, None, None, None)
            self._conversation.switch_model(route)
        window = self._conversation.window
        if _spoken(systems) != _spoken(_said(window.entries[: window.systems()])):
            self._conversation.replace_system_messages(systems)
        self._check_stored("the conversation cannot be stored at the moment.", "Nothing was sent; try again.")

    def add(self, added: Added) -> None:
        """Store what is new.

        Raises StoreError when it could not be stored: nothing may be sent then, and the session is to be abandoned.
        """
        new = self._without_answered(added.new[self._heard_systems(added.new) :])
        if added.listed is None:
            self._conversation.add(new, added.known)
        else:
            rewriting.add(self._conversation, added.listed, new, added.known)
        self._check_stored("the conversation cannot be stored at the moment.", "Nothing was sent; try again.")

    def request(self, tools: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
        """Return the folded request; None when the client's own can be sent."""
        self._conversation.request(tools)
        if not self.folds and not self.with_tools:
            return None
        request = self._requests.request(self._conversation)
        if self.with_tools:
            return request
        return {key: value for key, value in request.items() if key != "tools"}  # those of the client stay as they are

    def record(self, answer: Answered, known: Sequence[bytes]) -> bool:
        """Take the model's answer; tells whether the client must see it.

        It need not see one whose calls were all for the engine, which has answered them by now. Raises StoreError when
        it could not be stored: the client must not get it then, and the session is to be abandoned.
        """
        conversation = self._conversation
        owned = conversation.tools.owned
        calls = tool_calls_of(answer.message)
        visible = answer.incomplete or not (calls and all(call.name in owned for call in calls))
        hidden = any(call.name in owned for call in calls)  # what the engine answers stands behind it
        conversation.record(answer, () if hidden or answer.incomplete else known)
        if visible and hidden and conversation.persistence.tip:
            conversation.attempt(self._remember, conversation.persistence.tip, known)
        self._check_stored("the answer cannot be stored at the moment.", "It was not passed on; ask again.")
        return visible

    def take_head(self) -> None:
        """Let the conversation be resumed on this branch."""
        branch = self._conversation.branch
        self._conversation.attempt(partial(branch.store.set_head, branch.conversation, self.branch, owner=branch.owner))

    def refused(
        self, status: int, body: bytes, headers: Mapping[str, str], tools: Sequence[dict[str, Any]]
    ) -> dict[str, Any] | None:
        """Take a refusal of the provider; returns the request to send instead when the input was too long."""
        error = classify(status=status, body=body, headers=headers, provider=self._conversation.route.provider)
        return self.request(tools) if self._conversation.recover(error) else None

    def failed(self, why: str, known: Sequence[bytes] = ()) -> None:
        """Take note that no answer came; the same request is known by these hashes when it comes again."""
        conversation = self._conversation
        conversation.unanswered(why)
        said = next((entry for entry in reversed(conversation.window.entries) if entry.role != "assistant"), None)
        if known and said is not None and said.id is not None:
            conversation.attempt(self._remember, said.id, known)

    def close(self) -> None:
        """End the conversation properly; its next message resumes it."""
        self._conversation.end()
        self._opened.close()

    def abandon(self) -> None:
        """Let go of everything, without storing what is not stored."""
        self._opened.close()

    def _remember(self, id_: str, known: Sequence[bytes]) -> None:
        branch = self._conversation.branch
        branch.store.remember(branch.conversation, id_, known, owner=branch.owner)

    def _without_answered(self, new: Sequence[Message]) -> Sequence[Message]:
        """Leave out results for calls that the engine has answered: a client knows no such tool."""
        messages = self._conversation.window.messages
        results = takewhile(lambda message: role_of(message) == "tool", reversed(messages))
        answered = {message.get("tool_call_id") for message in results}
        return [one for one in new if role_of(one) != "tool" or one.get("tool_call_id") not in answered]

    def _heard_systems(self, new: Sequence[Message]) -> int:
        """Return how many system messages at the front of new ones stand at the end of the window already.

        They have no hash, so those behind the last known message come again when an answer is asked for again.
        """
        window = self._conversation.window
        end = _spoken(_said(window.entries[max(window.systems(), last_speaker(window.messages) + 1) :]))
        here = _spoken(new[: leading_systems(new)])
        same = [one == other for one, other in zip(end, here, strict=False)]
        return same.index(False) if False in same else len(same)

    def _check_stored(self, problem: str, hint: str) -> None:
        if self._conversation.persistence.waiting:
            raise StoreError(problem, hint=hint)


def _said(entries: Sequence[Entry]) -> list[Message]:
    """Return entries as they were said: a compaction may have written its note behind a system message."""
    return [entry.sources[0].message if entry.sources else entry.message for entry in entries]


def _spoken(messages: Sequence[Message]) -> list[str]:
    return [fingerprint(message) for message in messages]
