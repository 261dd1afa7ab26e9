"""A window as the page shows it: its entries with their tokens and parts, and how two windows differ."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from itertools import islice
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from leporello.messages import role_of, text_of
from leporello.messages.fixed import FIXED_TEXTS
from leporello.session.accounts import REQUEST, apportioned
from leporello.session.resumption import stored_size
from leporello.session.saved_branch import grouped
from leporello.session.window import entry_of
from leporello.store import FOLD, Branch
from leporello.summary.blocks import blocks_text
from leporello.summary.masking import masked_stop
from leporello.summary.placement import is_marked, summary_block
from leporello.tokens import count_message

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leporello.messages import Message
    from leporello.store import ConversationInfo, JournalRow, Store, Stored, WindowItem

Part: TypeAlias = Literal["system", "tools", "summary", "masked", "tail"]
PARTS: Final[tuple[Part, ...]] = ("system", "tools", "summary", "masked", "tail")
MOST_LATER: Final = 400
"""Messages behind the last request that are read for the window as it would be sent now."""


@dataclass(frozen=True, kw_only=True)
class WindowEntry:
    """One message of a window; `ids` are the stored messages it shows, `nodes` the summaries it is made of.

    `rewritten` tells that it is shown otherwise than it was said: masked, shortened, or joined with another.
    """

    index: int
    part: Part
    message: Message
    tokens: int
    ids: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    rewritten: bool = False

    @property
    def role(self) -> str:
        """Who speaks."""
        return role_of(self.message)

    @property
    def is_folded(self) -> bool:
        """Whether it is a summary, and not something else that an engine wrote into the window."""
        return self.part == "summary" and (bool(self.nodes) or is_marked(self.message))


@dataclass(frozen=True, kw_only=True)
class ShownWindow:
    """The entries of a window, what stands beside them, and how much room there is.

    `context_length` is 0 when it is not known. `unread` are messages behind the entries that were too many to show.
    `counted` is the size of the whole request as `Session.usage()` tells it, or 0 where it is the sum of the estimates.
    """

    entries: tuple[WindowEntry, ...] = ()
    tool_tokens: int = 0
    context_length: int = 0
    unread: int = 0
    counted: int = 0

    @property
    def tokens(self) -> int:
        """The tokens of the request: from the provider's last count where there is one, else estimated."""
        return self.counted or self.tool_tokens + sum(entry.tokens for entry in self.entries)

    @property
    def free(self) -> int:
        """The tokens that are left of the model's context length."""
        return max(0, self.context_length - self.tokens)

    def parts(self) -> dict[str, int]:
        """Return the tokens by part."""
        counted: dict[str, int] = dict.fromkeys(PARTS, 0)
        for entry in self.entries:
            counted[entry.part] += entry.tokens
        counted["tools"] = self.tool_tokens
        return dict(zip(PARTS, apportioned(self.tokens, list(counted.values())), strict=True))

    def wire(self) -> list[Message]:
        """Return the messages as they are sent."""
        return [entry_of(entry.message).wire for entry in self.entries]


def window_now(store: Store, info: ConversationInfo, branch: int | None = None) -> ShownWindow:
    """Return the window of a branch as it would be sent now: the last one, and what was said since."""
    branch = branch or info.head
    window = store.window(info.key, owner=info.owner, branch=branch)
    rows = _stored(store, window.items, info.owner)
    last = max((row.place for row in rows.values() if not row.system), default=window.folded_to)
    later: list[Stored] = []
    for row in islice(store.messages(info.key, owner=info.owner, branch=branch, newest_first=True), MOST_LATER + 1):
        if row.place <= max(last, window.folded_to):
            break
        later.append(row)
    unread = 0
    if len(later) > MOST_LATER:
        later = later[:MOST_LATER] if window.items else []
        unread = info.messages - len(later) - len(window.items)
    said: list[WindowItem] = [{"m": row.id} for row in reversed(later)]
    rows |= {row.id: row for row in later}
    request = newest_request(store, info, branch)
    shown = _shown(store, info, [*window.items, *said], rows, request, unread=max(0, unread))
    return shown if shown.unread else replace(shown, counted=_size(store, info, branch))


def _size(store: Store, info: ConversationInfo, branch: int) -> int:
    """Return the size that the chat and `leporello sessions show` tell; 0 before the first request."""
    asked = store.journal(info.key, owner=info.owner, reason=REQUEST, last=1)
    return stored_size(Branch(store, info.key, info.owner, branch)).tokens if asked else 0


