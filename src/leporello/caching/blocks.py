"""A request as a provider's cache sees it: a row of blocks.

Tools come first, then the system prompt, then the parts, calls and results of the messages. How a text is written
(alone, or as a part with a mark) makes no difference to what a block says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from leporello.caching.markers import BREAKPOINT, CACHE_CONTROL
from leporello.messages import fingerprint, role_of
from leporello.messages.blocks import can_carry_marker
from leporello.tokens import count_message, count_tools

if TYPE_CHECKING:
    from collections.abc import Sequence

_MARKS = frozenset({CACHE_CONTROL, BREAKPOINT})
_PLAIN = frozenset({"role", "content", "tool_call_id"})
_TEXT = {"type", "text"}


@dataclass(frozen=True, kw_only=True)
class Block:
    """One step of a request: what it says (a fingerprint), how long it is, and how it is marked ("" if it is not).

    `closes` tells that it ends a message of the user or a tool result: where a provider sets marks of its own.
    """

    says: str
    tokens: int
    mark: str = ""
    closes: bool = False


@dataclass(frozen=True, kw_only=True)
class _Piece:
    """A part, a call or a result: what it says, its mark, whether it can carry one, and its share of the tokens."""

    says: str
    weight: int
    mark: str = ""
    carries: bool = True


def blocks_of(messages: Sequence[Any], tools: Sequence[Any] | None = None, system: Any = None) -> list[Block]:
    """Return a request in OpenAI's format as a row of blocks, with the tokens that we would count."""
    listed = list(tools or ())
    row = _row([_piece({"tool": _unmarked(tool)}, tool) for tool in listed], count_tools(listed))
    if system:
        row += _message_blocks({"role": "system", "content": system})
    for message in messages:
        row += _message_blocks(message)
    return row


def mark_of(value: Any) -> str:
    """Return the lifetime that a message, part, call or tool is marked with; "" without a mark."""
    if not isinstance(value, Mapping):
        return ""
    if isinstance(marker := value.get(CACHE_CONTROL), dict):
        return str(marker.get("ttl") or "5m")
    if isinstance(marker := value.get(BREAKPOINT), dict):
        return str(marker.get("ttl") or "30m")
    return ""


def _message_blocks(message: Any) -> list[Block]:
    if not isinstance(message, dict):
        return []
    message, role = _alone(message), role_of(message)
    row = _row(_marked(_pieces(message, role), mark_of(message)), count_message(message))
    if row and role in ("user", "tool"):
        row[-1] = replace(row[-1], closes=True)
    return row


def _alone(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message whose only part is a text with that text alone, and with that part's mark."""
    content = message.get("content")
    if not isinstance(content, list) or len(content) != 1 or not isinstance(content[0], dict):
        return message
    if content[0].keys() - _MARKS != _TEXT:
        return message
    marks = {key: content[0][key] for key in _MARKS & content[0].keys()}
    return {**message, **marks, "content": content[0]["text"]}


def _pieces(message: dict[str, Any], role: str) -> list[_Piece]:
    content, signed, calls = (message.get(key) for key in ("content", "thinking_blocks", "tool_calls"))
    if role == "tool":
        return [_result(message, content)]
    pieces = [_part(role, part) for part in _listed(signed)] + [_part(role, part) for part in _listed(content)]
    if isinstance(content, str) and content:
        pieces.append(_text(role, content))
    return pieces + [_piece({"role": role, "tool_calls": [_unmarked(call)]}, call) for call in _listed(calls)]


def _result(message: dict[str, Any], content: Any) -> _Piece:
    """Return the one piece of a tool result; a mark on something in it is its mark."""
    if isinstance(content, str) and message.keys() - _MARKS <= _PLAIN:
        return _text("tool", content, str(message.get("tool_call_id")))
    inner = next(filter(None, map(mark_of, reversed(_listed(content)))), "")
    return _Piece(says=fingerprint(_unmarked(message)), weight=1, mark=inner)


def _part(role: str, part: Any) -> _Piece:
    if isinstance(part, dict) and part.keys() - _MARKS == _TEXT and isinstance(part["text"], str):
        return replace(_text(role, part["text"]), mark=mark_of(part), carries=can_carry_marker(part))
    piece = _piece({"role": role, "content": [_unmarked(part)]}, part)
    return piece if can_carry_marker(part) else replace(piece, mark="", carries=False)


def _text(role: str, text: str, answers: str = "") -> _Piece:
    """Return a piece that is nothing but text: most are, so they are named in the fastest way."""
    said = f"{role}\0{answers}\0{text}".encode(errors="surrogatepass")
    return _Piece(says=blake2b(said, digest_size=16).hexdigest(), weight=len(text) + 1)


def _piece(bare: dict[str, Any], marked: Any) -> _Piece:
    return _Piece(says=fingerprint(bare), weight=len(str(bare)), mark=mark_of(marked))


def _marked(pieces: list[_Piece], mark: str) -> list[_Piece]:
    """Return the pieces of a message, the last one that can carry the message's own mark with it."""
    last = next((at for at in reversed(range(len(pieces))) if pieces[at].carries), None) if mark else None
    if last is not None:
        pieces[last] = replace(pieces[last], mark=mark)
    return pieces


def _unmarked(value: Any) -> Any:
    if not isinstance(value, dict) or not _MARKS & value.keys():
        return value
    return {key: item for key, item in value.items() if key not in _MARKS}


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _row(pieces: list[_Piece], tokens: int) -> list[Block]:
    """Return a block for each piece; together they have exactly `tokens` tokens."""
    if len(pieces) == 1:
        return [Block(says=pieces[0].says, tokens=tokens, mark=pieces[0].mark)]
    weights = list(accumulate(piece.weight for piece in pieces))
    ends = [tokens * weight // weights[-1] for weight in weights]
    return [
        Block(says=piece.says, tokens=end - start, mark=piece.mark)
        for piece, start, end in zip(pieces, [0, *ends], ends, strict=False)
    ]
