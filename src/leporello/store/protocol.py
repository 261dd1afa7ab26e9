"""What a store can do, whatever database is behind it.

`Store` is everything. It is put together from what its readers need: a host the transcript, an engine that folds into
nodes those, a search its own, the commands that look after a store the maintenance. A function that needs one of them
says so in its signature.

All methods are safe to call from any thread and from several processes. Times are seconds since the epoch, from the
injected clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from leporello.messages import Message
    from leporello.store.records import (
        Artifact,
        BranchInfo,
        Candidates,
        ConversationInfo,
        Covered,
        Deletion,
        Finding,
        Ingested,
        Job,
        JournalRow,
        KnownPlace,
        Level,
        Node,
        PurgeStatus,
        Revision,
        SchemaPlan,
        SearchFilter,
        SearchResult,
        Sort,
        Stored,
        StoredWindow,
        WindowItem,
    )


class TranscriptStore(Protocol):
    """Conversations, their branches and messages, what the model saw of them, and who may write."""

    @property
    def url(self) -> str:
        """Where it is, without secrets."""

    def close(self) -> None:
        """Give back connections."""

    # conversations

    def ensure(
        self, conversation: str, *, owner: str = "", meta: dict[str, Any] | None = None, title: str | None = None
    ) -> ConversationInfo:
        """Open a conversation, creating it when it is new; `title` names it for people."""

    def info(self, conversation: str, *, owner: str = "") -> ConversationInfo | None:
        """Describe a conversation, or return None."""

    def conversations(self, *, owner: str | None = None) -> Iterator[ConversationInfo]:
        """List conversations, the newest first; None: of every owner."""

    def end(self, conversation: str, *, owner: str = "") -> None:
        """Mark a conversation as ended; storing to it again resumes it."""

    # branches

    def branches(self, conversation: str, *, owner: str = "") -> list[BranchInfo]:
        """List the branches of a conversation in the order in which they were made."""

    def fork(
        self,
        conversation: str,
        *,
        before: str | None = None,
        behind: str | None = None,
        owner: str = "",
        branch: int | None = None,
        head: bool = True,
    ) -> int:
        """Make a branch that shares everything before or up to a message with its parent, and return its number.

        None: everything. Nothing is copied. With `head` the conversation is resumed on it from now on.
        """

    def begin_root(self, conversation: str, *, owner: str = "", head: bool = True) -> int:
        """Make a branch that shares nothing with the others, and return its number.

        In a conversation in which nothing was said that is its first branch. With `head` the conversation is resumed on
        it from now on.
        """

    def head(self, conversation: str, *, owner: str = "") -> int:
        """Return the branch on which a conversation is resumed."""

    def set_head(self, conversation: str, branch: int, *, owner: str = "") -> None:
        """Resume the conversation on this branch from now on."""

    def pin(self, conversation: str, id: str, *, owner: str = "", pinned: bool = True) -> None:  # noqa: A002 - its name
        """Let a message survive every fold, or no longer."""

    def pins(self, conversation: str, *, owner: str = "") -> tuple[str, ...]:
        """Return the ids of the pinned messages, oldest first."""

    # messages

    def append(
        self,
        conversation: str,
        messages: Sequence[Message],
        *,
        owner: str = "",
        branch: int | None = None,
        request: JournalRow | None = None,
        prompt: bool = False,
        behind: str | None = None,
        known: Mapping[int, Sequence[bytes]] | None = None,
        attempted: Sequence[str] = (),
    ) -> tuple[str, ...]:
        """Append messages to a branch, for a host that knows what is new; returns their ids.

        `request` is the row of the journal that they answer: it is written together with them, or not at all. With
        `prompt` they are the system prompt from now on; else only system messages that nothing precedes belong to it.
        `known` has the hashes by which a client's history up to a message is recognised, by its index. With `behind`
        the branch must end with that message, else `StaleTipError` is raised. The branch becomes the head when a
        user goes on behind an answer on it. `attempted` are the ids of an earlier attempt that ended with
        `CommitUnknownError`: messages that are there by these ids are not stored again.
        """

    def revise(
        self, conversation: str, revisions: Sequence[Revision], *, owner: str = "", branch: int | None = None
    ) -> tuple[str | None, ...]:
        """Change what was said on a branch, all at once; returns the ids, None for what could not be changed.

        Only messages that the branch does not share with the one that it was forked from can be changed.
        """

    def move(
        self, conversation: str, ids: Sequence[str], *, behind: str, owner: str = "", branch: int | None = None
    ) -> bool:
        """Put messages of a branch behind `behind`, its newest one, in this order.

        False, and nothing is changed, when the branch has another newest message or shares one of these with another.
        """

    def known(self, hashes: Sequence[bytes], *, owner: str = "") -> list[KnownPlace]:
        """Return the places of the first of these hashes that is known; those that nothing was said behind come first.

        Places that were deleted or replaced since are left out.
        """

    def remember(self, conversation: str, id: str, hashes: Sequence[bytes], *, owner: str = "") -> None:  # noqa: A002 - its name
        """Note that a client's history reached a message that is stored already."""

    def forget_known(self, place: KnownPlace, *, owner: str = "") -> bool:
        """Let a hash no longer lead to a place; tells whether it did until now, to one of several who try."""

    def ingest(
        self,
        conversation: str,
        messages: Sequence[Message],
        *,
        owner: str = "",
        branch: int | None = None,
        full: bool = False,
    ) -> Ingested:
        """Store what is new in a host's whole list; `full` forces the full reconciliation.

        With it a list that only lacks the newest messages has taken them back. A list that shares nothing with any
        branch begins a new root, unless `branch` is named.
        """

    def handed_out(
        self,
        conversation: str,
        messages: Sequence[tuple[Message, Sequence[str]]],
        *,
        owner: str = "",
        branch: int | None = None,
    ) -> None:
        """Note a list that an engine hands to the host, each message with the ids of those it stands for.

        One that the engine wrote stands for none. Such messages are never stored, and the next list is read on from
        here.
        """

    def get(
        self, ids: Iterable[str], *, owner: str = "", branch: int | None = None, conversation: str | None = None
    ) -> dict[str, Stored]:
        """Fetch messages by id, of one conversation or of all; unknown ids, and those of others, are left out."""

    def messages(
        self,
        conversation: str,
        *,
        owner: str = "",
        branch: int | None = None,
        first: int | None = None,
        last: int | None = None,
        superseded: bool = False,
        system: bool = False,
        newest_first: bool = False,
        by_arrival: bool = False,
    ) -> Iterator[Stored]:
        """Read the messages on the path of a branch in order, by a range of seq.

        With `superseded` those that are not on the path too, with `system` also the system messages; `by_arrival` in
        the order in which they were stored.
        """

    def newest(self, conversation: str, *, owner: str = "", branch: int | None = None) -> str | None:
        """Return the id of the newest message of a branch, the system prompt left out; None when there is none."""

    def neighbours(
        self, ids: Iterable[str], *, before: int, after: int, owner: str = "", conversation: str | None = None
    ) -> list[Stored]:
        """Return messages with those around each, on the path of the head or else of its own branch; each once."""

    def asking(
        self, conversation: str, tools: Collection[str], *, owner: str = "", branch: int | None = None
    ) -> tuple[str, ...]:
        """Return the ids of a call of these tools that waits for its result, and of what led to it in its turn.

        That is the question, and the calls of these tools since then with their results. Empty when none waits.
        """

    # windows and the journal

    def window(self, conversation: str, *, owner: str = "", branch: int | None = None) -> StoredWindow:
        """Return the current window of a branch."""

    def window_at(self, conversation: str, number: int, *, owner: str = "") -> tuple[WindowItem, ...]:
        """Return the window as it was after the journal row with this number, on the branch of that row."""

    def save_window(
        self,
        conversation: str,
        window: StoredWindow,
        request: JournalRow,
        *,
        owner: str = "",
        branch: int | None = None,
        used: Sequence[str] = (),
    ) -> StoredWindow:
        """Replace the window of a branch, write the journal row and take the nodes from the prepared ones, all at once.

        The row's `keep` and `added` are worked out from the two windows. Raises `StaleWindowError` when the window has
        another version than `window.version`.
        """

    def record_request(
        self, conversation: str, request: JournalRow, *, owner: str = "", branch: int | None = None
    ) -> int:
        """Write a journal row for a request that only added to the window's end; its version stays."""

    def journal(
        self,
        conversation: str,
        *,
        owner: str = "",
        reason: str | None = None,
        last: int | None = None,
        after: int = 0,
        upto: int | None = None,
        branch: int | None = None,
    ) -> list[JournalRow]:
        """Return journal rows, oldest first: the newest `last` of those behind number `after`, up to number `upto`.

        Without a branch, of all of them.
        """

    def spent(self, conversation: str, reasons: Sequence[str], *, owner: str = "") -> tuple[float, int]:
        """Add up the cost of journal rows with these reasons; returns it, and how many rows have none."""

    # leases

    def acquire(
        self, conversation: str, token: str, *, seconds: float, owner: str = "", branch: int | None = None
    ) -> bool:
        """Take or prolong the lease of a branch."""

    def release(self, conversation: str, token: str, *, owner: str = "", branch: int | None = None) -> None:
        """Give the lease back."""


