"""`state.db` of Hermes Agent: sessions, and every message of them, those that were folded too.

A compaction inserts the messages that stay in the window once more, around a summary: into the same session, or into a
new one that goes on with it. The conversation that was held is read back: copies are left out and counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from leporello.messages import call_ids_of, role_of, text_of
from leporello.messages.listed_message import KNOWN_PREFIXES
from leporello.transcripts.columns import parsed, selected
from leporello.transcripts.model import RecordedCompaction, Skipped, Transcript, timed

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from leporello.messages import Message
    from leporello.transcripts.model import OnSkip

_SESSION: Final = (
    *("id", "source", "model", "model_config", "system_prompt", "parent_session_id", "started_at"),
    *("end_reason", "title", "cwd"),
)
_MESSAGE: Final = (
    *("id", "role", "content", "tool_call_id", "tool_calls", "timestamp", "reasoning", "reasoning_content"),
    *("active", "compacted"),
)
_JSON: Final = "\x00json:"
_MERGED: Final = "[PRIOR CONTEXT"
_AT_ONCE: Final = 0.001
"""The most seconds between two rows of one compaction: they are written together, a microsecond apart."""

COPIES: Final = "copies that a compaction made"
SUMMARIES: Final = "summaries"
TAKEN_BACK: Final = "taken back by the user"


def knows(columns: Mapping[str, set[str]]) -> bool:
    """Tell whether these are the tables of such a database."""
    return {"parent_session_id", "source"} <= columns.get("sessions", set()) and {"session_id", "role"} <= columns.get(
        "messages", set()
    )


def read(
    connection: sqlite3.Connection, columns: Mapping[str, set[str]], path: Path, on_skip: OnSkip
) -> Iterator[Transcript]:
    """Yield the conversations, the oldest first; sessions that a compaction made of one are one."""
    query = f"SELECT {selected(_SESSION, columns['sessions'])} FROM sessions ORDER BY started_at, id"  # noqa: S608
    sessions = {row["id"]: row for row in connection.execute(query)}
    following = _continuations(sessions)
    later = set(following.values())
    for id_ in sessions:
        if id_ not in later:
            yield _transcript(connection, columns, _chain(id_, following), sessions)
    lost = connection.execute(
        "SELECT count(*) FROM messages WHERE session_id NOT IN (SELECT id FROM sessions)"
    ).fetchone()[0]
    if lost:
        on_skip(Skipped(file=str(path), line=0, reason=f"{lost} messages belong to no session"))


def _continuations(sessions: Mapping[str, sqlite3.Row]) -> dict[str, str]:
    """Map sessions that ended by a compaction to the one that went on; branches and sub-agents go on from none."""
    following: dict[str, str] = {}
    for id_, row in sessions.items():
        parent = sessions.get(row["parent_session_id"] or "")
        own = parsed(row["model_config"], dict)
        if parent is None or parent["end_reason"] != "compression" or row["source"] == "tool":
            continue
        if not {"_branched_from", "_delegate_from"} & own.keys():
            following.setdefault(parent["id"], id_)
    return following


def _chain(first: str, following: Mapping[str, str]) -> list[str]:
    chain = [first]
    while (after := following.get(chain[-1])) and after not in chain:
        chain.append(after)
    return chain


def _transcript(
    connection: sqlite3.Connection,
    columns: Mapping[str, set[str]],
    chain: list[str],
    sessions: Mapping[str, sqlite3.Row],
) -> Transcript:
    first, last = sessions[chain[0]], sessions[chain[-1]]
    query = f"SELECT {selected(_MESSAGE, columns['messages'])} FROM messages WHERE session_id = ? ORDER BY id"  # noqa: S608
    rows = [(id_, row) for id_ in chain for row in connection.execute(query, (id_,))]
    kept = [_row(row, id_) for id_, row in rows if row["active"] != 0 or row["compacted"]]
    held = _Held()
    held.take(kept)
    system: list[Message] = [{"role": "system", "content": last["system_prompt"]}] if last["system_prompt"] else []
    meta = {key: last[key] for key in ("title", "source", "cwd") if last[key]}
    counts = {COPIES: held.copies, SUMMARIES: len(held.compactions), TAKEN_BACK: len(rows) - len(kept)}
    return Transcript(
        name=chain[0],
        format="hermes",
        messages=[*system, *held.messages],
        compactions=tuple(RecordedCompaction(at=at + len(system), summary=summary) for at, summary in held.compactions),
        model=str(last["model"] or ""),
        parent=str(first["parent_session_id"] or ""),
        meta=meta | ({"sessions": chain} if len(chain) > 1 else {}),
        left_out={what: count for what, count in counts.items() if count},
    )


class _Row(NamedTuple):
    """A row: `key` is equal for copies of one message, also where a tool's output was shortened in one."""

    message: Message
    key: tuple[Any, ...]
    time: float
    session: str
    is_summary: bool


