"""Streamed answers, put together chunk by chunk."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from leporello.errors import MalformedAnswerError
from leporello.session.answers import (
    INCOMPLETE,
    ModelAnswer,
    as_dict,
    from_response,
    message_of_blocks,
    usage_of,
    without_empty_fields,
)
from leporello.session.responses_stream import ERROR, ResponsesStream

if TYPE_CHECKING:
    from leporello.messages import Message

_EVENTS = frozenset(
    {"message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta"}
)
_OF_CALLS = frozenset({"index", "id", "type", "function", "custom"})
_TEXTS = ("content", "reasoning_content", "reasoning", "refusal")


class Stream:
    """An answer that is still coming, in any dialect."""

    def __init__(self) -> None:
        self._openai = _OpenAIStream()
        self._anthropic = _AnthropicStream()
        self._responses = ResponsesStream()
        self._strange: Any = None
        self.recorded = False
        """Whether the answer is in the conversation already."""

    def take(self, chunk: Any) -> None:
        """Take the next chunk; what is no chunk of an answer is passed over.

        The packages' own helpers for streams say everything twice: in the provider's events, and in richer ones.
        """
        kind = _field(chunk, "type")
        if kind == "chunk":
            self.take(_field(chunk, "chunk"))
        elif kind in _EVENTS:
            self._anthropic.take(as_dict(chunk))
        elif isinstance(kind, str) and (kind.startswith("response.") or (kind == ERROR and self._responses.begun)):
            self._responses.take(as_dict(chunk))
        elif _field(chunk, "choices") is not None:
            self._openai.take(as_dict(chunk))
        elif not isinstance(kind, str):
            self._strange = chunk

    @property
    def is_finished(self) -> bool:
        """Whether all of the answer has come; a count may follow."""
        return bool(self._anthropic.finish or self._openai.finish or self._responses.ended)

    def answer(self, *, complete: bool) -> ModelAnswer | None:
        """Return the answer as far as it came; None when nothing came. A response that failed raises its error."""
        if self._responses.begun:
            return _of_response(self._responses, complete=complete)
        if complete and self._strange is not None and not self._openai.begun and not self._anthropic.begun:
            raise MalformedAnswerError(
                "this is no stream of an answer: pass what chat.completions.create(), messages.create() or "
                "responses.create() returns with stream=True; "
                f"it holds {type(self._strange).__name__} {self._strange!r:.60}"
            )
        reading: _OpenAIStream | _AnthropicStream = self._anthropic if self._anthropic.begun else self._openai
        message = reading.message()
        if message is None:
            return None
        if not complete or not reading.finish:
            message = cast("Message", {**message, INCOMPLETE: True})
        return ModelAnswer(
            message=message, usage=usage_of(reading.usage), model=reading.model, finish=reading.finish, id=reading.id
        )


def _of_response(stream: ResponsesStream, *, complete: bool) -> ModelAnswer | None:
    whole = stream.whole()
    if whole is None:
        return None
    answer = from_response(whole)
    broke_off = not (complete and stream.ended)
    return replace(answer, message=cast("Message", {**answer.message, INCOMPLETE: True})) if broke_off else answer


class _OpenAIStream:
    """Chunks of a chat completion."""

    def __init__(self) -> None:
        self.id = self.model = self.finish = ""
        self.usage: dict[str, Any] = {}
        self.begun = False
        self._texts: dict[str, list[str]] = {}
        self._lists: dict[str, list[Any]] = {}
        self._calls: list[dict[str, Any]] = []
        self._places: dict[Any, int] = {}

    def take(self, chunk: dict[str, Any]) -> None:
        self.begun = True
        self.id = self.id or str(chunk.get("id") or "")
        self.model = self.model or str(chunk.get("model") or "")
        if isinstance(chunk.get("usage"), Mapping):
            self.usage = dict(chunk["usage"])
        for choice in _mappings(chunk["choices"]):
            if not choice.get("index"):
                self.finish = str(choice.get("finish_reason") or self.finish)
                self._delta(_mapping(choice.get("delta")))

    def _delta(self, delta: Mapping[str, Any]) -> None:
        for key, value in delta.items():
            if isinstance(value, str) and key in _TEXTS:
                self._texts.setdefault(key, []).append(value)
            elif key == "tool_calls":
                for call in _mappings(value):
                    self._call(call)
            elif isinstance(value, list) and value:
                self._lists.setdefault(key, []).extend(value)

    def _call(self, piece: Mapping[str, Any]) -> None:
        """Add a piece to its call: the one with this index, else the one with this id, else the newest."""
        function = _mapping(piece.get("function"))
        place = self._place(piece)
        call = self._calls[place]
        call["id"] = call["id"] or piece.get("id") or ""
        call["type"] = piece.get("type") or call["type"]
        call["function"]["name"] += function.get("name") or ""
        call["function"]["arguments"] += function.get("arguments") or ""
        if custom := _mapping(piece.get("custom")):
            said = call.get("custom") or {"name": "", "input": ""}
            call["custom"] = {key: said[key] + (custom.get(key) or "") for key in said}
        extra = {key: value for key, value in piece.items() if key not in _OF_CALLS and value}
        call.update(extra)

    def _place(self, piece: Mapping[str, Any]) -> int:
        key = piece.get("index")
        if key is None:
            key = piece.get("id") or len(self._calls) - 1
        if key not in self._places:
            self._places[key] = len(self._calls)
            self._calls.append({"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
        return self._places[key]

    def message(self) -> Message | None:
        texts = {key: "".join(pieces) for key, pieces in self._texts.items()}
        fields = {**{key: text for key, text in texts.items() if text}, **self._lists}
        if self._calls:
            fields["tool_calls"] = [_call_of(call) for call in self._calls]
        if not fields and not self.finish:
            return None
        return without_empty_fields({"content": texts.get("content") if not self._calls else None, **fields})


def _call_of(call: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a call, without an empty function beside a custom tool."""
    if "custom" in call:
        return {key: value for key, value in call.items() if key != "function"}
    return {**call, "function": dict(call["function"])}


