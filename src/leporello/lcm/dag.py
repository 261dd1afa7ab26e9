"""The summary DAG as data: how messages are packed into leaves, what a node covers, which nodes are at the top.

A leaf covers runs of messages by `seq`, and parts of long ones by characters of their text. A condensed node
covers nodes. All functions are pure.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from leporello.errors import RedactionError
from leporello.messages import Message, groups, parts_of, text_of, tool_calls_of, tool_result
from leporello.messages.fixed import CLEARED_OUTPUT
from leporello.messages.types import THINKING_TYPES
from leporello.redact import ABOUT, redact_messages, redact_part, secrets
from leporello.store.records import Cover
from leporello.summary.artifacts.call_lines import marks_of
from leporello.summary.artifacts.files import file_of
from leporello.tokens import count_text

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence

    from leporello.redact import RedactedMessage, Secret
    from leporello.store.records import Node, Stored


FULL = 0.75  # of the size of a leaf
SMALL = 0.15  # of it: what has no leaf of its own


@dataclass(frozen=True, kw_only=True)
class Piece:
    """A message, or the part `start:stop` of the text of a long one.

    `secrets` are those of the whole text, if they were found already; `about` tells of the call that a tool result
    answers, if the call is in another leaf: its file, and whether it ran a program.
    """

    stored: Stored
    tokens: int
    start: int | None = None
    stop: int | None = None
    secrets: Sequence[Secret] | None = None
    about: Mapping[str, Any] = field(default_factory=dict)


def views(pieces: Sequence[Piece]) -> list[RedactedMessage]:
    """Return the redacted messages for the summariser; a part has the role and the name of its message.

    What a part holds of a call, such as a file to write, was not said: it stands in the role of an output. A call whose
    result is in another leaf was answered all the same: a cleared output says so.
    """
    answered = {piece.stored.message.get("tool_call_id") for piece in pieces}
    return redact_messages(view for piece in pieces for view in (*_views(piece), *_answered_elsewhere(piece, answered)))


def _answered_elsewhere(piece: Piece, answered: Container[Any]) -> Iterator[Message]:
    """Yield a cleared output for each call of a whole message that nothing in its leaf answers."""
    for call in tool_calls_of(piece.stored.message) if piece.start is None else ():
        if call.id and call.id not in answered:
            yield tool_result(call.id, CLEARED_OUTPUT)


def _views(piece: Piece) -> Iterator[Mapping[str, Any]]:
    message: Mapping[str, Any] = piece.stored.message
    if piece.start is None:
        yield {**message, **piece.about} if piece.about else message
        return
    text, said = flat_text(message), len(flat_text({**message, "tool_calls": []}))
    stop = len(text) if piece.stop is None else piece.stop
    named = {key: message[key] for key in ("name", "timestamp", "tool_call_id") if isinstance(message.get(key), str)}
    if piece.start < said:
        part = redact_part(text, piece.start, min(stop, said), piece.secrets)
        yield {"role": piece.stored.role, "content": part, **named, **piece.about}
    if stop > said:
        handed = redact_part(text, max(piece.start, said), stop, piece.secrets)
        files = {file for call in tool_calls_of(message) if (file := file_of(call))}
        about = {ABOUT: files.pop()} if len(files) == 1 else {}
        yield {"role": "tool", "content": handed.replace("\\n", "\n").replace('\\"', '"'), **named, **about}


def flat_text(message: Mapping[str, Any]) -> str:
    """Return the text of a message with its calls and placeholders for media; parts are ranges of this text."""
    said = [_part_text(part) for part in parts_of(message)]
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            said.append(f"calls {function.get('name')} with {function.get('arguments')}")
    return "\n".join(text for text in said if text)


def _part_text(part: dict[str, Any]) -> str:
    if isinstance(part.get("text"), str):
        return str(part["text"])
    if part.get("type") in THINKING_TYPES:
        return str(part.get("thinking") or "")
    return f"[{part.get('type', 'attachment')}]"


def pack(messages: Sequence[Stored], leaf_tokens: int) -> list[list[Piece]]:
    """Cut messages into leaves of about `leaf_tokens` each; a call stays with its results where they fit together.

    A message that is too long for one leaf is cut into parts, each a leaf of its own; its call is in the leaf before.
    A few words before a long turn share its leaf, which may be a little larger then. What a client moved behind later
    messages has a leaf of its own: leaves are ordered by what was stored first.
    """
    leaves: list[list[Piece]] = []
    held: list[Piece] = []
    for group in groups([stored.message for stored in messages]):
        if held and _is_moved(held[-1].stored, messages) != _is_moved(messages[group.start], messages):
            leaves.append(held)
            held = []
        pieces = [Piece(stored=s, tokens=s.tokens) for s in messages[group.start : group.stop]]
        size = sum(piece.tokens for piece in pieces)
        if size > leaf_tokens:
            leaves += _large_group([*held, *pieces], leaf_tokens)
            held = [] if is_full(leaves[-1], leaf_tokens) else leaves.pop()
            continue
        waiting = sum(piece.tokens for piece in held)
        most = leaf_tokens * (1 + SMALL) if waiting <= leaf_tokens * SMALL else leaf_tokens
        if held and waiting + size > most:
            leaves.append(held)
            held = []
        held += pieces
        if is_full(held, leaf_tokens):
            leaves.append(held)
            held = []
    return [*leaves, held] if held else leaves


def _is_moved(one: Stored, messages: Sequence[Stored]) -> bool:
    return one.seq < messages[0].seq


def is_full(pieces: Sequence[Piece], leaf_tokens: int) -> bool:
    """Tell whether a leaf is full; a part of a long message always is."""
    return pieces[0].start is not None or sum(piece.tokens for piece in pieces) >= leaf_tokens * FULL


def _large_group(pieces: list[Piece], leaf_tokens: int) -> list[list[Piece]]:
    leaves: list[list[Piece]] = []
    held: list[Piece] = []
    for piece in pieces:
        if held and sum(p.tokens for p in held) + piece.tokens > leaf_tokens:
            leaves.append(held)
            held = []
        parts = _parts(piece, leaf_tokens) if piece.tokens > leaf_tokens else []
        if len(parts) > 1:
            leaves += [[part] for part in parts]
        else:
            held.append(piece)
    return [with_files(leaf, [piece.stored for piece in pieces]) for leaf in ([*leaves, held] if held else leaves)]


def with_files(leaf: Sequence[Piece], turn: Sequence[Stored]) -> list[Piece]:
    """Return a leaf whose tool results have `about`, what their call did, if the call is elsewhere in the turn."""
    inside = {id(piece.stored) for piece in leaf}
    outside = [call for stored in turn if id(stored) not in inside for call in tool_calls_of(stored.message)]
    about = {call.id: marks_of(call) for call in outside if call.id}
    return [replace(piece, about=about.get(str(piece.stored.message.get("tool_call_id")), {})) for piece in leaf]


def _parts(piece: Piece, leaf_tokens: int) -> list[Piece]:
    """Cut the text of a long message into parts, at ends of lines if possible."""
    text = flat_text(piece.stored.message)
    length = max(1, len(text) * leaf_tokens // max(1, count_text(text)))
    try:
        found_secrets = secrets(text)  # once for all parts
    except RedactionError:
        found_secrets = None  # the text is too long for that
    parts: list[Piece] = []
    start = 0
    while start < len(text):
        stop = min(len(text), start + length)
        if stop < len(text) and (found := text.rfind("\n", start + length // 2, stop)) > start:
            stop = found + 1
        if len(text) - stop <= length * SMALL:  # no part for a few last words
            stop = len(text)
        tokens = part_tokens(text[start:stop])
        parts.append(replace(piece, tokens=tokens, start=start, stop=stop, secrets=found_secrets))
        start = stop
    return parts


def part_tokens(text: str) -> int:
    """Return the tokens of a part of a long message."""
    return count_text(text) + 4


def covers_of(pieces: Sequence[Piece]) -> tuple[Cover, ...]:
    """Return the covers of a leaf: runs of messages, and parts."""
    covers: list[Cover] = []
    for piece in pieces:
        seq = piece.stored.seq
        last = covers[-1] if covers else None
        if piece.start is not None:
            covers.append(Cover(first_seq=seq, last_seq=seq, start=piece.start, stop=piece.stop))
        elif last is not None and last.start is None and seq == last.last_seq + 1:
            covers[-1] = Cover(first_seq=last.first_seq, last_seq=seq)
        else:
            covers.append(Cover(first_seq=seq, last_seq=seq))
    return tuple(covers)


def seqs_of(covers: Iterable[Cover]) -> set[int]:
    """Return the `seq` of all messages in covers."""
    return {seq for cover in covers for seq in range(cover.first_seq, cover.last_seq + 1)}


class Coverage:
    """Which leaf covers a message, by `seq`; of a message in parts, the first of them."""

    def __init__(self, nodes: Iterable[Node]) -> None:
        runs = sorted((c.first_seq, c.start or 0, c.last_seq, node.id) for node in nodes for c in node.covers)
        self._runs = runs
        self.ids: set[str] = {run[3] for run in runs}
        self._firsts = [run[0] for run in runs]

    def leaf(self, seq: int) -> str | None:
        """Return the id of the leaf, or None."""
        at = bisect_left(self._firsts, seq)
        if at < len(self._runs) and self._firsts[at] == seq:
            return self._runs[at][3]
        found = self._runs[at - 1] if at else None
        return found[3] if found and seq <= found[2] else None

    def __contains__(self, seq: int) -> bool:
        return self.leaf(seq) is not None

    def unbroken(self, messages: Iterable[Stored]) -> list[list[Stored]]:
        """Return the runs of messages between which no leaf covers any."""
        runs: list[list[Stored]] = []
        for stored in messages:
            at = bisect_right(self._firsts, runs[-1][-1].seq) if runs else 0
            if not runs or (at < len(self._firsts) and self._firsts[at] < stored.seq):
                runs.append([])
            runs[-1].append(stored)
        return runs


def roots(nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes that no other one covers, in order: these are in the window."""
    inside = {child for node in nodes for child in node.children}
    return in_order(node for node in nodes if node.id not in inside)


