"""Requests about a history without an answer: how many tokens it has, or a compaction of it.

The provider is sent the folded conversation. The count of the client's whole history would be far larger than what the
model gets, and the client would compact it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leporello.gateway.bodies import written
from leporello.gateway.drop_in import pass_on
from leporello.gateway.endpoint import Endpoint
from leporello.gateway.recognition import recognise
from leporello.messages import leading_systems
from leporello.session.saved_branch import window_upto
from leporello.store import Branch

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

    from leporello.gateway.client_connection import ClientConnection
    from leporello.gateway.client_request import ClientRequest
    from leporello.gateway.drop_in import DropIn
    from leporello.gateway.state import State
    from leporello.messages import Dialect


class FoldedView(Endpoint):
    """A request about a history, passed on with the folded conversation; nothing is stored."""

    def __init__(self, state: State, of: Callable[[State], DropIn], path: str) -> None:
        super().__init__(state)
        self._of = of(state)
        self._path = path
        self.dialect: Dialect = self._of.dialect

    async def serve(self, request: Request, client: ClientConnection, owner: str, content: bytes) -> None:
        """Pass the request on."""
        asked = await self._of.parse(request, owner, content)
        sent = asked.content
        if asked.is_kept:
            sent = await self.compute(owner, self._folded, asked, owner)
        upstream = self.state.upstreams[self.dialect]
        reply = await upstream.send(self._path, sent, asked.headers, asked.query)
        await pass_on(upstream, reply, client)

    def _folded(self, asked: ClientRequest, owner: str) -> bytes:
        """Return the request with the window of its conversation; unchanged if that was not folded."""
        history, store = asked.history, self.state.store
        found = asked.found or recognise(store, history, owner=owner, named=bool(asked.identity.name), looks_only=True)
        if not found.places:
            return asked.content
        place = found.places[0]
        branch = Branch(store, place.conversation, owner, place.branch)
        if not branch.window().items:
            return asked.content
        window = [entry.message for entry in window_upto(branch, place.id)]
        if not window:
            return asked.content
        said = [*window[leading_systems(window) :], *history.after(found.count)]
        dialect = self._of.wire_format
        return written(dialect.folded(asked.body, dialect.request([*history.systems, *said])))
