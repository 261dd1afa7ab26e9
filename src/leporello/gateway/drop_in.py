"""The drop-in endpoints: a client of a provider points its base_url here, and changes nothing else."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from leporello.gateway.bodies import check_count
from leporello.gateway.door import Door
from leporello.gateway.exchange import SESSION, Exchange, Sent, pass_refusal
from leporello.gateway.history import hear
from leporello.gateway.house import checked_name

if TYPE_CHECKING:
    from starlette.requests import Request

    from leporello.gateway.dialects import Dialect
    from leporello.gateway.history import Heard
    from leporello.gateway.house import House
    from leporello.gateway.relay import Client
    from leporello.gateway.upstream import Reply, Upstream


class DropIn(Door):
    """Where answers are asked for: `/v1/chat/completions` or `/v1/messages`."""

    def __init__(self, house: House, dialect: Dialect) -> None:
        super().__init__(house)
        self.dialect = dialect.name
        self._dialect = dialect

    async def serve(self, request: Request, client: Client, owner: str, content: bytes) -> None:
        """Serve one turn of a conversation."""
        house, dialect = self.house, self._dialect
        upstream = house.upstreams[dialect.name]
        body, heard = await self.read(owner, content, self._heard)
        if not heard.marks or not heard.is_known:  # the provider may know what to do with it
            reply = await upstream.send(dialect.path, content, request.headers, request.url.query)
            await pass_on(upstream, reply, client)
            return
        sent = Sent(content=content, body=body, headers=request.headers, query=request.url.query, heard=heard)
        name = checked_name(request.headers[SESSION]) if SESSION in request.headers else ""
        live = await house.shelf.claim(heard, owner=owner, dialect=dialect.name, family=name, model=sent.model)
        try:
            await Exchange(sent, dialect=dialect, upstream=upstream, live=live, shelf=house.shelf, client=client).run()
        finally:
            house.give_back(live, sent.model)

    def _heard(self, body: dict[str, Any]) -> tuple[dict[str, Any], Heard]:
        messages = self._dialect.messages(body)
        check_count(messages, self.house.settings.limits)
        return body, hear(messages)


class PassThrough(Door):
    """Whatever else a client asks its provider: passed on as it is, and so is the answer."""

    def __init__(self, house: House, dialect: Dialect, path: str) -> None:
        super().__init__(house)
        self.dialect = dialect.name
        self._path = path

    async def serve(self, request: Request, client: Client, owner: str, content: bytes) -> None:
        """Pass the request on."""
        upstream = self.house.upstreams[self.dialect]
        sent = content if request.method == "POST" else None
        reply = await upstream.send(self._path, sent, request.headers, request.url.query, request.method)
        await pass_on(upstream, reply, client)


async def pass_on(upstream: Upstream, reply: Reply, client: Client) -> None:
    """Pass an answer on as it comes; of a refusal, what a client may know."""
    async with aclosing(reply):
        if not reply.is_success:
            await pass_refusal(upstream, reply, await reply.read(), client, reply.passed_back())
            return
        await client.start(reply.status, reply.passed_back())
        async for piece in reply.pieces():
            await client.write(piece)
    await client.finish()
