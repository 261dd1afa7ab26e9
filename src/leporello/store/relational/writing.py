"""Messages as rows: everything about a message is worked out before the lock is taken, then written."""

# ruff: noqa: S608 - statements are put together from constants; values are always bound

from __future__ import annotations

from datetime import UTC, datetime
from math import isfinite
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from leporello.messages import role_of
from leporello.messages.listed_message import raw_calls, read_message
from leporello.store.codec import encode, next_chain, payload_keys
from leporello.store.relational.counters import count_in
from leporello.store.relational.rows import chunks, column_text, placeholders
from leporello.store.search.prepare import prepared_text
from leporello.tokens import count_message

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from leporello.messages import Message
    from leporello.messages.listed_message import ListedMessage
    from leporello.store.codec import Encoded
    from leporello.store.relational.dialect import Connection
    from leporello.store.relational.rows import ConversationRow


MESSAGE_COLUMNS: Final = (
    "id, conversation, branch, seq, place, kind, gone, time, tokens, size, role, name, tool, fingerprint, call_key,"
    " chain, refs, body"
)


class Prepared(NamedTuple):
    """A message, ready to be written."""

    encoded: Encoded
    seen: ListedMessage
    text: str
    tokens: int
    time: float | None
    name: str
    tool: str


def prepare(message: Message, path: str, tools: Mapping[str, str], seen: ListedMessage | None = None) -> Prepared:
    """Work out everything that is stored with a message; `tools` names the tools of calls by their id."""
    encoded = encode(message, path)
    seen = seen or read_message(message)
    return Prepared(
        encoded=encoded,
        seen=seen,
        text="" if seen.system else prepared_text(message),
        tokens=count_message(message),
        time=seconds_of(message["timestamp"]) if "timestamp" in message else None,
        name=column_text(message.get("name")),
        tool=column_text(_tool(message, seen.role, tools)) if "tool_calls" in message or seen.role == "tool" else "",
    )


def call_names(messages: Iterable[Message]) -> dict[str, str]:
    """Return the names of called tools by the id of the call."""
    return {id_: name for message in messages for id_, name, _ in raw_calls(message)}


def are_named(messages: Iterable[Message], tools: Mapping[str, str]) -> bool:
    """Tell whether the tools are known that these results are from."""
    return all(not call_id or call_id in tools for call_id in map(_answered_call, messages))


def _answered_call(message: Message) -> str:
    """Return the id of the call that a tool result answers when it does not say itself which tool it is from, or ""."""
    call_id = message.get("tool_call_id") if role_of(message) == "tool" and not message.get("name") else ""
    return call_id if isinstance(call_id, str) else ""


def _tool(message: Message, role: str, tools: Mapping[str, str]) -> str:
    """Return the tool that answers, or the tools that are called."""
    if role != "tool":
        return " ".join(dict.fromkeys(name for _, name, _ in raw_calls(message)))
    name = message.get("name")
    return name if isinstance(name, str) and name else tools.get(_answered_call(message), "")


def seconds_of(timestamp: Any) -> float | None:
    """Return a timestamp (ISO-8601, or seconds) as seconds since the epoch, or None; no time zone means UTC."""
    if isinstance(timestamp, (int, float)) and not isinstance(timestamp, bool):
        return float(timestamp) if abs(timestamp) < 1e11 and isfinite(timestamp) else None  # noqa: PLR2004 - year 5138
    if not isinstance(timestamp, str):
        return None
    try:
        moment = datetime.fromisoformat(timestamp)
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None


def insert(
    connection: Connection,
    conversation: ConversationRow,
    rows: Sequence[tuple[Prepared, float | None]],
    now: float,
    branch: int,
) -> list[int]:
    """Append messages to a branch with their places (None: the system prompt) and return their numbers."""
    seq, chain = conversation.next_seq, conversation.chain
    new = []
    count = tokens = 0
    for row, place in rows:
        chain = next_chain(chain, row.encoded.verbatim)
        time = now if row.time is None else row.time
        new.append(NewRow(prepared=row, seq=seq, chain=chain, place=place, time=time, branch=branch))
        seq += 1
        if place is not None:
            count, tokens = count + 1, tokens + row.tokens
    numbers = insert_rows(connection, conversation, new)
    connection.execute(
        "UPDATE conversations SET next_seq = ?, chain = ?, revision = revision + 1, updated = ?,"
        " messages = messages + ?, ended = NULL, deleted = NULL WHERE id = ?",
        (seq, chain, now, count, conversation.id),
    )
    connection.execute(
        "UPDATE branches SET used = ?, messages = messages + ?, tokens = tokens + ? WHERE conversation = ? AND id = ?",
        (now, count, tokens, conversation.id, branch),
    )
    return numbers


class NewRow(NamedTuple):
    """A prepared message with its place in the conversation."""

    prepared: Prepared
    seq: int
    chain: bytes
    place: float | None
    time: float
    branch: int
    gone: int | None = None


def insert_rows(connection: Connection, conversation: ConversationRow, rows: Sequence[NewRow]) -> list[int]:
    """Write messages, their payloads and their index entries, uncounted; return their numbers."""
    numbers = list(connection.dialect.next_numbers(connection, len(rows)))
    encoded = [row.prepared.encoded for row in rows if row.prepared.encoded.refs]
    if encoded:
        payloads = [(key, one.payloads[key]) for one in encoded for key in payload_keys(one.refs)]
        connection.dialect.add_payloads(connection, conversation.id, payloads)
    new = [(number, conversation.id, *columns_of(row)) for number, row in zip(numbers, rows, strict=True)]
    connection.insert("messages", MESSAGE_COLUMNS, new)
    connection.dialect.index(
        connection,
        conversation,
        [(number, row.prepared.text) for number, row in zip(numbers, rows, strict=True) if row.place is not None],
    )
    return numbers


def columns_of(row: NewRow) -> tuple[Any, ...]:
    """Return what `MESSAGE_COLUMNS` has after the number of the message and of its conversation."""
    prepared, seen = row.prepared, row.prepared.seen
    return (
        row.branch,
        row.seq,
        0.0 if row.place is None else row.place,
        int(row.place is None),
        row.gone,
        row.time,
        prepared.tokens,
        seen.size,
        column_text(seen.role),
        prepared.name,
        prepared.tool,
        bytes.fromhex(seen.fingerprint),
        seen.call_key and bytes.fromhex(seen.call_key),
        row.chain,
        prepared.encoded.refs,
        prepared.encoded.body,
    )


def replace_rows(connection: Connection, conversation: int, branch: int, numbers: Sequence[int], seq: int) -> None:
    """Note that messages of a branch were replaced by what is stored from this seq on."""
    for chunk in chunks(numbers):
        own = connection.dialect.conversation_of
        within = f"{own} AND +branch = ? AND +kind = 0 AND gone IS NULL AND id IN ({placeholders(chunk)})"
        values = (conversation, branch, *chunk)
        count, tokens = connection.execute(
            f"SELECT count(*), coalesce(sum(tokens), 0) FROM messages WHERE {within}", values
        ).fetchone()
        connection.execute(f"UPDATE messages SET gone = ? WHERE {within}", (seq, *values))
        count_in(connection, conversation, branch, -count, -tokens)
    if numbers:
        connection.execute("UPDATE conversations SET revision = revision + 1 WHERE id = ?", (conversation,))
