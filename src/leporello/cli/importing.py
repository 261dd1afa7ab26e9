"""Conversations of other programs into the store: what is new is added, and what is there already is left as it is."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from leporello.messages import leading_systems, role_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from leporello.messages import Message
    from leporello.store import Store, Stored

Status: TypeAlias = Literal["imported", "extended", "branched", "unchanged", "left out"]

TAKEN: Final = "there is a conversation of that name already, and it says something else; name this one with --as"
_BATCH: Final = 500


@dataclass(frozen=True, kw_only=True)
class Whose:
    """Under which name conversations are stored, and for whom: as the user of the command said."""

    name: str | None
    owner: str | None
    keep_owners: bool = False


@dataclass(frozen=True, kw_only=True)
class Imported:
    """What became of one conversation: `messages` were found in the file, `added` of them were stored.

    It is "branched" when it goes on in another way than the stored one, from the last message that both have.
    """

    id: str
    owner: str
    status: Status
    messages: int
    added: int
    format: str = ""
    file: str = ""
    reason: str = ""
    left_out: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Named:
    """The name under which a conversation is stored, and what is noted with it."""

    key: str
    owner: str = ""
    title: str | None = None
    meta: dict[str, Any] | None = None


def add(store: Store, named: Named, messages: Sequence[Message], on_added: Callable[[int], None]) -> tuple[Status, int]:
    """Store the messages that the conversation does not have; returns what that made of it, and how many were new.

    A conversation of that name that says something else from the first message on is left as it is.
    """
    info = store.info(named.key, owner=named.owner)
    if info is None or not (info.messages or info.superseded):
        store.ensure(named.key, owner=named.owner, title=named.title, meta=named.meta)
        _append(store, named, messages, None, on_added)
        return "imported", len(messages) - leading_systems(messages)
    front = leading_systems(messages)
    said = messages[front:]
    branch, common = max(
        ((one.id, _common(store, named, one.id, said)) for one in store.branches(named.key, owner=named.owner)),
        key=lambda found: (len(found[1]), found[0] == info.head),
    )
    if len(common) == len(said):
        return "unchanged", 0
    if not any(row.role == "user" for row in common):
        return "left out", 0
    rest = said[len(common) :]
    is_last = store.newest(named.key, owner=named.owner, branch=branch) == common[-1].id
    if not is_last:
        branch = store.fork(named.key, behind=common[-1].id, owner=named.owner)
    _append(store, named, rest, branch, on_added)
    return "extended" if is_last else "branched", len(rest)


def _common(store: Store, named: Named, branch: int, said: Sequence[Message]) -> list[Stored]:
    """Return the messages that a branch begins with and the list too."""
    common: list[Stored] = []
    rows = store.messages(named.key, owner=named.owner, branch=branch)
    for row, message in zip(rows, said, strict=False):
        if row.message != message:
            break
        common.append(row)
    return common


def _append(
    store: Store, named: Named, messages: Sequence[Message], branch: int | None, on_added: Callable[[int], None]
) -> None:
    for batch in _batches(messages):
        store.append(named.key, batch, owner=named.owner, branch=branch)
        on_added(len(batch))


def _batches(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    """Cut a list before messages that are no results, so that results are stored together with their calls."""
    cuts = [0]
    for at in range(1, len(messages)):
        if at - cuts[-1] >= _BATCH and role_of(messages[at]) != "tool":
            cuts.append(at)
    for first, last in pairwise([*cuts, len(messages)]):
        yield messages[first:last]