class NodeStore(Protocol):
    """The summaries of an engine that keeps them in a DAG, the artifact trail, and work for later."""

    def add_nodes(
        self, conversation: str, nodes: Sequence[Node], *, owner: str = "", job: Job | None = None
    ) -> list[Node]:
        """Keep prepared nodes; returns them with their ids.

        With the job that asked for them, that is finished at once; when another worker has claimed it since, nothing
        is kept.
        """

    def nodes(self, conversation: str, *, owner: str = "", branch: int | None = None) -> list[Node]:
        """Return the nodes of a branch, those that stand in its window and those under them, oldest first."""

    def prepared_nodes(self, conversation: str, *, owner: str = "") -> list[Node]:
        """Return the nodes that no window has used yet, oldest first."""

    def conversation_of_node(self, id: str, *, owner: str = "") -> str | None:  # noqa: A002 - its name
        """Return the conversation that a node belongs to, or None."""

    def node(self, id: str, *, owner: str = "", conversation: str | None = None) -> Node | None:  # noqa: A002 - its name
        """Return one node, of one conversation or of any."""

    def levels(self, conversation: str, note: str, *, owner: str = "", branch: int | None = None) -> list[Level]:
        """Count the nodes of a branch by level, and those that carry a note in `meta`; the lowest level first."""

    def covered(self, id: str, *, owner: str = "") -> Covered:  # noqa: A002 - its name
        """Return what a node and those under it cover; nothing for one that there is not."""

    def covering(self, ids: Sequence[str], *, owner: str = "", branch: int | None = None) -> dict[str, str]:
        """Map message ids to the id of the leaf that covers each on a branch; those in no leaf are left out."""

    # artifacts

    def add_artifacts(self, conversation: str, artifacts: Sequence[Artifact], *, owner: str = "") -> None:
        """Add to the artifact trail; equal ones of one message are one."""

    def artifacts(
        self,
        conversation: str,
        *,
        owner: str = "",
        kind: str | None = None,
        query: str | None = None,
        limit: int = 50,
        before: int | None = None,
    ) -> list[tuple[int, Artifact]]:
        """Return artifacts with their row numbers, newest first; `before` continues a list."""

    # jobs

    def add_job(
        self, conversation: str, kind: str, key: str, payload: dict[str, Any], *, owner: str = "", delay: float = 0.0
    ) -> None:
        """Put work down for later; a job with the same kind and key is not added twice."""

    def claim_job(
        self,
        worker: str,
        *,
        seconds: float,
        conversation: str | None = None,
        owner: str | None = None,
        kinds: Sequence[str] = (),
    ) -> Job | None:
        """Claim the oldest job of some kinds, or of any, that is due or whose claim expired."""

    def renew_job(self, job: Job, *, seconds: float) -> bool:
        """Prolong a claim; False when the job is done, or another worker has claimed it since."""

    def finish_job(self, job: Job, *, retry_in: float | None = None) -> None:
        """Remove a job, or put it back for later."""


