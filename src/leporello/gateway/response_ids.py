"""Stores responses with their answers, and finds them by id.

A response is a message of its conversation. The provider's fields of the response are in a private key of that message,
with the first items of the conversation; hashes of its id and of its items' ids are stored with the message.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import dropwhile, takewhile
from typing import TYPE_CHECKING, Any, Final, cast

from leporello.gateway.history import extended
from leporello.messages.responses import Item, items_of, kind_of, messages_of, settled
from leporello.messages.responses.items import speaker_of
from leporello.messages.types import SYSTEM_ROLES, is_system, role_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.messages import Message
    from leporello.session.answers import ModelAnswer
    from leporello.store import KnownPlace, Store

_NOTE: Final = "_response"
_HIDDEN: Final = "_hidden"
_LEFT_OUT: Final = frozenset({"output", "tools", "instructions"})
"""The fields of a response that are not stored: those of its request, and the output, which is the message."""


def noted(answer: ModelAnswer, body: dict[str, Any]) -> Message:
    """Return an answer's message with the provider's fields of the response, and the first items of the input."""
    opening = _opening(body.get("input"))
    about = {key: value for key, value in answer.envelope.items() if key not in _LEFT_OUT}
    note = {"about": about, "opening": json.dumps(opening, ensure_ascii=False) if opening else ""}
    return cast("Message", {**answer.message, _NOTE: note})  # a long text is kept once, however many answers have it


def hidden(message: Message) -> Message:
    """Return an answer that calls engine tools only, marked as one that the client did not get."""
    return cast("Message", {**message, _HIDDEN: True})


def _opening(given: Any) -> list[Item]:
    """Return the items of the system and the developer that an input begins with."""
    items = given if isinstance(given, list) else []
    return list(takewhile(_is_developers, items))


def _is_developers(item: Item) -> bool:
    return item.get("role") in SYSTEM_ROLES if kind_of(item) == "message" else speaker_of(item) == "developer"


def known_as(answer: ModelAnswer, owner: str) -> list[bytes]:
    """Return what an answer is known by: the id of the response, and those of its items."""
    ids = [id_ for item in items_of([answer.message]) if isinstance(id_ := item.get("id"), str)]
    return [_hash(owner, "response", answer.id), *(_hash(owner, "item", id_) for id_ in ids)] if answer.id else []


def _hash(owner: str, kind: str, id_: str) -> bytes:
    return extended(b"", f"{kind}\0{owner}\0{id_}".encode("utf-8", "surrogatepass"))


@dataclass(frozen=True, kw_only=True)
class KnownResponse:
    """A stored response: its place, its fields and output, and the messages before it."""

    id: str
    place: KnownPlace
    about: dict[str, Any]
    output: list[Item]
    before: list[Message]
    """Without those that the client did not get."""
    opening: list[Item]

    @property
    def input(self) -> list[Item]:
        """The items of its input."""
        return [*self.opening, *items_of(self.before)]

    @property
    def path(self) -> list[Item]:
        """The items before a request that continues it, without the trigger of a compaction."""
        return settled([*self.input, *self.output])

    def body(self) -> dict[str, Any]:
        """Return it as the provider gave it, without the tools and the instructions of its request."""
        return {**self.about, "instructions": None, "tools": [], "output": self.output}


def find_response(store: Store, id_: str, *, owner: str) -> KnownResponse | None:
    """Return a response by its id; None when it is not known, or was deleted."""
    place = _newest(store, _hash(owner, "response", id_), owner)
    if place is None:
        return None
    rows = store.messages(place.conversation, owner=owner, branch=place.branch, newest_first=True)
    known = (row.message for row in dropwhile(lambda row: row.id != place.id, rows))
    path = list(dropwhile(_is_result, known))  # the engine has answered calls of an answer that the client got
    if not path:
        return None
    note: Any = path[0].get(_NOTE) or {}
    return KnownResponse(
        id=id_,
        place=place,
        about=note.get("about") or {"id": id_, "object": "response", "status": "completed"},
        output=items_of(path[:1]),
        before=_without_hidden(path[:0:-1]),
        opening=json.loads(note.get("opening") or "[]"),
    )


def _without_hidden(path: Sequence[Message]) -> list[Message]:
    """Leave out the answers that the client did not get, with the results behind them."""
    shown: list[Message] = []
    is_hidden = False
    for message in path:
        is_hidden = bool(message.get(_HIDDEN)) or (is_hidden and _is_result(message))
        if not is_hidden:
            shown.append(message)
    return shown


def _is_result(message: Message) -> bool:
    return role_of(message) == "tool"


def find_item(store: Store, id_: str, *, owner: str) -> Item | None:
    """Return an item of an earlier response by its id."""
    place = _newest(store, _hash(owner, "item", id_), owner)
    row = store.get([place.id], owner=owner).get(place.id) if place else None
    items = items_of([row.message]) if row else []
    return next((item for item in items if item.get("id") == id_), None)


def _newest(store: Store, hash_: bytes, owner: str) -> KnownPlace | None:
    """Return where an id was given last: local servers number their responses, and begin anew when they start."""
    return max(store.known([hash_], owner=owner), key=lambda place: int(place.id[1:]), default=None)


def forget_response(store: Store, found: KnownResponse, *, owner: str) -> None:
    """Delete the hashes of a response and of its items; its message stays in the conversation."""
    ids = [id_ for item in found.output if isinstance(id_ := item.get("id"), str)]
    for hash_ in [_hash(owner, "response", found.id), *(_hash(owner, "item", id_) for id_ in ids)]:
        for place in store.known([hash_], owner=owner):
            store.forget_known(place, owner=owner)


def spoken_count(items: Sequence[Item]) -> int:
    """Return the number of hashed messages of these items; two answers in a row are one message."""
    return sum(not is_system(message) for message in messages_of(items))
