"""The session of a client that sends its whole history each time, on one branch of its conversation.

It uses `leporello.session.conversation` as `Session` does; all calls on it are made in one thread
(`leporello.session.worker`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from leporello.errors import StoreError
from leporello.gateway.response_ids import hidden
from leporello.llm.errors import classify
from leporello.messages import (
    call_ids_of,
    fingerprint,
    is_system,
    last_speaker,
    leading_systems,
    role_of,
    tool_calls_of,
)
from leporello.messages.types import newest_of
from leporello.session import alignment
from leporello.session.converters import converter_of
from leporello.session.factory import switched
from leporello.store import ROOT

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leporello.messages import Message
    from leporello.session.answers import ModelAnswer
    from leporello.session.factory import OpenedSession
    from leporello.session.window import Entry


@dataclass(frozen=True, kw_only=True)
class Added:
    """New messages, and the hashes of the history that ends with them.

    `listed` are the messages before them in a history that the client has changed; None when it has not. `calls` are
    the ids of the calls in the newest answer before them, as the client has them.
    """

    new: Sequence[Message]
    listed: Sequence[Message] | None = None
    known: Sequence[bytes] = ()
    calls: Sequence[str] = ()


class ClientSession:
    """Adds the new messages, makes the folded request, and records the answer."""

    def __init__(self, opened: OpenedSession, *, with_tools: bool = False) -> None:
        self._opened = opened
        self._conversation = opened.conversation
        self._allows_tools = with_tools
        self.with_tools: bool = False
        """Whether the model may call tools of the engine; the client does not see these calls."""
        self._offer_tools(with_tools)
        self._converter = converter_of(opened.conversation.dialect)
        self._conversation.begin()

    @property
    def branch(self) -> int:
        """The number of the branch."""
        return self._conversation.branch.number or ROOT

    @property
    def context_length(self) -> int:
        """The model's window in tokens, corrected if the provider named another."""
        return self._conversation.route.context_length

    @property
    def folds(self) -> int:
        """How often the conversation was folded, on any of its branches; requests are rebuilt from then on."""
        return self._conversation.accounts.conversation.compactions

    @property
    def tip(self) -> str | None:
        """The id of the message behind which the next one is stored."""
        return self._conversation.persistence.tip

    def stand_behind(self, id_: str) -> bool:
        """Make a message the tip; False when the branch has another one."""
        branch = self._conversation.branch
        if (branch.store.newest(branch.conversation, **branch.here) or "") != id_:
            return False
        self._conversation.persistence.tip = id_
        return True

    def align(self, listed: Sequence[Message]) -> None:
        """Change the window to the client's changed history."""
        alignment.align(self._conversation, listed)

    def drop_notes(self, listed: Sequence[Message]) -> None:
        """Remove the system messages between others that the client's history no longer has."""
        alignment.drop_notes(self._conversation, listed)

    def set_up(self, model: str, systems: Sequence[Message], *, aside: bool = False) -> None:
        """Go on with this model and this system prompt; what is asked aside gets no tools of the engine."""
        self._offer_tools(self._allows_tools and not aside)
        if model != self._conversation.route.model:
            route, self._conversation.caching = switched(self._opened, model, None, None, None)
            self._conversation.switch_model(route)
        window = self._conversation.window
        if _spoken(systems) != _spoken(_said(window.entries[: window.systems()])):
            self._conversation.replace_system_messages(systems)
        self._check_stored("the conversation cannot be stored at the moment.", "Nothing was sent; try again.")

    def _offer_tools(self, offered: bool) -> None:
        engine = self._conversation.engine
        engine.offers_tools = offered
        self.with_tools = offered and bool(engine.merged_tools([])[1])

    def add(self, added: Added) -> None:
        """Store new messages.

        Raises StoreError when that failed: nothing may be sent then, and the session must be abandoned.
        """
        new = self._with_own_ids(added.new[self._repeated_systems(added.new) :], added.calls)
        new = self._without_answered(new)
        if added.listed is None:
            self._conversation.add(new, added.known)
        else:
            alignment.add(self._conversation, added.listed, new, added.known)
        self._check_stored("the conversation cannot be stored at the moment.", "Nothing was sent; try again.")

    def request(self, tools: Sequence[dict[str, Any]], marked: Sequence[Any] = ()) -> dict[str, Any] | None:
        """Return the folded request, marked for the cache if `marked` is; None when the client's own can be sent."""
        self._conversation.request(tools)
        if not self.folds and not self.with_tools:
            window = self._conversation.window
            window.rewritten = len(window)  # nothing of it is new to the provider next time
            return None
        caching, dialect = self._conversation.caching, self._conversation.dialect
        self._conversation.caching = caching.with_marks_of(marked, dialect=dialect)
        conversation, converter = self._conversation, self._converter
        request = conversation.openai_request() if converter is None else converter.request(conversation)
        if self.with_tools:
            return request
        return {key: value for key, value in request.items() if key != "tools"}  # those of the client stay as they are

    def record(self, answer: ModelAnswer, known: Sequence[bytes]) -> bool:
        """Store the model's answer; False if it calls engine tools only, which are answered by now.

        Raises StoreError when it could not be stored: the client must not get it, and the session must be abandoned.
        """
        conversation = self._conversation
        owned = conversation.tools.owned
        calls = tool_calls_of(answer.message)
        visible = answer.incomplete or not (calls and all(call.name in owned for call in calls))
        followed = any(call.name in owned for call in calls)  # what the engine answers stands behind it
        stored = answer if visible else replace(answer, message=hidden(answer.message))
        conversation.record(stored, () if followed or answer.incomplete else known)
        if visible and followed and conversation.persistence.tip:
            conversation.attempt(self._remember, conversation.persistence.tip, known)
        self._check_stored("the answer cannot be stored at the moment.", "It was not passed on; ask again.")
        return visible

    def take_head(self) -> None:
        """Make this branch the head of the conversation."""
        branch = self._conversation.branch
        self._conversation.attempt(partial(branch.store.set_head, branch.conversation, self.branch, owner=branch.owner))

    def refused(
        self,
        status: int,
        body: bytes,
        headers: Mapping[str, str],
        tools: Sequence[dict[str, Any]],
        marked: Sequence[Any] = (),
    ) -> dict[str, Any] | None:
        """Record an error of the provider; returns a shorter request to send when the input was too long."""
        error = classify(status=status, body=body, headers=headers, provider=self._conversation.route.provider)
        return self.request(tools, marked) if self._conversation.recover(error) else None

    def failed(self, why: str, known: Sequence[bytes] = ()) -> None:
        """Record that no answer came, with the hashes by which the same request is recognised when it is sent again."""
        conversation = self._conversation
        conversation.request_failed(why)
        said = next((entry for entry in reversed(conversation.window.entries) if entry.role != "assistant"), None)
        if known and said is not None and said.id is not None:
            conversation.attempt(self._remember, said.id, known)

    def close(self) -> None:
        """Store what is not stored yet, and end the engine's session."""
        self._conversation.end()
        self._opened.close()

    def abandon(self) -> None:
        """Close the session without storing anything."""
        self._opened.close()

    def _remember(self, id_: str, known: Sequence[bytes]) -> None:
        branch = self._conversation.branch
        branch.store.remember(branch.conversation, id_, known, owner=branch.owner)

    def _with_own_ids(self, new: Sequence[Message], calls: Sequence[str]) -> Sequence[Message]:
        """Give results the ids that their calls have in the window: a client may know the calls by others."""
        messages = self._conversation.window.messages
        newest = newest_of(messages, "assistant")
        own = call_ids_of(messages[newest]) if newest >= 0 else []
        if own == list(calls) or not len(own) == len(calls) == len(set(calls)):
            return new
        names = dict(zip(calls, own, strict=True))
        results = list(takewhile(lambda one: role_of(one) == "tool" or is_system(one), new))
        return [*(_with_own_id(one, names) for one in results), *new[len(results) :]]

    def _without_answered(self, new: Sequence[Message]) -> Sequence[Message]:
        """Leave out results of calls that the engine has answered already."""
        messages = self._conversation.window.messages
        results = takewhile(lambda message: role_of(message) == "tool", reversed(messages))
        answered = [message.get("tool_call_id") for message in results]  # a client may send anything as an id
        return [one for one in new if role_of(one) != "tool" or one.get("tool_call_id") not in answered]

    def _repeated_systems(self, new: Sequence[Message]) -> int:
        """Return how many leading system messages of new ones are at the end of the window already.

        They have no hash, so those behind the last known message are new again when a request is repeated.
        """
        window = self._conversation.window
        end = _spoken(_said(window.entries[max(window.systems(), last_speaker(window.messages) + 1) :]))
        here = _spoken(new[: leading_systems(new)])
        same = [one == other for one, other in zip(end, here, strict=False)]
        return same.index(False) if False in same else len(same)

    def _check_stored(self, problem: str, hint: str) -> None:
        if self._conversation.persistence.unstored:
            raise StoreError(problem, hint=hint)


def _with_own_id(message: Message, names: Mapping[str, str]) -> Message:
    call_id: Any = message.get("tool_call_id") or ""  # a client may send anything as an id
    is_known = role_of(message) == "tool" and isinstance(call_id, str) and call_id in names
    return {**message, "tool_call_id": names[call_id]} if is_known else message


def _said(entries: Sequence[Entry]) -> list[Message]:
    """Return the original messages of entries: a compaction may have added its note to a system message."""
    return [entry.sources[0].message if entry.sources else entry.message for entry in entries]


def _spoken(messages: Sequence[Message]) -> list[str]:
    return [fingerprint(message) for message in messages]