class SearchStore(TranscriptStore, Protocol):
    """A transcript that can be searched."""

    finds_whole_phrases: ClassVar[bool]
    """Whether phrases of very common words are found as quickly as others."""

    def search(
        self,
        text: str,
        *,
        conversation: str | None = None,
        owner: str = "",
        role: str | None = None,
        tool: str | None = None,
        name: str | None = None,
        since: float | None = None,
        until: float | None = None,
        without: Sequence[str] = (),
        limit: int = 10,
        cursor: str | None = None,
        sort: Sort = "relevance",
        regex: bool = False,
        hide_secrets: bool = True,
    ) -> SearchResult:
        """Search the messages of a conversation, or of all that an owner has, and return a page of hits.

        `text` is a query, or with `regex` a regular expression. `role`, `tool` and `name` say whose messages are
        searched, `since` and `until` from when, `without` has the ids of messages that do not count. `cursor` is that
        of the page before. With `hide_secrets` no snippet holds a known secret.
        """

    def candidates(
        self,
        match: str,
        *,
        filter: SearchFilter,  # noqa: A002 - its name
        limit: int,
        newest_first: bool,
        newest: int = 0,
    ) -> Candidates:
        """Return at most `limit` messages that match a prepared query, by score or newest first.

        `newest` is the number of the last message that counts, 0 for no such limit.
        """

    def term_counts(self, terms: Sequence[str], *, newest: int = 0) -> tuple[int, dict[str, int]]:
        """Return the number of the last message in the index, and about in how many messages each term occurs.

        With `newest`, as it was when that message was the last one.
        """


