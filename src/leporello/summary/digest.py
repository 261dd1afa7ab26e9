"""Turns into the text that a summariser reads.

What people and assistants said is complete. A long tool output, or the long arguments of a call, become a digest: both
ends, and from between them the lines with errors and the lines unlike the others, after a mark that says how much is
left out. Thinking stays out; images and other media become labels.

What it reads was redacted as a whole, so that no half of a secret can remain where something is cut. Of a very long
conversation the oldest turns may come as an outline.

Every heading carries a code that no text below it contains, so a quoted text cannot pass for a turn of its own.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from leporello.messages.fixed import SUMMARY_MARK, is_cleared
from leporello.messages.rules import is_thinking
from leporello.messages.types import IMAGE_TYPES, parts_of, role_of, text_of
from leporello.redact import ABOUT, CALLED
from leporello.summary.excerpt import excerpt, soft_end
from leporello.tokens import count_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leporello.messages.types import Part
    from leporello.redact import RedactedMessage
    from leporello.summary.outline import Outline

DEFAULT_LIMIT = 4_000
"""Characters of a tool output, or of the arguments of a call, that reach the summariser without a cut."""


_MAX_NAME = 32
_MAX_ADDRESS = 240
_JOINT = 2


@dataclass(frozen=True, kw_only=True, slots=True)
class Turn:
    """One message as a summariser reads it: its place in the list, and how many characters of it are not shown.

    Or several of them in outline.
    """

    index: int
    label: str
    body: str
    left_out: int = 0
    messages: int = 1
    code: str = ""

    @property
    def heading(self) -> str:
        """The label with its code."""
        return f"[{self.label} · {self.code}]"

    @property
    def text(self) -> str:
        """The heading and what was said."""
        return f"{self.heading}\n{self.body}"

    @property
    def stop(self) -> int:
        """The place behind what this covers."""
        return self.index + self.messages


@dataclass(frozen=True, kw_only=True, slots=True)
class Chunk:
    """Consecutive turns that fit into one prompt: the messages from `start` up to, and without, `stop`."""

    text: str
    tokens: int
    start: int
    stop: int


class _Piece(NamedTuple):
    """A stretch of a message; one that is `foldable` may be shown as a digest."""

    message: int
    text: str
    foldable: bool


def digest(
    messages: Sequence[RedactedMessage], *, limit: int | None = DEFAULT_LIMIT, older: Outline | None = None
) -> list[Turn]:
    """Return the turns of a conversation; without a `limit` nothing is cut.

    `older` is the outline of its oldest messages, which are then not read again.
    """
    blocks = older.blocks if older else []
    turns = [
        Turn(index=start, label=f"#{start} to #{stop - 1}, in outline", body=_encodable(body), messages=stop - start)
        for start, stop, body in blocks
        if body
    ]
    turns += _turns(_pieces(messages, older.stop if older else 0), limit)
    code = _code([turn.body for turn in turns])
    return [replace(turn, code=code) for turn in turns]


def _code(bodies: list[str]) -> str:
    """Return a code that stands in none of the texts, the same for the same texts."""
    whole, number = blake2b(digest_size=8), 0
    for body in bodies:
        whole.update(body.encode("utf-8", "surrogatepass"))
    while True:
        code = blake2b(whole.digest() + bytes([number]), digest_size=4).hexdigest()
        if not any(code in body for body in bodies):
            return code
        number += 1


def _turns(pieces: list[_Piece], limit: int | None) -> list[Turn]:
    """Put the pieces of each message together, the long ones folded."""
    shown: dict[int, list[str]] = {}
    left_out: dict[int, int] = {}
    for index, said, foldable in pieces:
        text = _encodable(said)
        folded, missing = excerpt(text, limit) if foldable and limit is not None and len(text) > limit else (text, 0)
        shown.setdefault(index, []).append(folded)
        left_out[index] = left_out.get(index, 0) + missing
    return [
        Turn(index=index, label=label, body="\n".join(body), left_out=left_out[index])
        for index, (label, *body) in shown.items()
        if body
    ]


def sizes(turns: Sequence[Turn]) -> list[int]:
    """Return the tokens of each turn and of the line break behind it; no sum of them is too low."""
    return [count_text(turn.text) + _JOINT for turn in turns]


def chunks(turns: Sequence[Turn], max_tokens: int) -> list[str]:
    """Return the turns as texts of at most `max_tokens` each; a longer turn is continued in parts, never cut."""
    return [chunk.text for chunk in packed(turns, max_tokens)]


def packed(turns: Sequence[Turn], max_tokens: int, weights: Sequence[int] | None = None) -> list[Chunk]:
    """Return the turns in chunks of at most `max_tokens`, as even as can be, and which messages each one covers.

    `weights` are the `sizes` of the turns, for a caller that knows them already.
    """
    weights = sizes(turns) if weights is None else weights
    even = _even_share(sum(weights), max_tokens)
    found: list[Chunk] = []
    held: list[Turn] = []
    size = 0
    for turn, weight in zip(turns, weights, strict=True):
        if held and size + weight > even:
            found += _chunks(held, size, max_tokens)
            held, size = [], 0
        held.append(turn)
        size += weight
    return found + _chunks(held, size, max_tokens) if held else found


def _chunks(turns: list[Turn], tokens: int, max_tokens: int) -> list[Chunk]:
    """Return one chunk when the turns fit by their sizes, else as many as it takes."""
    if tokens > max_tokens:
        return _checked(turns, max_tokens)
    text = "\n\n".join([turn.text for turn in turns])
    return [Chunk(text=text, tokens=tokens, start=turns[0].index, stop=turns[-1].stop)]


def _even_share(total: int, most: int) -> int:
    """Return the size of chunks that come out even, with a little room for turns that do not divide evenly."""
    share = total // max(1, -(-total // most))
    return min(most, share + share // 20 + 1)


def _checked(turns: list[Turn], max_tokens: int) -> list[Chunk]:
    """Return one chunk, or as many as it takes when the turns are longer than they seemed."""
    text = "\n\n".join(turn.text for turn in turns)
    tokens = count_text(text)
    if tokens <= max_tokens:
        return [Chunk(text=text, tokens=tokens, start=turns[0].index, stop=turns[-1].stop)]
    if len(turns) == 1:
        return [chunk for part in _parts(turns[0], max_tokens) for chunk in _checked([part], max_tokens)]
    middle = len(turns) // 2
    return _checked(turns[:middle], max_tokens) + _checked(turns[middle:], max_tokens)


def _parts(turn: Turn, max_tokens: int) -> Iterator[Turn]:
    """Yield a turn that is too long for one chunk in labelled parts."""
    room = max_tokens - count_text(f"{turn.heading}, part 10000 of 10000\n") - 1
    if room < 1:
        raise ValueError(f"{max_tokens} tokens are too few for a part of a turn")
    bodies = list(_split(turn.body, room))
    for number, body in enumerate(bodies, 1):
        label = f"{turn.label}, part {number} of {len(bodies)}"
        yield replace(turn, label=label, body=body, left_out=0)


def _split(text: str, max_tokens: int) -> Iterator[str]:
    """Split a text where a line or a word ends, else anywhere, into parts of at most `max_tokens`."""
    start = 0
    while start < len(text):
        length = max(1, min(len(text) - start, 3 * max_tokens))
        while length > 1 and (tokens := count_text(text[start : start + length])) > max_tokens:
            length = max(1, min(length - 1, length * max_tokens // tokens))
        stop = start + length
        if stop < len(text):
            stop = soft_end(text, start, stop)
        yield text[start:stop]
        start = stop


def _pieces(messages: Sequence[RedactedMessage], start: int = 0) -> list[_Piece]:
    """Return of each message from `start` on its label, then what it says and calls."""
    pieces: list[_Piece] = []
    names: dict[Any, str] = {}
    for index, message in enumerate(messages[start:], start):
        role = role_of(message)
        pieces.append(_Piece(index, _label(index, role, message, names), foldable=False))
        content = message.get("content")
        if isinstance(content, str):
            if content and not is_cleared(content):
                pieces.append(_Piece(index, content, role == "tool"))
        elif isinstance(content, list):
            pieces += [piece for part in parts_of(message) for piece in _part_pieces(index, part, role)]
        if role == "assistant":
            for call_id, name, raw in _calls(message):
                names[call_id] = name
                arguments = raw.replace("\\n", "\n") if len(raw) > DEFAULT_LIMIT else raw
                pieces.append(_Piece(index, f"calls {name} with {arguments}", foldable=True))
    return pieces


def _calls(message: Any) -> Iterator[tuple[str, str, str]]:
    """Yield id, name and raw arguments of each readable tool call; unlike `tool_calls_of`, parse nothing."""
    calls = message.get("tool_calls")
    for call in calls if isinstance(calls, list) else ():
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            continue
        call_id, raw = call.get("id"), function.get("arguments")
        yield (
            call_id if isinstance(call_id, str) else "",
            _short(function.get("name")) or "unknown",
            raw if isinstance(raw, str) else _json(raw),
        )


def _label(index: int, role: str, message: Any, names: dict[Any, str]) -> str:
    if role == "tool":
        call_id = message.get("tool_call_id")
        tool = names.get(call_id) if isinstance(call_id, str) else None
        label = f"#{index} result of {tool or _short(message.get('name')) or 'a tool'}"
        about = message.get(ABOUT) or message.get(CALLED)
        return f"{label} about {' '.join(about.split())[:_MAX_ADDRESS]}" if isinstance(about, str) else label
    if _is_marked(message):
        return f"#{index} a text that begins like an earlier summary, quoted"
    label = f"#{index} {_short(role) or 'unknown role'}"
    for key in ("name", "timestamp"):
        if key in message and (short := _short(message[key])):
            label += f", {short}"
    return label


def _is_marked(message: Any) -> bool:
    content = message.get("content") if isinstance(message, dict) else None
    return text_of(message).startswith(SUMMARY_MARK) if isinstance(content, (str, list)) else False


def _short(value: Any) -> str:
    """Return a name on one line; whatever is no text has none."""
    return " ".join(value.split())[:_MAX_NAME] if isinstance(value, str) else ""


def _part_pieces(index: int, part: Part, role: str) -> Iterator[_Piece]:
    kind, text = part.get("type"), part.get("text")
    if is_thinking(part):
        return
    if isinstance(text, str):
        if text:
            yield _Piece(index, text, role == "tool")
    elif isinstance(refusal := part.get("refusal"), str):
        yield _Piece(index, refusal, foldable=False)
    elif isinstance(kind, str) and (kind in IMAGE_TYPES or kind in ("input_audio", "file")):
        yield _Piece(index, _media_label(kind, part), foldable=False)
    else:
        yield _Piece(index, _json(part), foldable=True)


def _media_label(kind: str, part: Part) -> str:
    """Name a medium: an image by its address unless the address is the image itself, a file by its name."""
    image, file = part.get("image_url"), part.get("file")
    address = image.get("url") if isinstance(image, dict) else image
    if isinstance(address, str) and not address.startswith("data:"):
        return f"[image {address[:_MAX_ADDRESS]}]"
    name = file.get("filename") if isinstance(file, dict) else None
    word = "image" if kind in IMAGE_TYPES else "audio" if kind == "input_audio" else "file"
    return f"[{word} {name}]" if isinstance(name, str) else f"[{word}]"


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (ValueError, RecursionError):
        return f"[unreadable {type(value).__name__}]"


def _encodable(text: str) -> str:
    """Replace lone surrogates, which no request can carry."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