def in_order(nodes: Iterable[Node]) -> list[Node]:
    """Return nodes in the order of their messages."""

    def place(node: Node) -> tuple[int, int, int]:
        return node.first_seq, min((cover.start or 0 for cover in node.covers), default=0), node.last_seq

    return sorted(nodes, key=place)


def ancestors(nodes: Sequence[Node], ids: Iterable[str]) -> set[str]:
    """Return the ids of all nodes above others."""
    above: set[str] = set()
    wanted = set(ids)
    while wanted:
        found = {node.id for node in nodes if wanted.intersection(node.children)} - above
        above |= found
        wanted = found
    return above


def group_to_condense(tops: Sequence[Node], fan_in: int) -> list[Node]:
    """Choose neighbours to become one node: the oldest full run of one level, else any run of one, else the oldest two.

    Levels rise to the left like the digits of a counter, so a message is summarised again only as often as the
    logarithm of the conversation's length. New nodes are added at the right end only, so a node before higher ones
    would never get a neighbour of its level: it counts as one of theirs.
    """
    levels = list(accumulate([node.level for node in reversed(tops)], max))[::-1]
    runs: list[tuple[int, list[Node]]] = []
    for node, level in zip(tops, levels, strict=True):
        if runs and runs[-1][0] == level and len(runs[-1][1]) < fan_in:
            runs[-1][1].append(node)
        else:
            runs.append((level, [node]))
    full = [run for run in runs if len(run[1]) == fan_in] or [run for run in runs if len(run[1]) > 1]
    return min(full, key=lambda run: run[0])[1] if full else list(tops[:2])


def first_words(message: Message, length: int = 120, *, hide: bool) -> str:
    """Return the beginning of a message on one line; with `hide` secrets are redacted before it is cut."""
    text = text_of(message) or flat_text(message)
    start = text[: 8 * length]
    line = " ".join((redact_part(text, 0, len(start)) if hide else start).split())
    return line if len(line) <= length and len(text) <= 8 * length else line[: length - 1].rstrip() + "…"
