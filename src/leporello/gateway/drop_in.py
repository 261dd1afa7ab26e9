"""The drop-in endpoints: a client of a provider points its base_url here, and changes nothing else."""

from __future__ import annotations

from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

from leporello.gateway.bodies import check_count
from leporello.gateway.endpoint import Endpoint
from leporello.gateway.exchange import SESSION, Exchange, Sent, pass_refusal
from leporello.gateway.history import parse
from leporello.gateway.state import checked_name

if TYPE_CHECKING:
    from starlette.requests import Request

    from leporello.gateway.dialects import Dialect
    from leporello.gateway.history import History
    from leporello.gateway.relay import Client
    from leporello.gateway.state import State
    from leporello.gateway.upstream import Reply, Upstream


class DropIn(Endpoint):
    """Where answers are asked for: `/v1/chat/completions` or `/v1/messages`."""

    def __init__(self, state: State, dialect: Dialect) -> None:
        super().__init__(state)
        self.dialect = dialect.name
        self._dialect = dialect

    async def serve(self, request: Request, client: Client, owner: str, content: bytes) -> None:
        """Serve one turn of a conversation."""
        state, dialect = self.state, self._dialect
        upstream = state.upstreams[dialect.name]
        name = checked_name(request.headers[SESSION]) if SESSION in request.headers else ""
        body, history = await self.read(owner, content, partial(self._parsed, owner=owner, name=name))
        if not history.hashes or not history.is_readable:  # the provider may know what to do with it
            reply = await upstream.send(dialect.path, content, request.headers, request.url.query)
            await pass_on(upstream, reply, client)
            return
        sent = Sent(content=content, body=body, headers=request.headers, query=request.url.query, history=history)
        claim = await state.clients.claim(history, owner=owner, dialect=dialect.name, name=name, model=sent.model)
        release = state.releaser(claim.client, sent.model)
        try:
            await Exchange(sent, dialect=dialect, upstream=upstream, claim=claim, caller=client, release=release).run()
        finally:
            release()

    def _parsed(self, body: dict[str, Any], owner: str, name: str) -> tuple[dict[str, Any], History]:
        messages = self._dialect.messages(body)
        check_count(messages, self.state.settings.limits)
        return body, parse(messages, owner=owner, dialect=self.dialect, name=name)


class PassThrough(Endpoint):
    """Whatever else a client asks its provider: passed on as it is, and so is the answer."""

    def __init__(self, state: State, dialect: Dialect, path: str) -> None:
        super().__init__(state)
        self.dialect = dialect.name
        self._path = path

    async def serve(self, request: Request, client: Client, owner: str, content: bytes) -> None:
        """Pass the request on."""
        upstream = self.state.upstreams[self.dialect]
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
