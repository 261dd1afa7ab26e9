"""What a fold must not remove is put back: pinned messages, and the newest compaction of the provider itself.

It is stored with the fold, so it is there when the conversation is opened again before the next request.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leporello.messages.responses import compaction_of
from leporello.session.saved_branch import number_of
from leporello.session.window import Source, Window, entry_of
from leporello.summary.payloads import is_shortened

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.session.window import Entry
    from leporello.store import Stored


def with_kept(entries: Sequence[Entry], before: Sequence[Entry], pinned: Sequence[Stored]) -> list[Entry]:
    """Return a folded window with the pinned messages and the provider's compaction that the fold has removed."""
    window = Window(entries)
    if entries:
        _put_pins_back(window, before, pinned)
        _put_compaction_back(window, before)
    return window.entries


def _put_pins_back(window: Window, before: Sequence[Entry], pinned: Sequence[Stored]) -> None:
    """Put the pinned messages that the fold shortened in their place, and those that it removed before later ones."""
    sources = {source.id: source for entry in before for source in entry.sources}
    for row in pinned:
        source = sources.get(row.id) or Source(message=row.message, id=row.id)
        shown = next((at for at, entry in enumerate(window.entries) if row.id in entry.source_ids), None)
        if shown is None:
            at = _place_of(window, row.id)
            window.replace(at, [source.entry(), *window.entries[at:]], at)
        elif is_shortened(window.entries[shown].message, source.message):
            window.replace(shown, [source.entry(), *window.entries[shown + 1 :]], shown)


def _put_compaction_back(window: Window, before: Sequence[Entry]) -> None:
    """Insert the newest compaction item of the provider if the fold removed it: only the provider can read it.

    It goes before the summary, because the provider may ignore what stands before such an item. For the same reason an
    earlier one that a fold left by itself, and that would stand behind it now, is left out.
    """
    held = [(entry, sealed) for entry in before if (sealed := compaction_of(entry.message))]
    if not held:
        return
    entry, sealed = held[-1]
    if any(compaction_of(one.message) == sealed for one in window.entries):
        return
    written = (at for at, one in enumerate(window.entries) if at >= window.systems() and not one.sources)
    places = [_place_of(window, entry.id)] if entry.id else []
    at = min([*places, next(written, len(window))])
    later = [one for one in window.entries[at:] if compaction_of(one.message) != one.message]
    window.replace(at, [entry_of(sealed, sources=entry.sources), *later], at)


def _place_of(window: Window, id_: str) -> int:
    """Return the index at which a stored message belongs: before the first one that was stored after it."""
    number = number_of(id_)
    at = next(
        (at for at, entry in enumerate(window) if any(one.id and number_of(one.id) > number for one in entry.sources)),
        len(window),
    )
    while 0 < at < len(window) and window.entries[at].role == "tool":
        at -= 1
    return max(at, window.systems())