class _Shown(NamedTuple):
    """A message in the window, and whether it stood there as a new one."""

    row: _Row
    is_new: bool


class _Held:
    """The conversation that was held, from the rows of its windows."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.compactions: list[tuple[int, str]] = []
        self.copies = 0
        self._window: list[_Shown] = []
        self._calls: set[tuple[Any, ...]] = set()

    def take(self, rows: Sequence[_Row]) -> None:
        """Take all rows in the order in which they were written."""
        at = 0
        while at < len(rows):
            row = rows[at]
            at += 1
            if row.is_summary:
                at += self._fold(row, rows[at:])
            else:
                self._add(row)

    def _add(self, row: _Row) -> None:
        """Add a message, unless its calls, or the call that it answers, were seen: no two have the same ids."""
        has_calls = row.key[0] in ("calls", "result")
        is_new = not (has_calls and row.key in self._calls)
        if has_calls:
            self._calls.add(row.key)
        if is_new:
            self.messages.append(row.message)
        else:
            self.copies += 1
        self._window.append(_Shown(row, is_new))

    def _fold(self, summary: _Row, after: Sequence[_Row]) -> int:
        """Take a summary: what stands before it may be copies of the head; returns how many behind it are copies."""
        head = self._copied_head(summary)
        window = self._window[: len(self._window) - head]
        added = sum(shown.is_new for shown in self._window[len(window) :])
        del self.messages[len(self.messages) - added :]
        tail = _copied_tail([shown.row.key for shown in window], [row.key for row in after])
        self.copies += added + tail
        self.compactions.append((len(self.messages), text_of(summary.message)))
        self._window = [*window[:head], *window[len(window) - tail :]]
        return tail

    def _copied_head(self, summary: _Row) -> int:
        """Return how many of the newest rows are the beginning of the window again, written with the summary."""
        rows = [shown.row for shown in self._window]
        for length in range(len(rows) // 2, 0, -1):
            pairs = list(zip(rows[:length], rows[-length:], strict=True))
            if all(one.key == again.key and _is_again(one, again, summary, length) for one, again in pairs):
                return length
        return 0


def _is_again(one: _Row, again: _Row, summary: _Row, rows: int) -> bool:
    """Tell whether a compaction wrote a row: into its new session, with the old time, or together with its summary."""
    begins_session = again.session == summary.session != one.session
    return begins_session or one.time == again.time or abs(summary.time - again.time) <= _AT_ONCE * rows


def _copied_tail(window: Sequence[tuple[Any, ...]], after: Sequence[tuple[Any, ...]]) -> int:
    """Return the most rows behind a summary that are the end of the window before it."""
    for length in range(min(len(window), len(after)), 0, -1):
        if window[-length] == after[0] and list(window[-length:]) == list(after[:length]):
            return length
    return 0


def _row(row: sqlite3.Row, session: str) -> _Row:
    message = _message(row)
    ids, role = call_ids_of(message), role_of(message)
    if role == "tool" and row["tool_call_id"]:
        key: tuple[Any, ...] = ("result", row["tool_call_id"])
    elif ids:
        key = ("calls", *ids)
    else:
        key = (role, text_of(message))
    return _Row(message, key, float(row["timestamp"] or 0), session, _is_summary(message))


def _message(row: sqlite3.Row) -> Message:
    content = row["content"]
    if isinstance(content, str) and content.startswith(_JSON):
        content = parsed(content.removeprefix(_JSON), list) or content
    message: Message = {"role": str(row["role"]), "content": content}
    if calls := parsed(row["tool_calls"], list):
        message["tool_calls"] = calls
    if row["tool_call_id"]:
        message["tool_call_id"] = str(row["tool_call_id"])
    if thinking := row["reasoning_content"] or row["reasoning"]:
        message["reasoning_content"] = str(thinking)
    return timed(message, row["timestamp"])


def _is_summary(message: Message) -> bool:
    text = text_of(message)
    return text.startswith(KNOWN_PREFIXES) or (text.startswith(_MERGED) and KNOWN_PREFIXES[0] in text)