class MaintenanceStore(Protocol):
    """Deletion, export and import, backup and proof."""

    def schema_plan(self) -> SchemaPlan:
        """Say what it takes to bring the tables up to date; nothing is changed."""

    def upgrade(self) -> None:
        """Bring the tables up to date, as the first use of the store does."""

    def delete(
        self,
        conversation: str,
        *,
        owner: str = "",
        first: int | None = None,
        last: int | None = None,
        reason: str = "deleted",
        dry_run: bool = False,
    ) -> Deletion:
        """Delete a conversation, or a range of its messages by seq, and leave a tombstone."""

    def gc(self, *, older_than: float, owner: str | None = None, dry_run: bool = False) -> list[Deletion]:
        """Delete what is older than this many seconds: whole conversations, and the oldest messages of the others."""

    def purge(self, *, seconds: float | None = None) -> PurgeStatus:
        """Purge until nothing is left of what was deleted, or until the time is up; return how far it came."""

    def purge_status(self) -> PurgeStatus:
        """Say what a purge would still have to do."""

    def export(self, conversation: str, *, owner: str = "") -> Iterator[str]:
        """Write a conversation as JSON lines, without their line ends."""

    def import_lines(self, lines: Iterable[str], *, conversation: str | None = None, owner: str | None = None) -> str:
        """Read an exported conversation into a new one, completely or not at all; returns its key."""

    # checks and copies

    def check_chain(self, conversation: str, *, owner: str = "") -> list[Finding]:
        """Prove that a conversation's messages are all there, unchanged and in order, across deletions."""

    def check_index(self, conversation: str | None = None, *, owner: str = "") -> list[Finding]:
        """Return what the index lacks, and what it has too much."""

    def check_file(self) -> list[Finding]:
        """Check the store itself, apart from what it holds."""

    def backup(self, path: str) -> None:
        """Write a consistent copy while in use."""

    def index_backlog(self) -> int:
        """Return how many messages the index still lacks, at most, because the text preparation has changed."""

    def rebuild_index(self) -> None:
        """Make the index anew; others may read and write meanwhile."""


class Store(SearchStore, NodeStore, MaintenanceStore, Protocol):
    """A place where conversations are kept."""