def window_at(store: Store, info: ConversationInfo, number: int) -> ShownWindow:
    """Return the window as it was at a row of the journal."""
    items = store.window_at(info.key, number, owner=info.owner)
    row = row_at(store, info, number)
    request = row if row is not None and row.report.get("context_length") else newest_request(store, info, upto=number)
    return _shown(store, info, items, _stored(store, items, info.owner), request)


def row_at(store: Store, info: ConversationInfo, number: int) -> JournalRow | None:
    """Return a row of the journal; None when there is none with this number."""
    rows = store.journal(info.key, owner=info.owner, after=number - 1, upto=number)
    return rows[0] if rows else None


def said_at(
    store: Store, info: ConversationInfo, row: JournalRow | None, window: ShownWindow
) -> tuple[WindowEntry | None, Stored | None]:
    """Return what the user last said before a request, and what the model answered; None for what is not there."""
    if row is None or row.reason != "request":
        return None, None
    asked = next((one for one in reversed(window.entries) if one.role == "user" and one.part != "summary"), None)
    newest = next((one.ids[-1] for one in reversed(window.entries) if one.ids), "")
    tip = store.get([newest], owner=info.owner).get(newest)
    if tip is None:
        return asked, None
    later = store.messages(info.key, owner=info.owner, branch=row.branch, first=tip.seq + 1)
    answer = next((one for one in islice(later, 1) if one.role == "assistant"), None)
    return asked, answer


def last_number(store: Store, info: ConversationInfo) -> int:
    """Return the number of the newest row of the journal, 0 when it is empty."""
    rows = store.journal(info.key, owner=info.owner, last=1)
    return rows[0].number if rows else 0


def newest_request(
    store: Store, info: ConversationInfo, branch: int | None = None, *, upto: int | None = None
) -> JournalRow | None:
    """Return the newest request of a branch, of any when it has none."""
    for on in {branch: 0, None: 0}:
        rows = store.journal(info.key, owner=info.owner, reason="request", last=1, upto=upto, branch=on)
        if rows:
            return rows[0]
    return None


def _stored(store: Store, items: Iterable[WindowItem], owner: str) -> dict[str, Stored]:
    return store.get([item["m"] for item in items if "m" in item], owner=owner)


def _shown(
    store: Store,
    info: ConversationInfo,
    items: Sequence[WindowItem],
    rows: dict[str, Stored],
    request: JournalRow | None,
    *,
    unread: int = 0,
) -> ShownWindow:
    report = request.report if request else {}
    return ShownWindow(
        entries=entries_of(store, info, items, rows),
        tool_tokens=_whole(report.get("tools")),
        context_length=_whole(report.get("context_length")),
        unread=unread,
    )


def entries_of(
    store: Store, info: ConversationInfo, items: Sequence[WindowItem], rows: dict[str, Stored]
) -> tuple[WindowEntry, ...]:
    """Return the entries that the items of a stored window stand for; messages that were deleted since are left out."""
    groups = [group for group in grouped(items) if "m" not in group[0] or group[0]["m"] in rows]
    messages = [_message(store, info, group, rows) for group in groups]
    parts = parts_of_window(groups, messages)
    return tuple(
        WindowEntry(
            index=index,
            part=part,
            message=message,
            tokens=_tokens(group, message, rows),
            ids=tuple(item["m"] for item in group if "m" in item),
            nodes=tuple(item["n"] for item in group if "n" in item),
            rewritten="m" in group[0] and "as" in group[0],
        )
        for index, (group, message, part) in enumerate(zip(groups, messages, parts, strict=True))
    )


def parts_of_window(groups: Sequence[Sequence[WindowItem]], messages: Sequence[Message]) -> list[Part]:
    """Return the part of the window that each message belongs to."""
    systems = 0
    while systems < len(groups) and "m" in groups[systems][0] and role_of(messages[systems]) == "system":
        systems += 1
    written = [
        at
        for at, group in enumerate(groups)
        if at >= systems and "m" not in group[0] and text_of(messages[at]) not in FIXED_TEXTS
    ]
    behind = written[-1] + 1 if written else systems
    stop = masked_stop(messages, behind)
    parts: list[Part] = []
    for at in range(len(groups)):
        if at < systems:
            parts.append("system")
        elif at in written:
            parts.append("summary")
        else:
            parts.append("masked" if behind <= at < stop else "tail")
    return parts


