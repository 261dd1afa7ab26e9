"""The endpoints of the Responses API: creating a response, and requests about earlier ones.

A request may continue an earlier response by its id, or refer to items of earlier ones. Both are looked up in the
store, and the provider is sent the items themselves, as it may not have stored them. Unknown ids are passed on to the
provider, unless the gateway has keys: they could belong to another key.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, TypeVar

from leporello.gateway.bodies import parsed, written
from leporello.gateway.dialects import RESPONSES
from leporello.gateway.drop_in import DropIn, pass_on
from leporello.gateway.endpoint import Endpoint
from leporello.gateway.errors import Refused
from leporello.gateway.paths import query_of
from leporello.gateway.recognition import continued
from leporello.gateway.response_ids import find_item, find_response, forget_response, spoken_count
from leporello.messages.responses import Item, kind_of, reference_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from leporello.gateway.client_connection import ClientConnection
    from leporello.gateway.client_request import ClientRequest
    from leporello.gateway.response_ids import KnownResponse
    from leporello.gateway.state import State
    from leporello.messages import Dialect

T = TypeVar("T")
_JSON: Final[list[tuple[bytes, bytes]]] = [(b"content-type", b"application/json")]
_MOST_LISTED: Final = 100


class CreateResponse(DropIn):
    """`POST /v1/responses`."""

    too_many: int = HTTPStatus.SERVICE_UNAVAILABLE  # Codex asks again after it, and gives up after the other

    def __init__(self, state: State) -> None:
        super().__init__(state, RESPONSES)

    async def read(self, owner: str, content: bytes, function: Callable[[dict[str, Any]], T]) -> T:
        """Parse a body in a thread, as references are looked up in the store."""
        return await self.compute(owner, lambda: function(parsed(content, self.state.settings.limits)))

    def parsed(
        self, body: dict[str, Any], request: Request, content: bytes, owner: str, *, stored: int = 0
    ) -> ClientRequest:
        """Return a request in which references are replaced by the items themselves."""
        whole, before = self._resolved(body, owner)
        count = stored + (spoken_count(before.path) if before else 0)
        asked = super().parsed(whole, request, content if whole is body else written(whole), owner, stored=count)
        if before is not None:
            found = continued(self.state.store, asked.history, before.place, count, owner=owner)
            asked = replace(asked, found=found)
        elsewhere = [key for key in ("background", "conversation", "previous_response_id") if whole.get(key)]
        if elsewhere and owner:
            raise _not_here(elsewhere[-1], whole[elsewhere[-1]])
        return replace(asked, passed_on=bool(elsewhere))

    def _resolved(self, body: dict[str, Any], owner: str) -> tuple[dict[str, Any], KnownResponse | None]:
        """Return a body with its references replaced by items, and the response that it continues."""
        given = body.get("input")
        items = [{"role": "user", "content": given}] if isinstance(given, str) else given
        items = items if isinstance(items, list) else []
        previous = body.get("previous_response_id")
        before = None
        if isinstance(previous, str) and not body.get("conversation"):
            before = find_response(self.state.store, previous, owner=owner)
        referred = [self._referred(item, owner) for item in items]
        if before is None:
            same = all(new is old for new, old in zip(referred, items, strict=True))
            return body if same else {**body, "input": referred}, None
        rest = {key: value for key, value in body.items() if key != "previous_response_id"}
        return {**rest, "input": [*before.path, *referred]}, before

    def _referred(self, item: Any, owner: str) -> Any:
        """Return the item that a reference names; any other item unchanged."""
        if not (id_ := reference_of(item)):
            return item
        found = find_item(self.state.store, id_, owner=owner)
        if found is None and owner:
            raise Refused(404, f"Item with id '{id_}' not found.")
        return item if found is None else found


class ShowResponse(Endpoint):
    """`GET /v1/responses/{id}`, and the base class of other requests about a response."""

    dialect: Dialect = RESPONSES.name
    _path = ""
    """The part of the path behind the id."""

    async def serve(self, request: Request, client: ClientConnection, owner: str, content: bytes) -> None:
        """Answer from the store, or ask the provider if the response is not there."""
        id_ = request.path_params["id"]
        found = await self.compute(owner, partial(find_response, self.state.store, id_, owner=owner))
        if found is None:
            await self._ask_provider(request, client, owner, content)
            return
        body = await self.answer(request, found, owner)
        await client.answer(200, _JSON, written(body))

    async def answer(self, request: Request, found: KnownResponse, owner: str) -> dict[str, Any]:
        """Return the body of the answer about a known response."""
        if request.query_params.get("stream") == "true":
            raise Refused(400, "This response cannot be streamed because it was not created with background=true.")
        return found.body()

    async def _ask_provider(self, request: Request, client: ClientConnection, owner: str, content: bytes) -> None:
        id_ = request.path_params["id"]
        if owner or not id_.isascii() or not id_.replace("_", "").replace("-", "").isalnum():
            raise Refused(404, f"Response with id '{id_}' not found.")
        upstream = self.state.upstreams[self.dialect]
        sent = content if request.method == "POST" else None
        path = f"{RESPONSES.path}/{id_}{self._path}"
        reply = await upstream.send(path, sent, request.headers, query_of(request.scope), request.method)
        await pass_on(upstream, reply, client)


class DeleteResponse(ShowResponse):
    """Deletes the id of a response; its conversation stays."""

    async def answer(self, request: Request, found: KnownResponse, owner: str) -> dict[str, Any]:
        """Delete the id here and at the provider."""
        await self.compute(owner, partial(forget_response, self.state.store, found, owner=owner))
        upstream = self.state.upstreams[self.dialect]
        try:
            reply = await upstream.send(f"{RESPONSES.path}/{found.id}", None, request.headers, "", "DELETE")
            await reply.aclose()
        except Refused:  # it is gone here, which is what was asked for
            pass
        return {"id": found.id, "object": "response", "deleted": True}


class ListInputItems(ShowResponse):
    """Lists the input items of a response."""

    _path = "/input_items"

    async def answer(self, request: Request, found: KnownResponse, owner: str) -> dict[str, Any]:
        """List the items, the newest first unless the client asks otherwise."""
        items = [_named(item, number) for number, item in enumerate(found.input)]
        query = request.query_params
        if query.get("order", "desc") != "asc":
            items.reverse()
        after = query.get("after")
        if after:
            items = items[next((at + 1 for at, item in enumerate(items) if item["id"] == after), len(items)) :]
        limit = query.get("limit", "20")
        if not limit.isascii() or not limit.isdecimal() or not 1 <= int(limit) <= _MOST_LISTED:
            raise Refused(400, f"limit: a number from 1 to {_MOST_LISTED} is required.")
        listed = items[: int(limit)]
        ends = {"first_id": listed[0]["id"], "last_id": listed[-1]["id"]} if listed else {}
        return {"object": "list", "data": listed, **ends, "has_more": len(listed) < len(items)}


class CancelResponse(ShowResponse):
    """Refuses to cancel a response: only one in the background can be cancelled, which the provider makes."""

    _path = "/cancel"

    async def answer(self, request: Request, found: KnownResponse, owner: str) -> dict[str, Any]:
        """Refuse, as the provider does."""
        raise Refused(400, "Cannot cancel a synchronous response.")


class Upgrade(Endpoint):
    """A client that asks for a websocket is told to use HTTP, which it does at once."""

    dialect: Dialect = RESPONSES.name

    async def serve(self, request: Request, client: ClientConnection, owner: str, content: bytes) -> None:
        """Say which protocol is served."""
        refused = Refused(426, "websockets are not served here; use HTTP.")
        refused.headers["upgrade"] = "HTTP/1.1"
        raise refused


def _named(item: Item, number: int) -> Item:
    """Return an item with a type and an id: those that a client sent may have none."""
    return {"type": kind_of(item), **item, "id": item["id"] if isinstance(item.get("id"), str) else f"item_{number}"}


def _not_here(key: str, value: Any) -> Refused:
    if key == "previous_response_id":
        return Refused(400, f"Previous response with id '{value}' not found.", code="previous_response_not_found")
    return Refused(HTTPStatus.BAD_REQUEST, f"{key}: this gateway has keys, and does not pass this on.")
