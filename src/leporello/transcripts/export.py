"""Exports of leporello (`sessions export --bundle`): one or several conversations, each begun by a line of its own."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING, Any

from leporello.transcripts.model import Skipped, Transcript

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from leporello.messages import Message
    from leporello.transcripts.model import OnSkip
    from leporello.transcripts.records import Record


def knows(value: Any) -> bool:
    """Tell whether a value is the first line of an export."""
    return isinstance(value, dict) and "leporello" in value


def read(values: Iterable[Record], path: Path, on_skip: OnSkip) -> Iterator[Transcript]:
    """Yield the conversations of an export, without what was taken back; the newest system prompt stands first."""
    head: dict[str, Any] | None = None
    rows: list[dict[str, Any]] = []
    for number, value in values:
        if knows(value):
            if head is not None:
                yield _transcript(head, rows, path)
            head, rows = value, []
        elif isinstance(value, dict) and isinstance(value.get("message"), dict):
            rows.append(value)
        elif not isinstance(value, dict) or not ({"end", "tombstone"} & value.keys()):
            on_skip(Skipped(file=str(path), line=number, reason="not a line of an export"))
    if head is not None:
        yield _transcript(head, rows, path)


def _transcript(head: dict[str, Any], rows: list[dict[str, Any]], path: Path) -> Transcript:
    systems = [row for row in rows if row.get("system")]
    said = [row for row in rows if not row.get("system") and not row.get("superseded")]
    said.sort(key=_place)
    return Transcript(
        name=str(head.get("conversation") or path.stem),
        format="leporello",
        messages=[_message(row) for row in (*systems[-1:], *said)],
        meta=head.get("meta") if isinstance(head.get("meta"), dict) else {},  # type: ignore[arg-type]
    )


def _place(row: dict[str, Any]) -> float:
    places = (row.get("place"), row.get("seq"))
    return next((float(one) for one in places if isinstance(one, (int, float)) and abs(one) < inf), 0.0)


def _message(row: dict[str, Any]) -> Message:
    message: Message = row["message"]
    return message if "timestamp" in message or not row.get("time") else {**message, "timestamp": row["time"]}
