"""Parts and blocks: how the pieces of a message are written in OpenAI's and in Anthropic's format."""

from __future__ import annotations

import json
import re
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from leporello.errors import MessageError
from leporello.messages.rules import TEXT_TYPES, image_url
from leporello.messages.types import ANTHROPIC_NOTE, IMAGE_TYPES, THINKING_TYPES, Part
from leporello.messages.values import is_private, parse_arguments

if TYPE_CHECKING:
    from collections.abc import Mapping

_DATA_URL = re.compile(r"data:([^;,]+)(?:;[^;,]+)*;base64,(.*)\Z", re.IGNORECASE | re.DOTALL)
_LEGAL_ID = re.compile(r"[a-zA-Z0-9_-]+\Z")
_ILLEGAL_IN_ID = re.compile(r"[^a-zA-Z0-9_-]")
_UNSUPPORTED = {"input_audio": "audio", "file": "file"}


def anthropic_id(call_id: str) -> str:
    """Return a call's id in the characters that Anthropic takes; the same text always gives the same id."""
    if _LEGAL_ID.match(call_id):
        return call_id
    digest = blake2b(call_id.encode(errors="surrogatepass"), digest_size=6).hexdigest()
    return f"{_ILLEGAL_IN_ID.sub('_', call_id)}_{digest}"


def normal_part(part: Part) -> Part:
    """Return a part as both formats can say it: text, an http or base64 image, or a block that passes as it is.

    What Anthropic has no block for (audio, uploaded files) becomes a line of text that says so.
    """
    kind = part.get("type")
    if kind in TEXT_TYPES:
        return {"type": "text", "text": part.get(TEXT_TYPES[kind])}
    if kind in IMAGE_TYPES:
        return _normal_image(part)
    if kind == "file" and (document := _document(part.get("file"))):
        return document
    if kind in _UNSUPPORTED:
        return {"type": "text", "text": f"[{_UNSUPPORTED[kind]} that cannot be shown here]"}
    dropped = {"cache_control"} if kind in THINKING_TYPES else set()
    return {key: value for key, value in part.items() if not is_private(key) and key not in dropped}


def _normal_image(part: Part) -> Part:
    if part["type"] == "image":
        url = _source_url(part.get("source"))
        return _image(url) if url else {"type": "image", "source": part.get("source")}
    url = image_url(part)
    data = _DATA_URL.match(url)
    return _image(_data_url(data[1], data[2]) if data else url)


def _image(url: str) -> Part:
    return {"type": "image_url", "image_url": {"url": url}}


def _data_url(media_type: str, data: str) -> str:
    media_type = media_type.lower()
    return f"data:{'image/jpeg' if media_type == 'image/jpg' else media_type};base64,{data}"


def _source_url(source: Any) -> str:
    """Return the address of an Anthropic image source; "" for one that OpenAI's format cannot name."""
    if not isinstance(source, dict):
        return ""
    if source.keys() == {"type", "media_type", "data"} and source["type"] == "base64":
        return _data_url(str(source["media_type"]), str(source["data"]))
    return str(source["url"]) if source.keys() == {"type", "url"} and source["type"] == "url" else ""


def _document(file: Any) -> Part | None:
    """Return the document block of a PDF that stands in the message itself."""
    data = (
        _DATA_URL.match(file["file_data"])
        if isinstance(file, dict) and isinstance(file.get("file_data"), str)
        else None
    )
    if not data or data[1].lower() != "application/pdf":
        return None
    return {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": data[2]}}


def block_of(part: Any) -> Any:
    """Return the Anthropic block of a part, with its cache marker and whatever its note holds."""
    if not isinstance(part, dict):
        return part
    block = normal_part(part)
    if block.get("type") == "image_url":
        block = {"type": "image", "source": _source(block["image_url"]["url"])}
    block.update(note_of(part))
    marker = part.get("cache_control")
    return {**block, "cache_control": marker} if marker and can_carry_marker(block) else block


def _source(url: str) -> dict[str, str]:
    data = _DATA_URL.match(url)
    if data:
        return {"type": "base64", "media_type": data[1], "data": data[2]}
    return {"type": "url", "url": url}


def can_carry_marker(block: Any) -> bool:
    """Tell whether a block may carry a cache marker: thinking and text without words may not."""
    if not isinstance(block, dict):
        return False
    kind, text = block.get("type"), block.get("text")
    is_thinking = isinstance(kind, str) and kind in THINKING_TYPES
    return not is_thinking and not (isinstance(text, str) and not text.strip())


def part_of(block: Any) -> Any:
    """Return the part of an Anthropic block; fields that OpenAI's format does not know go into its note."""
    kind = block.get("type") if isinstance(block, dict) else None
    if kind == "text":
        return _noted({"type": "text", "text": block.get("text")}, block, ("type", "text"))
    if kind == "image" and (url := _source_url(block.get("source"))):
        return _noted(_image(url), block, ("type", "source"))
    return dict(block) if isinstance(block, dict) else block


def _noted(part: Part, block: dict[str, Any], known: tuple[str, ...]) -> Part:
    """Return the part with the block's cache marker, and a note of the fields beyond the known ones."""
    extra = {key: value for key, value in block.items() if key not in known and key != "cache_control"}
    if extra:
        part[ANTHROPIC_NOTE] = extra
    if block.get("cache_control"):
        part["cache_control"] = block["cache_control"]
    return part


def note_of(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return the note of a message, part or call; {} without one."""
    note = value.get(ANTHROPIC_NOTE)
    return note if isinstance(note, dict) else {}


def tool_use_of(call: Any, path: str) -> dict[str, Any]:
    """Return the tool_use block of a call."""
    try:
        name, raw = call["function"]["name"], call["function"]["arguments"]
        block = {"type": "tool_use", "id": anthropic_id(call["id"]), "name": name, "input": parse_arguments(raw)}
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise MessageError(
            f"not a tool call that can be converted ({error!r}); repair() repairs it", path=path
        ) from error
    block.update(note_of(call))
    return {**block, "cache_control": call["cache_control"]} if call.get("cache_control") else block


def call_of(block: dict[str, Any]) -> dict[str, Any]:
    """Return the tool call of a tool_use block."""
    arguments = json.dumps(block.get("input"), ensure_ascii=False)
    function = {"name": block.get("name"), "arguments": arguments}
    call = {"id": block.get("id"), "type": "function", "function": function}
    return _noted(call, block, ("type", "id", "name", "input"))


def tool_result_of(message: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return the tool_result block of a tool message."""
    call_id, content = message.get("tool_call_id"), message.get("content")
    if not isinstance(call_id, str):
        raise MessageError("a tool result without tool_call_id; repair() repairs it", path=path)
    note = note_of(message)
    block: dict[str, Any] = {"type": "tool_result", "tool_use_id": anthropic_id(call_id)}
    if content or not note.get("no_content"):
        block["content"] = [block_of(part) for part in content] if isinstance(content, list) else content
    block.update({key: value for key, value in note.items() if key != "no_content"})
    return {**block, "cache_control": message["cache_control"]} if message.get("cache_control") else block


def result_of(block: dict[str, Any]) -> dict[str, Any]:
    """Return the tool message of a tool_result block."""
    content = block.get("content")
    content = [part_of(inner) for inner in content] if isinstance(content, list) else content
    message = {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": content}
    message = _noted(message, block, ("type", "tool_use_id", "content"))
    if content is None:
        message["content"] = ""
        message[ANTHROPIC_NOTE] = {**note_of(message), "no_content": True}
    return message
