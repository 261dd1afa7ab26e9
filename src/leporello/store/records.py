"""What a store keeps and returns: messages, branches, nodes, windows, the journal, findings.

Times are seconds since the epoch, from the injected clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypedDict

if TYPE_CHECKING:
    from leporello.messages import Message

ROOT: Final = 1
"""The branch that every conversation begins with."""

FOLD: Final = "fold"
"""The reason of a journal row that is a compaction."""

Sort: TypeAlias = Literal["relevance", "recency"]
"""The order of hits."""

WindowItem = TypedDict(
    "WindowItem",
    {"m": str, "n": str, "t": Any, "role": str, "as": "Message | None", "folded": bool},
    total=False,
)
"""An entry of a window: {"m": message id}, {"n": node id} or {"t": text, "role": role}.

"as" is a message as it is shown, None for one that the item before stands for; "folded" marks one that is not shown.
"""


@dataclass(frozen=True, kw_only=True)
class KnownPlace:
    """A message that a client's history with this hash ends with; `is_tip` when nothing stands behind it."""

    hash: bytes
    conversation: str
    branch: int
    id: str
    is_tip: bool


@dataclass(frozen=True, kw_only=True)
class Revision:
    """A change of what was said: a message in the place of another one (`of`), or behind it, or that one removed."""

    kind: Literal["replace", "insert", "remove"]
    of: str
    message: Message


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A message as it is kept: `id` is short and stable ("m12"), `seq` the order of arrival, `place` the live order."""

    id: str
    conversation: str
    seq: int
    place: float
    message: Message
    role: str
    name: str
    tool: str
    time: float
    tokens: int
    fingerprint: str
    branch: int = 1
    superseded: bool = False
    """Whether it is not on the path that was asked for: replaced, or said on another branch."""
    replaced: bool = False
    """Whether another message took its place on its own branch."""
    system: bool = False


@dataclass(frozen=True, kw_only=True)
class Ingested:
    """What storing a list did.

    `ids` has one entry per message of `messages[start:]`: its id, or None for a derived message. After the full
    reconciliation `start` is 0; else only the end of the list was looked at, whatever its length. `joined` has all ids
    of a message that stands for several, by its index in the list.
    """

    ids: tuple[str | None, ...]
    start: int = 0
    added: tuple[str, ...] = ()
    superseded: tuple[str, ...] = ()
    branch: int = 1
    full: bool = False
    joined: dict[int, tuple[str, ...]] = field(default_factory=dict)

    def origins(self, index: int) -> tuple[str, ...]:
        """Return the ids of the stored messages that a message of the list stands for."""
        if index in self.joined:
            return self.joined[index]
        id_ = self.ids[index - self.start] if index >= self.start else None
        return () if id_ is None else (id_,)


@dataclass(frozen=True, kw_only=True)
class Cover:
    """A run of messages that a leaf covers, by seq; `start` and `stop` are set for a part of one long message."""

    first_seq: int
    last_seq: int
    start: int | None = None
    stop: int | None = None


@dataclass(frozen=True, kw_only=True)
class Node:
    """A node of the summary DAG: a leaf covers messages, a condensed node covers nodes."""

    id: str = ""
    level: int
    text: str
    tokens: int
    source_tokens: int
    made_by: Literal["model", "extract"]
    covers: tuple[Cover, ...] = ()
    children: tuple[str, ...] = ()
    first_seq: int
    last_seq: int
    messages: int
    time_from: float
    time_to: float
    state: Literal["prepared", "kept"] = "prepared"
    """Prepared until a window uses it; which branches show it follows from their windows."""
    meta: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Level:
    """How many nodes a level of the DAG has, and how many of them carry a certain note."""

    level: int
    nodes: int
    noted: int


@dataclass(frozen=True, kw_only=True)
class Covered:
    """What a node and those under it cover, in order, and how many messages that is."""

    covers: tuple[Cover, ...]
    messages: int


@dataclass(frozen=True, kw_only=True)
class StoredWindow:
    """The window of a branch: its version, its items in order, and up to which place something else stands for it."""

    version: int = 0
    items: tuple[WindowItem, ...] = ()
    folded_to: float = field(default=float("-inf"), compare=False)


@dataclass(frozen=True, kw_only=True)
class JournalRow:
    """A row of the journal: one request to the model, or one compaction; `number` and `branch` are set by the store."""

    number: int = 0
    branch: int = ROOT
    time: float = 0.0
    reason: str
    keep: int
    added: tuple[WindowItem, ...]
    usage: dict[str, Any] = field(default_factory=dict)
    cost_usd: float | None = None
    prefix: str = ""
    report: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """Something exact that happened: a file touched, a command run, an error, a decision, a value; and where."""

    kind: str
    value: str
    note: str = ""
    message: str = ""
    time: float = 0.0
    count: int = 1


@dataclass(frozen=True, kw_only=True)
class Job:
    """Work for later; `key` makes equal work one job."""

    id: int
    conversation: str
    owner: str
    kind: str
    key: str
    payload: dict[str, Any]
    attempts: int


@dataclass(frozen=True, kw_only=True)
class SchemaPlan:
    """What it takes to bring the tables of a store to the schema of this version; schema 0 has no tables yet."""

    version: int
    newest: int
    serves: int
    """The oldest schema whose processes may go on with the store when it is up to date."""
    statements: tuple[str, ...] = ()
    copy: str = ""
    """Where the file as it was is kept."""


@dataclass(frozen=True, kw_only=True)
class ConversationInfo:
    """A conversation in a list; `messages` are those on the path of its head, and `tokens` what they weigh.

    `superseded` are all others: replaced, or on other branches only.
    """

    key: str
    owner: str
    messages: int
    tokens: int
    superseded: int
    nodes: int
    branches: int = 1
    head: int = 1
    title: str = ""
    created: float
    updated: float
    ended: float | None
    meta: dict[str, Any]

    @property
    def replaces(self) -> dict[int, int]:
        """Which roots go on in the place of which other branches, because a client had summed those up by itself."""
        noted = self.meta.get("replaces")
        pairs = noted.items() if isinstance(noted, dict) else ()
        return {int(root): branch for root, branch in pairs if root.isdecimal() and isinstance(branch, int)}


@dataclass(frozen=True, kw_only=True)
class BranchInfo:
    """A branch of a conversation: forked from `parent` behind the message `fork`; `messages` are those on its path.

    A root has no parent.
    """

    id: int
    parent: int | None
    fork: str | None
    tip: str | None
    head: bool
    messages: int
    tokens: int
    folds: int
    created: float
    used: float

    @property
    def is_empty(self) -> bool:
        """Whether nothing was said on it yet, as after the first of two undos."""
        return self.tip == self.fork


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A message that a search found, with what ranking needs.

    `other_branch` is its branch when it is not on the path of the head, else 0.
    """

    id: str
    conversation: str
    seq: int
    place: float
    other_branch: int = 0
    role: str
    name: str
    tool: str
    time: float
    score: float
    text: str


