"""What the provider of the Responses API remembers: the responses that it gave, and what they were answers to."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

from leporello.messages.responses import item_violations, kind_of, reference_of
from leporello.testing.model_server.failures import HTTPFailure, invalid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leporello.messages.responses import Item

NOT_FOUND: Final = 404


class Unknown(Exception):  # noqa: N818 - an answer, not a defect
    """A request that names what is not there."""

    def __init__(self, refusal: HTTPFailure) -> None:
        super().__init__(refusal.message)
        self.refusal = refusal


class ResponseMemory:
    """The responses of one provider; safe between threads. One that does not remember knows only what it is sent."""

    def __init__(self, *, remembers: bool = True) -> None:
        self._remembers = remembers
        self._responses: dict[str, tuple[list[Item], dict[str, Any]]] = {}
        self._items: dict[str, Item] = {}
        self._reasoned: dict[str, str] = {}
        self._lock = threading.Lock()

    def expanded(self, body: Mapping[str, Any]) -> list[Item]:
        """Return the whole input of a request, with what it refers to; Unknown when that is not there."""
        if body.get("previous_response_id") and body.get("conversation"):
            message = "Mutually exclusive parameters: 'conversation' and 'previous_response_id'."
            raise Unknown(invalid(message, code="mutually_exclusive_parameters"))
        given = body.get("input")
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given or []
        return [*self._before(body.get("previous_response_id")), *map(self._referred, items)]

    def refusal(self, items: list[Item]) -> HTTPFailure | None:
        """Return why a list of items is refused."""
        with self._lock:
            found = item_violations(items, self._reasoned)
        return invalid(f"input[{found[0].index}]: {found[0].message}", code=found[0].code) if found else None

    def keep(self, items: list[Item], response: dict[str, Any]) -> None:
        """Remember a response, and which of its items need the reasoning before them."""
        before: Item = {}
        with self._lock:
            for item in response["output"]:
                if kind_of(before) == "reasoning" and kind_of(item) != "reasoning" and "id" in item:
                    self._reasoned[item["id"]] = before["id"]
                before = item
            if self._remembers and response.get("store", True):
                self._responses[response["id"]] = (items, response)
                self._items.update({item["id"]: item for item in response["output"] if "id" in item})

    def response(self, id_: str) -> dict[str, Any]:
        """Return a response that was given."""
        return self._found(id_)[1]

    def input_items(self, id_: str) -> list[Item]:
        """Return what a response was an answer to."""
        return self._found(id_)[0]

    def delete(self, id_: str) -> None:
        """Forget a response."""
        self._found(id_)
        with self._lock:
            self._responses.pop(id_, None)

    def _found(self, id_: str) -> tuple[list[Item], dict[str, Any]]:
        with self._lock:
            found = self._responses.get(id_)
        if found is None:
            raise Unknown(_missing(f"Response with id '{id_}' not found."))
        return found

    def _before(self, id_: Any) -> list[Item]:
        if id_ is None:
            return []
        with self._lock:
            found = self._responses.get(id_)
        if found is None:
            message = f"Previous response with id '{id_}' not found."
            raise Unknown(invalid(message, code="previous_response_not_found"))
        return [*found[0], *found[1]["output"]]

    def _referred(self, item: Any) -> Any:
        if not (id_ := reference_of(item)):
            return item
        with self._lock:
            found = self._items.get(id_)
        if found is None:
            raise Unknown(_missing(f"Item with id '{id_}' not found."))
        return found


def _missing(message: str) -> HTTPFailure:
    return HTTPFailure(status=NOT_FOUND, type="invalid_request_error", message=message)
