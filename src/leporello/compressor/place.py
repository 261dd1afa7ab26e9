"""Phase 4: where the summary stands; the table is the same for every engine."""

from leporello.summary.place import (
    ACKNOWLEDGEMENT,
    END,
    INTRODUCTION,
    NOTE,
    NOTE_PREFIX,
    PREFIX,
    Placement,
    Stripped,
    frame_tokens,
    place,
    placement,
    strip_summary,
    summary_block,
    with_note,
)

__all__ = [
    "ACKNOWLEDGEMENT",
    "END",
    "INTRODUCTION",
    "NOTE",
    "NOTE_PREFIX",
    "PREFIX",
    "Placement",
    "Stripped",
    "frame_tokens",
    "place",
    "placement",
    "strip_summary",
    "summary_block",
    "with_note",
]