def _message(store: Store, info: ConversationInfo, group: Sequence[WindowItem], rows: dict[str, Stored]) -> Message:
    """Return the message that the items of one entry were sent as."""
    first = group[0]
    shown = first.get("as")
    if shown is not None:
        return shown
    if "m" in first:
        return rows[first["m"]].message
    if "t" in first:
        return {"role": first["role"], "content": first["t"]}
    nodes = [node for item in group if (node := store.node(item["n"], owner=info.owner)) is not None]
    return {"role": first.get("role", "user"), "content": summary_block(blocks_text(nodes, 0), note=True)}


def _tokens(group: Sequence[WindowItem], message: Message, rows: dict[str, Stored]) -> int:
    first = group[0]
    return rows[first["m"]].tokens if "m" in first and "as" not in first else count_message(message)


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


# differences


@dataclass(frozen=True, kw_only=True)
class WindowChange:
    """One thing that is different in a later window, with its tokens before and after."""

    kind: Literal["added", "folded", "cleared", "changed", "summary", "dropped", "moved"]
    entry: WindowEntry
    before: int = 0
    after: int = 0


@dataclass(frozen=True, kw_only=True)
class Difference:
    """How a window differs from an earlier one, and the journal's rows of the folds in between."""

    changes: tuple[WindowChange, ...] = ()
    tokens_before: int = 0
    tokens_after: int = 0
    kept: int = 0
    """How many entries at the front are the same: what a provider's cache still holds."""
    kept_tokens: int = 0
    folds: tuple[JournalRow, ...] = field(default=())

    def of(self, kind: str) -> list[WindowChange]:
        """Return the changes of one kind."""
        return [change for change in self.changes if change.kind == kind]


def difference(before: ShownWindow, after: ShownWindow, folds: Iterable[JournalRow] = ()) -> Difference:
    """Compare two windows entry by entry."""
    old = {_name(entry): entry for entry in before.entries}
    new = {_name(entry): entry for entry in after.entries}
    changes = [_gone(entry) for name, entry in old.items() if name not in new]
    moved = _moved([name for name in old if name in new], [name for name in new if name in old])
    for name, entry in new.items():
        known = old.get(name)
        if known is None:
            new_kind: Literal["summary", "added"] = "summary" if entry.part == "summary" else "added"
            changes.append(WindowChange(kind=new_kind, entry=entry, after=entry.tokens))
        elif known.message != entry.message:
            kind: Literal["cleared", "changed"] = "cleared" if entry.tokens < known.tokens else "changed"
            changes.append(WindowChange(kind=kind, entry=entry, before=known.tokens, after=entry.tokens))
        elif name in moved:
            changes.append(WindowChange(kind="moved", entry=entry, before=known.tokens, after=entry.tokens))
    same = 0
    for one, other in zip(before.entries, after.entries, strict=False):
        if one.message != other.message:
            break
        same += 1
    return Difference(
        changes=tuple(changes),
        tokens_before=before.tokens,
        tokens_after=after.tokens,
        kept=same,
        kept_tokens=sum(entry.tokens for entry in after.entries[:same]),
        folds=tuple(folds),
    )


def folds_between(store: Store, info: ConversationInfo, first: int, last: int) -> list[JournalRow]:
    """Return the folds behind one row of the journal and up to another."""
    return store.journal(info.key, owner=info.owner, reason=FOLD, after=first, upto=last)


def _name(entry: WindowEntry) -> tuple[str, ...]:
    """Name what an entry shows, whatever it is shown as; texts of engines by what they say."""
    if entry.ids:
        return ("m", entry.ids[0])
    return ("n", *entry.nodes) if entry.nodes else ("t", text_of(entry.message))


def _gone(entry: WindowEntry) -> WindowChange:
    return WindowChange(kind="folded" if entry.ids else "dropped", entry=entry, before=entry.tokens)


def _moved(before: Sequence[tuple[str, ...]], after: Sequence[tuple[str, ...]]) -> set[tuple[str, ...]]:
    """Return those that stand in another order than before, as few as explain it."""
    if before == after:
        return set()
    blocks = SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks()
    kept = {name for block in blocks for name in before[block.a : block.a + block.size]}
    return set(after) - kept
