"""Unfolding: nodes, messages and files as the tools show them, within a budget and never cut silently."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from leporello.errors import ToolError
from leporello.lcm.dag import first_words, flat_text
from leporello.lcm.fold import originals_of
from leporello.redact import redact, redact_value
from leporello.store.records import Cover, Covered
from leporello.summary.blocks import moment, span
from leporello.tokens import count_text
from leporello.tokens.estimate import count_tools

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from leporello.config.model import Lcm
    from leporello.lcm.artifacts import ArtifactTrail
    from leporello.store import Branch, Node, Stored

_STORY = 60
_MOST_CHILDREN = 40
_AROUND = 2
_PER_ENTRY = 30  # what an entry takes beside its text
_FOREIGN_CURSOR = "this cursor belongs to another answer; leave it out to start again"


class Reader:
    """Find nodes and messages within the scope, and show them."""

    def __init__(self, branch: Branch, settings: Lcm, trail: ArtifactTrail) -> None:
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
        conversation, originals = self._originals(name)
        start, offset = _position(cursor)
        shown: list[dict[str, Any]] = []
        answer = {"id": self.text(name), "of": originals.messages, "messages": shown, "complete": True}
        left = max_tokens
        for row in self._from(conversation, originals.covers, start):
            entry, used, stop = self._entry(row, offset, left)
            if entry is not None:
                shown.append(entry)
            if stop is not None:
                how = "call lcm_expand again with this cursor, or with a larger max_tokens"
                return answer | {"complete": False, "cursor": f"{row.id}:{stop}", "next": how}
            left, offset = left - used, 0
        return answer

    def node(self, name: str) -> Node | None:
        """Return a node of this conversation, or of the owner when the scope allows it."""
        node = self._branch.node_anywhere(name) if _is_id(name, "n") else None
        return node if node is not None and self._within(self._home(node)) else None

    def message(self, name: str) -> Stored | None:
        """Return a message of this conversation, or of the owner when the scope allows it."""
        stored = self._branch.get_anywhere([name]).get(name) if _is_id(name, "m") else None
        return stored if stored is not None and self._within(stored.conversation) else None

    def _within(self, conversation: str) -> bool:
        return self._settings.scope == "owner" or conversation == self._branch.conversation

    def home(self, conversation: str) -> dict[str, str]:
        """Return the field that names a conversation: where the scope allows others, every answer has it."""
        return {"conversation": conversation} if self._settings.scope == "owner" else {}

    def branch(self, stored: Stored | None) -> dict[str, int]:
        """Return the field that names the branch of a message that is not on the path of the conversation."""
        beside = stored is not None and stored.superseded and not stored.replaced
        return {"branch": stored.branch} if stored is not None and beside else {}

    def branches(self, ids: Sequence[str]) -> dict[str, dict[str, int]]:
        """Return that field for each of these messages."""
        found = self._branch.get_anywhere(ids)
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

    def _originals(self, name: str) -> tuple[str, Covered]:
        """Return what a node covers, or a message alone, and the conversation that it is of."""
        if (stored := self.message(name)) is not None:
            alone = Cover(first_seq=stored.seq, last_seq=stored.seq)
            return stored.conversation, Covered(covers=(alone,), messages=1)
        if (node := self.node(name)) is not None:
            return self._home(node), self._branch.store.covered(node.id, owner=self._branch.owner)
        raise ToolError(_unknown(name))

    def _from(self, conversation: str, covers: Sequence[Cover], start: str) -> Iterator[Stored]:
        """Walk originals from a message on, leaf by leaf, each message once; "" is the first."""
        first = 0
        if start:
            row = self._branch.get_anywhere([start]).get(start)
            first = row.seq if row and row.conversation == conversation else 0
            at = next((n for n, cover in enumerate(covers) if cover.first_seq <= first <= cover.last_seq), None)
            if at is None:
                raise ToolError(_FOREIGN_CURSOR)
            covers = [replace(covers[at], first_seq=first), *covers[at + 1 :]]
        known: set[str] = set()
        for cover in covers:
            for row in originals_of(self._branch.store, conversation, self._branch.owner, cover):
                if row.id not in known:
                    known.add(row.id)
                    yield row

    def _home(self, node: Node) -> str:
        """Return the conversation of a node: that of its first message, or where it is found when that is deleted."""
        if (first := self._first(node)) is not None:
            return first.conversation
        return self._branch.store.conversation_of_node(node.id, owner=self._branch.owner) or ""

    def _first(self, node: Node) -> Stored | None:
        """Return the first message that a node covers; None when it is deleted."""
        begins = str(node.meta.get("begins", ""))
        return self._branch.get_anywhere([begins]).get(begins)

    def _entry(self, stored: Stored, offset: int, left: int) -> tuple[dict[str, Any] | None, int, int | None]:
        """Return a message as it is shown, what that takes, and where it ends when it is not all of it."""
        head: dict[str, Any] = {"id": stored.id, **self.home(stored.conversation), **self.branch(stored)}
        head |= {"seq": stored.seq, "role": stored.role, "time": moment(stored.time)}
        whole = redact_value(stored.message) if self._settings.redact else stored.message
        size = count_tools(whole) + _PER_ENTRY
        if not offset and size <= left:
            return {**head, "message": whole}, size, None
        text = self.text(flat_text(stored.message))
        if not text.strip():
            return {**head, "text": "", "of": 0, "note": "this message holds no text"}, _PER_ENTRY, None
        room = left - 2 * _PER_ENTRY
        if room < _PER_ENTRY:
            return None, 0, offset
        stop = _fitting(text, offset, room)
        part = text[offset:stop]
        entry = {**head, "text": part, "from": offset, "to": stop, "of": len(text)}
        return entry, count_text(part) + 2 * _PER_ENTRY, stop if stop < len(text) else None

    def _node(self, node: Node) -> dict[str, Any]:
        children = [self._branch.node_anywhere(child) for child in node.children[:_MOST_CHILDREN]]
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
                for child in children
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
            "node": self.leaves([(stored.id, beside.get("branch"))]).get(stored.id),
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
        raise ToolError(_FOREIGN_CURSOR)
    return name, int(offset)


def _is_id(name: str, letter: str) -> bool:
    return name[:1] == letter and name[1:].isascii() and name[1:].isdecimal()


def _unknown(name: str) -> str:
    return (
        f"there is no {redact(name)[:60]!r} here; an id is a node such as n12, a message such as m34, "
        "or for lcm_describe a file such as file:src/app.py. lcm_grep finds ids"
    )
