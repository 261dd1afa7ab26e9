"""The artifact trail: the files, commands, errors, decisions and values of each stored message, found without a model.

They are gathered from the store in the background, at the latest when a tool reads them. Gathering continues behind the
message of the newest artifact; an artifact that is gathered twice is stored once.
"""

from __future__ import annotations

from itertools import islice
from threading import Lock
from time import sleep
from typing import TYPE_CHECKING
from uuid import uuid4

from leporello.messages import groups, tool_calls_of
from leporello.redact import redact_messages
from leporello.store.records import Artifact
from leporello.summary.artifacts import collect

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from leporello.store.protocol import Store
    from leporello.store.records import Stored
    from leporello.summary.artifacts import Artifacts

KINDS = ("file", "command", "error", "decision", "value")
_MOST_PER_GROUP = {"file": 40, "error": 10, "decision": 10, "value": 12}
_LISTING = 20  # files named together are a listing, not work
_PAGE = 256


class ArtifactTrail:
    """The trail of one conversation; `catch_up` is thread-safe, and `name` identifies its background work."""

    def __init__(self, store: Callable[[], Store], conversation: str, owner: str) -> None:
        self._store = store
        self._conversation, self._owner = conversation, owner
        self.name: str = uuid4().hex
        self._gathered: int | None = None
        self._one_at_a_time = Lock()

    def catch_up(self) -> None:
        """Gather the artifacts of new messages; a call is left for the next time until its results are there."""
        with self._one_at_a_time:
            store = self._store()
            if self._gathered is None:
                self._gathered = _gathered(store, self._conversation, self._owner)
            beside = self._gather_beside(store, self._gathered + 1)
            rows = store.messages(self._conversation, owner=self._owner, first=self._gathered + 1)
            held: list[Stored] = []
            for row in rows:
                held.append(row)
                if len(held) >= _PAGE:
                    held = self._gather(held, last=False)
            if not self._gather(held, last=True):
                self._gathered = max(self._gathered, beside)

    def _gather_beside(self, store: Store, first: int) -> int:
        """Gather the artifacts of messages that are not on the head's path; returns the newest seq of these.

        A host that was killed may leave such messages.
        """
        info = store.info(self._conversation, owner=self._owner)
        if info is None or not info.superseded:
            return 0
        held: dict[int, list[Stored]] = {}
        rows = store.messages(self._conversation, owner=self._owner, first=first, superseded=True, by_arrival=True)
        for row in rows:
            if row.superseded and not row.replaced:
                held.setdefault(row.branch, []).append(row)
        for branch in held.values():
            self._add(branch[group.start : group.stop] for group in groups([row.message for row in branch]))
        return max((branch[-1].seq for branch in held.values()), default=0)

    def _gather(self, rows: list[Stored], *, last: bool) -> list[Stored]:
        """Gather the artifacts of complete groups, and return the rows of the last one if it is incomplete."""
        done = [rows[group.start : group.stop] for group in groups([row.message for row in rows])]
        left = done.pop() if done and (not last or _is_open(done[-1])) else []
        self._add(done)
        behind = min((row.seq - 1 for row in left), default=None)  # an inserted message is newer than what follows it
        newest = max((row.seq for group in done for row in group), default=0)
        self._gathered = max(self._gathered or 0, newest if behind is None else min(newest, behind))
        return left

    def _add(self, done: Iterable[Sequence[Stored]]) -> None:
        found: list[Artifact] = []
        for group in done:
            found += _of_group(group)
            sleep(0)  # lets a turn that is waiting for the interpreter go first
        if found:
            self._store().add_artifacts(self._conversation, found, owner=self._owner)


def _gathered(store: Store, conversation: str, owner: str) -> int:
    """Return the seq up to which the trail was gathered: that of the newest artifact's group."""
    newest = store.artifacts(conversation, owner=owner, limit=1)
    message = newest[0][1].message if newest else ""
    row = store.get([message], owner=owner, conversation=conversation).get(message) if message else None
    if row is None:
        return 0
    rows = list(islice(store.messages(conversation, owner=owner, first=row.seq), _PAGE))
    if not rows or rows[0].id != row.id:
        return row.seq
    return max(one.seq for one in rows[: groups([one.message for one in rows])[0].stop])


def _is_open(group: Sequence[Stored]) -> bool:
    """Tell whether a group has calls without results."""
    called = {call.id for call in tool_calls_of(group[0].message)}
    return bool(called - {row.message.get("tool_call_id") for row in group[1:]})


def _of_group(group: Sequence[Stored]) -> Iterator[Artifact]:
    """Yield the artifacts of a call and its results, linked to the first message."""
    message, time = group[0].id, group[0].time
    for kind, value, note in _bounded(collect(redact_messages(row.message for row in group))):
        yield Artifact(kind=kind, value=value, note=note, message=message, time=time)


def _bounded(found: Artifacts) -> Iterator[tuple[str, str, str]]:
    worked_on = [trace for trace in found.files if trace.bulk <= _LISTING or trace.actions]
    for file in worked_on[-_MOST_PER_GROUP["file"] :]:
        happened = [f"{what} {count}×" if count > 1 else what for what, count in file.actions if what]
        yield "file", file.text, ", ".join(happened) or "named"
    for command in found.commands:
        yield "command", command.text, ": ".join(part for part in (command.outcome, command.detail) if part)
    for error in found.errors[-_MOST_PER_GROUP["error"] :]:
        yield "error", error.text, ""
    for decision in found.decisions[-_MOST_PER_GROUP["decision"] :]:
        yield "decision", decision.text, f"by the {decision.role}"
    spoken = sorted((value for value in found.values if value.rank), key=lambda value: -value.rank)
    for value in spoken[: _MOST_PER_GROUP["value"]]:
        yield "value", value.text, value.kind
