"""The engine's side of the store: which conversation is open, what of it is stored, and what no leaf covers yet."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from operator import is_not
from typing import TYPE_CHECKING, Any

from leporello.errors import MessageError
from leporello.lcm.dag import Coverage
from leporello.messages import align, copied, repair
from leporello.messages.values import cleaned
from leporello.store import open_store
from leporello.store.records import Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from leporello.lcm.settings import Settings
    from leporello.messages import Message
    from leporello.store.protocol import Store
    from leporello.store.records import Ingested, Node, Stored, Window

MEMORY = ":memory:"
_LOOK_BACK = 128


@dataclass(frozen=True, kw_only=True)
class Owed:
    """A list that the host handed over while the store could not be used, and what it got: what was made of what."""

    given: list[Message]
    made: list[Message]
    places: list[tuple[int, ...]]


@dataclass(frozen=True, kw_only=True)
class _WindowNodes:
    """The nodes behind a window, and how many messages were not on the path then, if known."""

    version: int
    tops: tuple[str, ...]
    nodes: list[Node]
    superseded: int | None = None

    def stands_in(self, window: Window) -> bool:
        """Tell whether these nodes are still those behind the window."""
        return (self.version, self.tops) == (window.version, tops_of(window))


def tops_of(window: Window) -> tuple[str, ...]:
    """Return the nodes that stand in a window, oldest first."""
    return tuple(item["n"] for item in window.items if "n" in item)


class Keeping:
    """One conversation in a store that is opened when it is first needed."""

    def __init__(self, settings: Settings, address: Store | str | os.PathLike[str] | None) -> None:
        self.address = address
        self.conversation = ""
        self.owner = ""
        self.branch: int | None = None
        """The branch that the host is on; None: the head."""
        self._settings = settings
        self._kept: Store | None = None
        self._unkept: Store | None = None
        self._looked_at = 0
        self._dag: _WindowNodes | None = None
        self._superseded: int | None = None
        self.owed: list[Owed] = []
        """What the store is to learn as soon as it can be used, oldest first."""

    @property
    def store(self) -> Store:
        """The store of the open conversation; one that is not to be kept has a store in memory."""
        if self._settings.ignores(self.conversation):
            self._unkept = self._unkept or open_store(MEMORY)
            return self._unkept
        if self._kept is None:
            given = self.address
            named = given is None or isinstance(given, (str, os.PathLike))
            self._kept = open_store(given or MEMORY) if named else given  # type: ignore[arg-type, assignment]
        return self._kept  # type: ignore[return-value]

    def open(self, conversation: str, owner: str, branch: int | None = None) -> None:
        """Turn to a conversation; nothing is written before its first message."""
        self.conversation, self.owner, self.branch, self._looked_at = conversation, owner, branch, 0
        self._dag = self._superseded = None
        self.owed = []

    def switch_branch(self, branch: int) -> None:
        """Turn to another branch of the conversation."""
        self.branch, self._looked_at = branch, 0
        self._dag = self._superseded = None

    def close(self) -> None:
        """Give back the stores that were opened here; one that was handed over stays open."""
        if self._unkept is not None:
            self._unkept.close()
        if self._kept is not None and self._kept is not self.address:
            self._kept.close()
        self._kept = self._unkept = None

    def end(self) -> None:
        """Mark the end of the conversation, if anything of it is stored."""
        if self.store.info(self.conversation, owner=self.owner) is not None:
            self.store.end(self.conversation, owner=self.owner)

    def take(self, messages: Sequence[Message], *, full: bool = False) -> Ingested:
        """Store what is new in a list.

        A value that cannot be stored as it is, because it is not JSON, is stored as the text it amounts to.
        """
        while self.owed:
            self._note(self.owed[0])
            del self.owed[0]
        return self._taken(messages, full=full)

    def owe(self, given: list[Message], made: list[Message]) -> None:
        """Remember a list that the host gets while the store cannot be used, to be noted later; most are as given."""
        if len(given) != len(made) or any(map(is_not, given, made)):
            self.owed.append(Owed(given=copied(given), made=copied(made), places=align(given, made)))

    def _note(self, owed: Owed) -> None:
        """Store the list as it came, and note what was handed out for it."""
        ingested = self._taken(owed.given, full=True)
        origins = [tuple(i for place in places for i in ingested.origins(place)) for places in owed.places]
        self.handed_out(list(zip(owed.made, origins, strict=True)))

    def _taken(self, messages: Sequence[Message], *, full: bool) -> Ingested:
        try:
            return self._ingested(messages, full=full)
        except MessageError:
            plain = [{str(key): cleaned(value) for key, value in message.items()} for message in messages]
            return self._ingested(plain, full=full)

    def _ingested(self, messages: Sequence[Message], *, full: bool) -> Ingested:
        # A host that names its branch forks it itself: what its list lacks, another process has said.
        settle = full and self.branch is None
        done = self.store.ingest(self.conversation, messages, full=full, settle=settle, **self._here)
        if self.branch is not None:
            self.branch = done.branch
        return done

    @property
    def _here(self) -> dict[str, Any]:
        """The owner and the branch, as the store's methods take them."""
        return {"owner": self.owner, "branch": self.branch}

    def readable(self, messages: list[Any], *, full: bool = False) -> list[Message]:
        """Return the list as it is; one that holds something else than messages, as a repair reads it."""
        return messages if self._are_messages(messages, full=full) else list(repair(messages).messages)

    def _are_messages(self, messages: Sequence[Any], *, full: bool) -> bool:
        """Tell whether all of a list are messages; what was looked at in an earlier turn is not looked at again."""
        start = 0 if full or len(messages) < self._looked_at else max(0, self._looked_at - _LOOK_BACK)
        sound = all(isinstance(messages[index], dict) for index in range(start, len(messages)))
        self._looked_at = len(messages) if sound else 0
        return sound

    def get(self, ids: Iterable[str | None]) -> dict[str, Stored]:
        """Fetch messages by id."""
        return self.store.get([i for i in ids if i is not None], **self._here)

    def window(self) -> Window:
        """Return the window as it was saved last."""
        return self.store.window(self.conversation, **self._here)

    def nodes(self, window: Window) -> tuple[list[Node], list[Node]]:
        """Return the nodes behind a window, which change only together with it, and the prepared ones."""
        if self._dag is None or not self._dag.stands_in(window):
            nodes = self.store.nodes(self.conversation, **self._here)
            self._dag = _WindowNodes(version=window.version, tops=tops_of(window), nodes=nodes)
        return self._dag.nodes, self.store.prepared_nodes(self.conversation, owner=self.owner)

    def outdated(self, nodes: Sequence[Node]) -> set[str]:
        """Return the leaves that cover a message which was replaced since."""
        info = self.store.info(self.conversation, owner=self.owner)
        self._superseded = info.superseded if info else 0
        looked_at = self._dag.superseded if self._dag else None
        if not nodes or self._superseded in (0, looked_at):
            return set()
        coverage = Coverage(nodes)
        first, last = min(node.first_seq for node in nodes), max(node.last_seq for node in nodes)
        rows = self.store.messages(self.conversation, superseded=True, first=first, last=last, **self._here)
        gone = {row.seq for row in rows if row.superseded and row.seq in coverage}
        return {node.id for node in nodes if any(c.first_seq <= seq <= c.last_seq for c in node.covers for seq in gone)}

    def uncovered(self, window: Window, nodes: Sequence[Node], coverage: Coverage) -> list[Stored]:
        """Return the live messages that no leaf covers, in their order.

        Whatever came before the window was saved is covered or in the window, so only that and what is newer is read;
        all of it when leaves were given up.
        """
        kept = self.get(item.get("m") for item in window.items)
        known = [row.seq for row in kept.values() if not row.system] + [node.last_seq for node in nodes]
        whole = not nodes or any(node.id not in coverage.ids for node in nodes if node.covers)
        first = None if whole else max(known, default=0) + 1
        newer = self.store.messages(self.conversation, first=first, **self._here)
        rows = {row.id: row for row in (*(() if whole else kept.values()), *newer)}
        live = [row for row in rows.values() if not (row.system or row.superseded or row.seq in coverage)]
        return sorted(live, key=lambda row: (row.place, row.seq))

    def unfolded(self, window: Window, tops: Sequence[Node]) -> tuple[int, int]:
        """Count the messages that stand behind the nodes of a window, and their tokens; all of them without nodes."""
        if not tops:
            info = self.store.info(self.conversation, owner=self.owner)
            return (info.messages, info.tokens) if info else (0, 0)
        kept = [row for row in self.get(item.get("m") for item in window.items).values() if not row.system]
        last = max(*(row.seq for row in kept), *(node.last_seq for node in tops), 0)
        newer = self.store.messages(self.conversation, first=last + 1, **self._here)
        live = [*(row for row in kept if not row.superseded), *newer]
        return len(live), sum(row.tokens for row in live)

    def spent(self, reason: str, usage: Mapping[str, Any], cost_usd: float | None) -> None:
        """Note in the journal what a model was paid for beside the conversation; the window stays as it is."""
        here = len(self.window().items)
        row = Request(reason=reason, keep=here, added=(), usage=dict(usage), cost_usd=cost_usd)
        self.store.record_request(self.conversation, row, **self._here)

    def handed_out(self, messages: Sequence[tuple[Message, tuple[str, ...]]]) -> None:
        """Note the list that the host gets, each message with the stored ones it stands for."""
        self.store.handed_out(self.conversation, messages, **self._here)

    def save(
        self,
        window: Window,
        request: Request,
        *,
        nodes: Sequence[Node],
        origins: Sequence[tuple[Message, tuple[str, ...]]],
        used: Sequence[str],
    ) -> None:
        """Replace the window, and note the nodes that it uses, at once; then note the list that the host gets."""
        saved = self.store.save_window(self.conversation, window, request, used=used, **self._here)
        self._dag = _WindowNodes(
            version=saved.version,
            tops=tops_of(saved),
            nodes=[replace(node, state="kept") for node in nodes],
            superseded=self._superseded,
        )
        self.handed_out(origins)