class _AnthropicStream:
    """Events of an Anthropic message."""

    def __init__(self) -> None:
        self.id = self.model = self.finish = ""
        self.usage: dict[str, Any] = {}
        self.begun = False
        self._blocks: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, list[str]] = {}

    def take(self, event: dict[str, Any]) -> None:
        kind = event["type"]
        if kind == "message_start":
            message = _mapping(event.get("message"))
            self.begun = True
            self.id, self.model = str(message.get("id") or ""), str(message.get("model") or "")
            self._count(message.get("usage"))
        elif kind == "content_block_start":
            self._blocks[event.get("index", 0)] = dict(_mapping(event.get("content_block")))
        elif kind == "content_block_delta":
            self._delta(event.get("index", 0), _mapping(event.get("delta")))
        elif kind == "message_delta":
            self.finish = str(_mapping(event.get("delta")).get("stop_reason") or self.finish)
            self._count(event.get("usage"))

    def _count(self, usage: Any) -> None:
        if isinstance(usage, Mapping):
            self.usage.update({key: value for key, value in usage.items() if value is not None})

    def _delta(self, index: int, delta: Mapping[str, Any]) -> None:
        block = self._blocks.setdefault(index, {"type": "text", "text": ""})
        for key in ("text", "thinking", "signature"):
            if isinstance(delta.get(key), str):
                block[key] = (block.get(key) or "") + delta[key]
        if isinstance(delta.get("partial_json"), str):
            self._inputs.setdefault(index, []).append(delta["partial_json"])
        if delta.get("citation"):
            block["citations"] = [*(block.get("citations") or []), delta["citation"]]
        if delta.get("type") == "compaction_delta":  # the provider's own compaction comes whole
            block.update({key: value for key, value in delta.items() if key != "type"})

    def _block(self, index: int) -> dict[str, Any]:
        """Return a block; the input of a tool that the provider runs itself comes in pieces too."""
        block, raw = self._blocks[index], "".join(self._inputs.get(index, ()))
        if not raw or block.get("type") == "tool_use":
            return block
        try:
            return {**block, "input": json.loads(raw)}
        except (ValueError, RecursionError):  # it broke off
            return block

    def message(self) -> Message | None:
        blocks = {index: self._block(index) for index in sorted(self._blocks) if _says_something(self._blocks[index])}
        if not blocks and not self.finish:
            return None
        message = message_of_blocks(list(blocks.values()))
        calls = [index for index, block in blocks.items() if block.get("type") == "tool_use"]
        for call, index in zip(message.get("tool_calls") or [], calls, strict=True):
            if raw := "".join(self._inputs.get(index, ())):
                call["function"]["arguments"] = raw
        return message


def _field(chunk: Any, name: str) -> Any:
    """Return a field of a chunk, an SDK object or a dict; None when it has none."""
    if isinstance(chunk, Mapping):
        return chunk.get(name)
    return getattr(chunk, name, None) if hasattr(chunk, "model_dump") else None


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _says_something(block: dict[str, Any]) -> bool:
    return block.get("type") != "text" or bool(block.get("text"))
