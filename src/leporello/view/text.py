"""Text of conversations for the page: secrets hidden, control characters visible, long texts in pieces, hits marked.

Everything is returned as plain text; the templates escape it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from leporello.messages import parts_of, role_of, text_of
from leporello.messages.types import THINKING_TYPES
from leporello.messages.visible import one_line, visible
from leporello.redact import redact, redact_part

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PIECE: Final = 12_000
"""Characters of a text that are shown at once."""
_PREVIEW: Final = 180
_LONGEST_WORD: Final = 24  # a longer one is cut itself
_LOOKED_AT: Final = 20_000  # characters that are searched for secrets before the beginning of a text is shown
_WORD: Final = re.compile(r"\w+")
_THOUSAND, _MILLION = 1_000, 1_000_000
_CENT: Final = 0.01


@dataclass(frozen=True, kw_only=True)
class TextSlice:
    """A piece of a text: from which character on, up to which, of how many; and how many secrets are hidden in it."""

    text: str
    start: int
    stop: int
    length: int
    hidden: int

    @property
    def has_more(self) -> bool:
        """Whether the text goes on behind it."""
        return self.stop < self.length


def piece_of(text: str, start: int = 0, *, reveal: bool = False) -> TextSlice:
    """Return the piece of a text from a character on."""
    start = min(max(0, start), len(text))
    stop = min(len(text), start + PIECE)
    shown = text[start:stop]
    hidden = 0
    if not reveal:
        redacted = redact_part(text, start, stop)
        hidden = redacted.count("[REDACTED:") - shown.count("[REDACTED:") + redacted.startswith("[WITHHELD")
        shown = redacted
    return TextSlice(text=visible(shown), start=start, stop=stop, length=len(text), hidden=hidden)


def preview(text: str, length: int = _PREVIEW) -> str:
    """Return the beginning of a text on one line, without secrets."""
    head = text[:_LOOKED_AT]
    words = " ".join(visible(redact_part(head, 0, min(len(head), 4 * length))).split())
    if len(words) <= length and len(head) <= 4 * length:
        return words
    cut = words[: length - 1]
    last = cut.rfind(" ")
    return (cut[:last] if last > max(0, length - _LONGEST_WORD) else cut).rstrip() + "…"


def path_end(text: str, length: int = 72) -> str:
    """Return a path on one line, without secrets; of a long one the end, which tells files apart."""
    words = clean(text)
    if len(words) <= length:
        return words
    end = words[1 - length :]
    slash = end.find("/")
    return "…" + (end[slash:] if 0 <= slash < length // 2 else end)


def said_in(message: Mapping[str, Any]) -> str:
    """Return everything that a message says as one text: its words, its thinking, its calls, and what else it holds."""
    return "\n\n".join(_sayings(message))


def brief(message: Mapping[str, Any]) -> str:
    """Return a message on one line: what it says, or which tools it calls."""
    text = text_of(message)
    calls = [f"{name}({_values(arguments)})" for name, arguments in _calls(message)]
    return preview(" ".join([text, *calls]) if text else " ".join(calls) or said_in(message)) or "(empty)"


def tool_names(message: Mapping[str, Any]) -> str:
    """Name the tools that a message calls."""
    return ", ".join(one_line(name) for name, _ in _calls(message))


def _sayings(message: Mapping[str, Any]) -> Iterator[str]:
    for part in parts_of(message):
        if isinstance(part.get("text"), str):
            yield part["text"]
        elif part.get("type") in THINKING_TYPES:
            yield f"[thinking]\n{part.get('thinking') or ''}"
        else:
            yield _dumped(part)
    for name, arguments in _calls(message):
        yield f"→ {name}\n{_indented(arguments)}"


def _calls(message: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if isinstance(function, dict):
            arguments = function.get("arguments")
            yield str(function.get("name")), arguments if isinstance(arguments, str) else _dumped(arguments)


def _values(arguments: str) -> str:
    """Return the arguments of a call without their names: its texts, or all where there are none."""
    try:
        read = json.loads(arguments) if len(arguments) <= _LOOKED_AT else arguments
    except (ValueError, RecursionError):
        return arguments
    if not isinstance(read, dict):
        return arguments
    texts = [value for value in read.values() if isinstance(value, str)]
    return ", ".join(texts or map(str, read.values()))


def _indented(arguments: str) -> str:
    try:
        return _dumped(json.loads(arguments))
    except (ValueError, RecursionError):
        return arguments


def _dumped(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, indent=2)
    except (TypeError, ValueError, RecursionError):
        return str(value)


def wire_json(value: Any, *, reveal: bool) -> str:
    """Write a value as JSON, its secrets hidden unless they are asked for."""
    from leporello.redact import redact_value

    return json.dumps(value if reveal else redact_value(value), ensure_ascii=False, separators=(",", ":"))


def prose(text: str) -> list[tuple[str, str]]:
    """Return the lines of a summary, each with what it is: "head", "item" or "line"; empty lines are left out."""
    lines = [line.strip() for line in text.splitlines()]
    return [(_kind(line), line.lstrip("#").strip() if _kind(line) == "head" else line) for line in lines if line]


def _kind(line: str) -> str:
    return "head" if line.startswith("#") else "item" if line.startswith(("- ", "* ")) else "line"


def marked(text: str, query: str) -> list[tuple[str, bool]]:
    """Cut a text into pieces, each with whether the query asks for it."""
    words = sorted({re.escape(word) for word in _WORD.findall(query) if len(word) > 1}, key=len, reverse=True)
    if not words:
        return [(text, False)]
    pieces = re.split(rf"((?<!\w)(?:{'|'.join(words)})\w*)", text, flags=re.IGNORECASE)
    return [(piece, at % 2 == 1) for at, piece in enumerate(pieces) if piece]


def speaker(message: Mapping[str, Any]) -> str:
    """Return who speaks in a message."""
    return one_line(role_of(message) or "?")


def clean(text: Any) -> str:
    """Return a short text on one line without secrets: names, reasons, titles."""
    return one_line(redact(str(text)))


# figures


def number(value: float | None) -> str:
    """Write a whole number."""
    return "–" if value is None else f"{value:,.0f}"


def short(value: float | None) -> str:
    """Write a number briefly: 950, 12.4K, 1.5M."""
    if value is None:
        return "–"
    for size, unit in ((_MILLION, "M"), (_THOUSAND, "K")):
        if abs(value) >= size:
            return f"{value / size:.1f}".removesuffix(".0") + unit
    return f"{value:.0f}"


def dollars(value: float | None) -> str:
    """Write an amount of US dollars."""
    if value is None:
        return "–"
    sign = "−" if value < 0 else ""
    return f"{sign}${abs(value):,.4f}" if 0 < abs(value) < _CENT else f"{sign}${abs(value):,.2f}"


def percent(share: float) -> str:
    """Write a share of 1."""
    return f"{100 * share:.0f} %"


def when(time: float | None) -> str:
    """Write a time, to the second, in UTC."""
    return _written(time, "%Y-%m-%d %H:%M:%S")


def day(time: float | None) -> str:
    """Write a time, to the minute, in UTC."""
    return _written(time, "%d %b %Y, %H:%M")


def _written(time: float | None, form: str) -> str:
    try:
        return datetime.fromtimestamp(time or 0, UTC).strftime(form) if time is not None else "–"
    except (OverflowError, ValueError, OSError):
        return "–"


def machine_time(time: float | None) -> str:
    """Write a time for the attribute `datetime`."""
    return _written(time, "%Y-%m-%dT%H:%M:%SZ")
