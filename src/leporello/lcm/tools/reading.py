"""Unfolding: nodes, messages and files as the tools show them, within a budget and never cut silently."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leporello.errors import ToolError
from leporello.lcm.dag import first_words, flat_text
from leporello.lcm.fold import pieces_of
from leporello.redact import redact, redact_value
from leporello.store.records import Cover
from leporello.summary.blocks import moment, span
from leporello.tokens import count_text
from leporello.tokens.estimate import count_tools

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from leporello.config.model import Lcm
    from leporello.lcm.artifacts import Trail
    from leporello.store import Branch, Node, Stored

_STORY = 60
_MOST_CHILDREN = 40
_AROUND = 2
_PER_ENTRY = 30  # what an entry takes beside its text


@dataclass(frozen=True, kw_only=True)
class _Originals:
    """The originals under a node, by what it covers, or a message alone; how many there are."""

    conversation: str
    covers: tuple[Cover, ...]
    messages: int


class Reader:
    """Find nodes and messages within the scope, and show them."""

    def __init__(self, branch: Branch, settings: Lcm, trail: Trail) -> None:
        self._branch = branch
        self._settings = settings
        self._trail = trail

    def describe(self, name: str) -> dict[str, Any]:
        """Describe a node, a message or a file."""
        if name.startswith("file:"):
            return self._file(name.removeprefix("file:"))
        if (node := self.node(name)) is not None:
            return self._node(node)
        if (stored := self.message(name)) is not None:
            return self._message(stored)
        raise ToolError(_unknown(name))

    def expand(self, name: str, max_tokens: int, cursor: str | None) -> dict[str, Any]:
        """Return originals, from the cursor on, as many as fit; the first one in part when it alone is too long."""
        originals = self._originals(name)
        start, offset = _position(cursor)
        shown: list[dict[str, Any]] = []
        left = max_tokens
        for row in self._from(originals, start):
            entry, used, stop = self._entry(row, offset, left)
            if entry is None:
                return _expanded(self.text(name), originals.messages, shown, f"{row.id}:{offset}")
            shown.append(entry)
            left -= used
            if stop is not None:
                return _expanded(self.text(name), originals.messages, shown, f"{row.id}:{stop}")
            offset = 0
        return _expanded(self.text(name), originals.messages, shown, None)

    def node(self, name: str) -> Node | None:
        """Return a node of this conversation, or of the owner when the scope allows it."""
        if not _is_id(name, "n"):
            return None
        node = self._branch.store.node(name, owner=self._branch.owner)
        within = node is None or self._settings.scope == "owner" or self._home(node) == self._branch.conversation
        return node if within else None

    def message(self, name: str) -> Stored | None:
        """Return a message of this conversation, or of the owner when the scope allows it."""
        stored = self._branch.get([name]).get(name) if _is_id(name, "m") else None
        if stored is None or self._settings.scope == "owner" or stored.conversation == self._branch.conversation:
            return stored
        return None

    def home(self, conversation: str) -> dict[str, str]:
        """Return the field that names a conversation: where the scope allows others, every answer has it."""
        return {"conversation": conversation} if self._settings.scope == "owner" else {}

    def branch(self, stored: Stored | None) -> dict[str, int]:
        """Return the field that names the branch of a message that is not on the path of the conversation."""
        beside = stored is not None and stored.superseded and not stored.replaced
        return {"branch": stored.branch} if stored is not None and beside else {}

    def branches(self, ids: Sequence[str]) -> dict[str, dict[str, int]]:
        """Return that field for each of these messages."""
        found = self._branch.get(ids)
        return {id_: self.branch(found.get(id_)) for id_ in ids}

    def leaves(self, messages: Iterable[tuple[str, int | None]]) -> dict[str, str]:
        """Map ids of messages to the leaf over each, looked for on the branch that stands beside it, if any."""
        by_branch: dict[int | None, list[str]] = {}
        for id_, branch in messages:
            by_branch.setdefault(branch or self._branch.number, []).append(id_)
        store, owner = self._branch.store, self._branch.owner
        return {
            id_: leaf
            for branch, ids in by_branch.items()
            for id_, leaf in store.covering(ids, owner=owner, branch=branch).items()
        }

    def text(self, text: str) -> str:
        """Return a text as it may be shown."""
        return redact(text) if self._settings.redact else text

    def _originals(self, name: str) -> _Originals:
        if (stored := self.message(name)) is not None:
            alone = Cover(first_seq=stored.seq, last_seq=stored.seq)
            return _Originals(conversation=stored.conversation, covers=(alone,), messages=1)
        node = self.node(name)
        if node is None:
            raise ToolError(_unknown(name))
        covered = self._branch.store.covered(node.id, owner=self._branch.owner)
        return _Originals(conversation=self._home(node), covers=covered.covers, messages=covered.messages)

    def _from(self, originals: _Originals, start: str) -> Iterator[Stored]:
        """Walk originals from a message on, leaf by leaf, each message once; "" is the first."""
        covers, first = originals.covers, 0
        if start:
            row = self._branch.get([start]).get(start)
            seq = row.seq if row and row.conversation == originals.conversation else 0
            at = next((n for n, cover in enumerate(covers) if cover.first_seq <= seq <= cover.last_seq), None)
            if at is None:
                raise ToolError("this cursor belongs to another answer; leave it out to start again")
            covers, first = covers[at:], seq
        known: set[str] = set()
        for cover in covers:
            for piece in pieces_of(self._branch.store, originals.conversation, self._branch.owner, [cover]):
                if piece.stored.id not in known and (cover is not covers[0] or piece.stored.seq >= first):
                    known.add(piece.stored.id)
                    yield piece.stored

    def _home(self, node: Node) -> str:
        """Return the conversation of a node: that of its first message, or where it is found when that is deleted."""
        if (first := self._first(node)) is not None:
            return first.conversation
        return self._branch.store.conversation_of_node(node.id, owner=self._branch.owner) or ""

    def _first(self, node: Node) -> Stored | None:
        """Return the first message that a node covers; None when it is deleted."""
        begins = str(node.meta.get("begins", ""))
        return self._branch.get([begins]).get(begins)

    def _entry(self, stored: Stored, offset: int, left: int) -> tuple[dict[str, Any] | None, int, int | None]:
        """Return a message as it is shown, what that takes, and where it ends when it is not all of it."""
        head: dict[str, Any] = {"id": stored.id, **self.home(stored.conversation), **self.branch(stored)}
        head |= {"seq": stored.seq, "role": stored.role}
        head["time"] = moment(stored.time)
        whole = redact_value(stored.message) if self._settings.redact else stored.message
        size = count_tools(whole) + _PER_ENTRY
        if not offset and size <= left:
            return {**head, "message": whole}, size, None
        text = self.text(flat_text(stored.message))
        if not text.strip():
            return {**head, "text": "", "of": 0, "note": "this message holds no text"}, _PER_ENTRY, None
        room = left - 2 * _PER_ENTRY
        if room < _PER_ENTRY:
            return None, 0, None
        stop = _fitting(text, offset, room)
        part = text[offset:stop]
        entry = {**head, "text": part, "from": offset, "to": stop, "of": len(text)}
        return entry, count_text(part) + 2 * _PER_ENTRY, stop if stop < len(text) else None

    def _node(self, node: Node) -> dict[str, Any]:
        children = [self._branch.store.node(child, owner=self._branch.owner) for child in node.children]
        return {
            "id": node.id,
            **self.home(self._home(node)),
            **self.branch(self._first(node)),
            "kind": "leaf" if node.covers else "condensed",
            "level": node.level,
            "state": node.state,
            "covers": {"messages": node.messages, "first_seq": node.first_seq, "last_seq": node.last_seq},
            "time": span(node.time_from, node.time_to),
            "tokens": node.tokens,
            "source_tokens": node.source_tokens,
            "made_by": node.made_by,
            "inside": {self.text(what): count for what, count in node.meta.get("counts", {}).items()},
            "children": [
                {"id": child.id, "time": span(child.time_from, child.time_to), "messages": child.messages}
                for child in children[:_MOST_CHILDREN]
                if child is not None
            ],
            "summary": self.text(node.text),
            "next": f"lcm_expand {node.id} returns the originals",
        }

    def _message(self, stored: Stored) -> dict[str, Any]:
        branch = self._branch
        beside = self.branch(stored)
        around = branch.store.neighbours([stored.id], before=_AROUND, after=_AROUND, owner=branch.owner)
        return {
            "id": stored.id,
            **self.home(stored.conversation),
            **beside,
            "kind": "message",
            "seq": stored.seq,
            "role": stored.role,
            "name": self.text(stored.name),
            "tool": self.text(stored.tool),
            "time": moment(stored.time),
            "tokens": stored.tokens,
            "superseded": stored.superseded,
            "node": self.leaves([(stored.id, beside.get("branch") or branch.number)]).get(stored.id),
            "begins": first_words(stored.message, hide=self._settings.redact),
            "around": [
                {"id": row.id, "role": row.role, "begins": first_words(row.message, 80, hide=self._settings.redact)}
                for row in around
                if row.id != stored.id
            ],
            "next": f"lcm_expand {stored.id} returns all of it",
        }

    def _file(self, path: str) -> dict[str, Any]:
        branch = self._branch
        self._trail.catch_up()
        rows = branch.store.artifacts(
            branch.conversation, owner=branch.owner, kind="file", query=path, limit=4 * _STORY
        )
        exact = [found for _, found in rows if found.value == path]
        story = exact or [found for _, found in rows]
        if not story:
            raise ToolError(
                f"nothing is known about {redact(path)!r}; lcm_artifacts lists the files of this conversation"
            )
        branches = self.branches([found.message for found in story])
        nodes = self.leaves((found.message, branches[found.message].get("branch")) for found in story)
        answer: dict[str, Any] = {
            "id": f"file:{self.text(path)}",
            "kind": "file",
            "paths": sorted({self.text(found.value) for found in story}),
            "story": [
                {
                    "time": moment(found.time),
                    "what": self.text(found.note),
                    "message": found.message,
                    **branches[found.message],
                    "node": nodes.get(found.message),
                    **({} if exact else {"path": self.text(found.value)}),
                }
                for found in reversed(story[:_STORY])
            ],
            "complete": len(story) <= _STORY,
            "next": "lcm_expand with a message id returns the originals",
        }
        if len(story) > _STORY:
            answer["older"] = f"older events: lcm_artifacts with kind file and query {self.text(path)}"
        return answer


def _expanded(name: str, messages: int, shown: list[dict[str, Any]], cursor: str | None) -> dict[str, Any]:
    answer: dict[str, Any] = {"id": name, "of": messages, "messages": shown, "complete": cursor is None}
    if cursor is not None:
        answer["cursor"] = cursor
        answer["next"] = "call lcm_expand again with this cursor, or with a larger max_tokens"
    return answer


def _fitting(text: str, start: int, tokens: int) -> int:
    """Return how far a text goes within a budget, at the end of a line where one is near."""
    stop = min(len(text), start + 4 * tokens)
    while stop > start + 1 and (size := count_text(text[start:stop])) > tokens:
        stop = start + max(1, (stop - start) * tokens // (size + 1))
    if stop < len(text) and (line := text.rfind("\n", start + (stop - start) // 2, stop)) > start:
        return line + 1
    return max(stop, start + 1)


def _position(cursor: str | None) -> tuple[str, int]:
    """Return the message that a cursor names, and where to go on in it."""
    if not cursor:
        return "", 0
    name, _, offset = cursor.partition(":")
    if not (_is_id(name, "m") and offset.isdecimal()):
        raise ToolError("this cursor belongs to another answer; leave it out to start again")
    return name, int(offset)


def _is_id(name: str, letter: str) -> bool:
    return name[:1] == letter and name[1:].isascii() and name[1:].isdecimal()


def _unknown(name: str) -> str:
    return (
        f"there is no {redact(name)[:60]!r} here; an id is a node such as n12, a message such as m34, "
        "or for lcm_describe a file such as file:src/app.py. lcm_grep finds ids"
    )