@dataclass(frozen=True, kw_only=True)
class Candidates:
    """Messages that a search found; `cut` when it ended before all that match were looked at.

    `full` when it ended because enough were found; equal messages of sibling branches count, but are there only once.
    """

    found: tuple[Candidate, ...] = ()
    cut: bool = False
    full: bool = False


@dataclass(frozen=True, kw_only=True)
class SearchFilter:
    """What a search is limited to; None means any."""

    conversation: str | None = None
    owner: str = ""
    role: str | None = None
    tool: str | None = None
    name: str | None = None
    since: float | None = None
    until: float | None = None
    superseded: bool = False
    without: tuple[str, ...] = ()
    """Ids of messages that do not count."""


@dataclass(frozen=True, kw_only=True)
class Hit:
    """A message that was found; `rank` counts from 1 over all pages, `snippet` is what stands around the find.

    `other_branch` is the branch it was said on when it is not on the path of the head: taken back, or said beside it.
    """

    id: str
    conversation: str
    seq: int
    other_branch: int
    rank: int
    role: str
    name: str
    time: float
    snippet: str
    score: float


@dataclass(frozen=True, kw_only=True)
class SearchResult:
    """A page of hits; `cursor` leads to the next one. Not `complete`: a limit left out hits that no later page has."""

    hits: tuple[Hit, ...] = ()
    complete: bool = True
    cursor: str | None = None


@dataclass(frozen=True, kw_only=True)
class Deletion:
    """What was, or would be, deleted."""

    conversation: str
    owner: str
    messages: int
    first_seq: int
    last_seq: int
    whole: bool


@dataclass(frozen=True, kw_only=True)
class PurgeStatus:
    """Where something is left of what was deleted: in rows (of `messages`), index, pages, log; or nowhere, ""."""

    step: Literal["rows", "index", "pages", "log", ""] = ""
    messages: int = 0

    @property
    def complete(self) -> bool:
        """Tell whether nothing is left."""
        return not self.step


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something that a check found wrong, and where."""

    where: str
    problem: str
