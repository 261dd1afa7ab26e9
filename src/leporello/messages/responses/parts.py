"""Parts of a message's content, as the Responses API and as chat completions write them.

What the chat format has no place for stays with the part in a private note.
"""

from __future__ import annotations

from typing import Any, Final

from leporello.messages.types import RESPONSES_NOTE, THINKING_TYPES, Part

TEXT_KINDS: Final = {"assistant": "output_text"}
"""The type of a text part by role; all others write `input_text`."""

_TEXTS: Final = frozenset({"input_text", "output_text", "text"})


def part_of(part: Any, role: str) -> Any:
    """Return the chat part of a part of an item."""
    kind = part.get("type") if isinstance(part, dict) else None
    if kind in _TEXTS and isinstance(part.get("text"), str):
        rest = {key: value for key, value in part.items() if key != "text"}
        return noted({"type": "text", "text": part["text"]}, part=rest, unless={"type": _text_kind(role)})
    if kind == "input_image":
        return _image_of(part)
    if kind == "input_file":
        return {"type": "file", "file": {key: value for key, value in part.items() if key != "type"}}
    return dict(part) if isinstance(part, dict) else part


def written_part(part: Any, role: str) -> Any:
    """Return the part of an item for a chat part; None for one that no item can hold."""
    kind = part.get("type") if isinstance(part, dict) else None
    note = note_of(part).get("part") if isinstance(part, dict) else None
    if kind == "text":
        return {**(note or {"type": _text_kind(role)}), "text": part.get("text")}
    if kind == "image_url":
        return _written_image(part, note)
    if kind == "file" and isinstance(part.get("file"), dict):
        return {**(note or {"type": "input_file"}), **part["file"]}
    if kind in THINKING_TYPES:
        return None
    return without_note(part)


def noted(value: dict[str, Any], *, unless: Any = None, **note: Any) -> dict[str, Any]:
    """Return a value with a note; without one when the note says only what goes without saying."""
    (said,) = note.values() if len(note) == 1 else (note,)
    return value if said == unless else {**value, RESPONSES_NOTE: note}


def note_of(value: Any) -> dict[str, Any]:
    """Return the note of a message, a part or a call; {} without one."""
    note = value.get(RESPONSES_NOTE) if isinstance(value, dict) else None
    return note if isinstance(note, dict) else {}


def without_note(value: Any) -> Any:
    """Return a value as it came, without the note."""
    if not isinstance(value, dict) or RESPONSES_NOTE not in value:
        return value
    return {key: item for key, item in value.items() if key != RESPONSES_NOTE}


def _text_kind(role: str) -> str:
    return TEXT_KINDS.get(role, "input_text")


def _image_of(part: Part) -> Part:
    url = part.get("image_url")
    if isinstance(url, str) and url:
        rest = {key: value for key, value in part.items() if key != "image_url"}
        image = {"url": url, "detail": part["detail"]} if isinstance(part.get("detail"), str) else {"url": url}
        return {"type": "image_url", "image_url": image, RESPONSES_NOTE: {"part": rest}}
    rest = {key: value for key, value in part.items() if key != "type"}
    return {"type": "file", "file": rest, RESPONSES_NOTE: {"part": {"type": "input_image"}}}


def _written_image(part: Part, note: Any) -> Part:
    image = part.get("image_url")
    image = image if isinstance(image, dict) else {"url": image}
    if note:
        return {**note, "image_url": image.get("url")}
    return {"type": "input_image", "image_url": image.get("url"), "detail": image.get("detail") or "auto"}
