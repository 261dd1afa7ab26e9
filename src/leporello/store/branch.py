"""One branch of a conversation, as its engine knows it: what can be read of it, and how a window is proposed.

A session is the only writer of its conversation. An engine that works on the store reads the branch and proposes a
window; the session judges it, and commits window, nodes and journal row in one transaction, or drops the proposal.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from leporello.store.records import JournalRow, StoredWindow

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from leporello.store.protocol import Store
    from leporello.store.records import Node, Stored


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A window that an engine made: of which version, with which items, and the nodes behind it.

    `used` are those of the nodes that were only prepared until now.
    """

    window: StoredWindow
    nodes: tuple[Node, ...]
    used: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class _WindowNodes:
    """The nodes behind a window, and how many messages were not on the path when it was committed, if known."""

    version: int
    tops: tuple[str, ...]
    nodes: list[Node]
    superseded: int | None = None

    def stands_in(self, window: StoredWindow) -> bool:
        """Tell whether these nodes are still those behind the window."""
        return (self.version, self.tops) == (window.version, tops_of(window))


def tops_of(window: StoredWindow) -> tuple[str, ...]:
    """Return the nodes that stand in a window, oldest first."""
    return tuple(item["n"] for item in window.items if "n" in item)


class Branch:
    """A branch of a conversation in a store; `number` is None for the head, whichever branch that is.

    `store` may be a function that opens it: it is called when something is first read.
    """

    def __init__(
        self,
        store: Store | Callable[[], Store],
        conversation: str,
        owner: str = "",
        number: int | None = None,
        *,
        parent: int | None = None,
    ) -> None:
        self._store = store
        self.conversation = conversation
        self.owner = owner
        self.parent = parent
        """The branch that it was just forked from, if it was."""
        self.switch(number)
        self.sources: Sequence[tuple[str | None, ...]] = ()
        """The stored messages that each message of the list stands for that is given to `compress()`.

        None is one that could not be stored yet; a message that stands for none was written by an engine or a repair.
        """

    @property
    def store(self) -> Store:
        """The store of the conversation."""
        return self._store() if callable(self._store) else self._store

    def switch(self, number: int | None) -> None:
        """Turn to a branch of the conversation."""
        self.number = number
        self.here: dict[str, Any] = {"owner": self.owner, "branch": number}
        """The owner and the branch, as the store's methods take them."""
        self._nodes: _WindowNodes | None = None
        self._superseded: int | None = None
        self._proposal: Proposal | None = None

    # what can be read

    def get(self, ids: Iterable[str | None]) -> dict[str, Stored]:
        """Fetch messages of the conversation by id."""
        return self.store.get([i for i in ids if i is not None], conversation=self.conversation, **self.here)

    def get_anywhere(self, ids: Iterable[str]) -> dict[str, Stored]:
        """Fetch messages of any conversation of the owner by id."""
        return self.store.get(ids, **self.here)

    def messages(
        self,
        *,
        first: int | None = None,
        last: int | None = None,
        superseded: bool = False,
        system: bool = False,
        newest_first: bool = False,
    ) -> Iterator[Stored]:
        """Read the messages on the path; see `Store.messages`."""
        return self.store.messages(
            self.conversation,
            first=first,
            last=last,
            superseded=superseded,
            system=system,
            newest_first=newest_first,
            **self.here,
        )

    def window(self) -> StoredWindow:
        """Return the window as it was committed last, with what was journalled since."""
        return self.store.window(self.conversation, **self.here)

    def nodes(self, window: StoredWindow) -> list[Node]:
        """Return the nodes behind a window, which change only together with it."""
        if self._nodes is None or not self._nodes.stands_in(window):
            nodes = self.store.nodes(self.conversation, **self.here)
            self._nodes = _WindowNodes(version=window.version, tops=tops_of(window), nodes=nodes)
        return self._nodes.nodes

    def node(self, id_: str) -> Node | None:
        """Return one node of the conversation by its id."""
        return self.store.node(id_, owner=self.owner, conversation=self.conversation)

    def node_anywhere(self, id_: str) -> Node | None:
        """Return one node of any conversation of the owner by its id."""
        return self.store.node(id_, owner=self.owner)

    def prepared_nodes(self) -> list[Node]:
        """Return the nodes that no window has used yet."""
        return self.store.prepared_nodes(self.conversation, owner=self.owner)

    def replaced(self, first: int, last: int) -> Iterator[Stored]:
        """Read those of a range that are not on the path; none when there are no more than at the last commit."""
        info = self.store.info(self.conversation, owner=self.owner)
        self._superseded = info.superseded if info else 0
        known = self._nodes.superseded if self._nodes else None
        if self._superseded not in (0, known):
            yield from (row for row in self.messages(first=first, last=last, superseded=True) if row.superseded)

    # what can be written

    def note_cost(self, reason: str, usage: Mapping[str, Any], cost_usd: float | None) -> None:
        """Note in the journal what a model was paid beside the conversation; the window stays as it is."""
        here = len(self.window().items)
        row = JournalRow(reason=reason, keep=here, added=(), usage=dict(usage), cost_usd=cost_usd)
        self.store.record_request(self.conversation, row, **self.here)

    def propose(self, proposal: Proposal) -> None:
        """Propose a window: the writer of the conversation commits or drops it."""
        self._proposal = proposal

    def take_proposal(self) -> Proposal | None:
        """Return what was proposed since the last time, and forget it."""
        proposal, self._proposal = self._proposal, None
        return proposal

    def commit(self, proposal: Proposal, request: JournalRow) -> None:
        """Write the window, the nodes and the row of the journal at once; for the writer of the conversation.

        Raises `StaleWindowError` when the window was replaced since the proposal was made.
        """
        saved = self.store.save_window(self.conversation, proposal.window, request, used=proposal.used, **self.here)
        self._nodes = _WindowNodes(
            version=saved.version,
            tops=tops_of(saved),
            nodes=[replace(node, state="kept") for node in proposal.nodes],
            superseded=self._superseded,
        )
