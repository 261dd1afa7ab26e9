"""The artifact trail: what each stored message did, exactly, without a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leporello.messages import group_start, groups
from leporello.redact import redact
from leporello.store.protocol import Artifact
from leporello.summary.artifacts import collect

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leporello.store.protocol import Ingested
    from leporello.summary.artifacts import Artifacts

KINDS = ("file", "command", "error", "decision", "value")
_MOST_PER_GROUP = {"file": 40, "error": 10, "decision": 10, "value": 12}
_APART = "\n\x01\n"
_LISTING = 20  # files named together are a listing, not work


def trail(messages: Sequence[Any], ingested: Ingested, times: dict[str, float]) -> list[Artifact]:
    """Return what the added messages of a list left behind, each linked to the message where it happened.

    A call and its results are read together, so that the outcome of a command is known.
    """
    added = set(ingested.added)
    new = [index for index, found in enumerate(ingested.ids, ingested.start) if found in added]
    if not new:
        return []
    start = group_start(messages, new[0])
    rest = messages[start:]
    found: list[Artifact] = []
    for group in groups(rest):
        places = range(start + group.start, start + group.stop)
        ids = [ingested.ids[place - ingested.start] if place >= ingested.start else None for place in places]
        if added.intersection(ids):
            message = next(one for one in ids if one is not None)
            found += _of_group(collect(rest[group.start : group.stop]), message, times.get(message, 0.0))
    return found


def _of_group(found: Artifacts, message: str, time: float) -> Iterator[Artifact]:
    traces = list(_bounded(found))
    values = _clean([value for _, value, _ in traces])
    notes = _clean([note for _, _, note in traces])
    for (kind, _, _), value, note in zip(traces, values, notes, strict=True):
        yield Artifact(kind=kind, value=value, note=note, message=message, time=time)


def _clean(texts: list[str]) -> list[str]:
    """Return the texts without secrets: in one pass, or one by one when they cannot be told apart afterwards."""
    clean = redact(_APART.join(texts)).split(_APART)
    return clean if len(clean) == len(texts) else [redact(text) for text in texts]


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
