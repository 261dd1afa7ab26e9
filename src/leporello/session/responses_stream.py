"""A streamed answer of the Responses API, put together event by event."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from leporello.messages.responses import kind_of

if TYPE_CHECKING:
    from leporello.messages.responses import Item

ENDS: Final = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})
"""The events that end an answer."""

ERROR: Final = "error"


class ResponsesStream:
    """Events of a response; an item counts as it is when it is done."""

    def __init__(self) -> None:
        self.begun: bool = False
        self.response: dict[str, Any] = {}
        """What is known of the response beside its output."""
        self.ended: bool = False
        self._done: dict[int, Item] = {}
        self._open: dict[int, Item] = {}
        self._texts: dict[int, list[str]] = {}

    def take(self, event: Mapping[str, Any]) -> None:
        """Take the next event."""
        kind, index = event.get("type"), event.get("output_index")
        if kind == ERROR:
            self.ended = True
            self.response = {**self.response, "status": "failed", "error": event.get("error") or dict(event)}
            return
        self.begun = True
        if isinstance(event.get("response"), Mapping):
            self.response = dict(event["response"])
            self.ended = self.ended or kind in ENDS
        elif not isinstance(index, int):
            return
        elif kind == "response.output_item.added" and isinstance(event.get("item"), Mapping):
            self._open[index] = dict(event["item"])
        elif kind == "response.output_item.done" and isinstance(event.get("item"), Mapping):
            self._done[index] = dict(event["item"])
            self._open.pop(index, None)
        elif kind == "response.output_text.delta":
            self._texts.setdefault(index, []).append(str(event.get("delta") or ""))

    def whole(self) -> dict[str, Any] | None:
        """Return the response as far as it came; None when nothing came."""
        output = [item for _, item in sorted(self._done.items())]
        if not self.ended:
            output += [said for index in sorted(self._open) if (said := self._begun_message(index))]
        if not output:
            output = list(self.response.get("output") or [])
        if not output and not self.ended:
            return None
        return {**self.response, "object": "response", "output": output}

    def _begun_message(self, index: int) -> Item | None:
        """Return a message that broke off; of calls and reasoning nothing can be used before they are whole."""
        text = "".join(self._texts.get(index, ()))
        item = self._open[index]
        if kind_of(item) != "message" or not text:
            return None
        return {**item, "status": "incomplete", "content": [{"type": "output_text", "text": text, "annotations": []}]}
