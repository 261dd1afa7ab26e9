"""The drop-in endpoints: a client of a provider points its base_url here, and changes nothing else."""

from __future__ import annotations

from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

from leporello.gateway.bodies import check_count
from leporello.gateway.client_request import ClientRequest
from leporello.gateway.endpoint import Endpoint
from leporello.gateway.errors import Refused
from leporello.gateway.exchange import Exchange, pass_refusal
from leporello.gateway.history import parse
from leporello.gateway.identity import SESSION, identity_of
from leporello.gateway.keep_alive import KeepAliveConnection
from leporello.gateway.paths import provider_path, query_of

if TYPE_CHECKING:
    from starlette.requests import Request

    from leporello.gateway.client_connection import ClientConnection
    from leporello.gateway.dialects import WireFormat
    from leporello.gateway.reply import Reply
    from leporello.gateway.state import State
    from leporello.gateway.upstream import Upstream
    from leporello.messages import Dialect


class DropIn(Endpoint):
    """`/v1/chat/completions`, `/v1/messages` or `/v1/responses`: one turn of a conversation."""

    def __init__(self, state: State, dialect: WireFormat) -> None:
        super().__init__(state)
        self.dialect: Dialect = dialect.name
        self.wire_format = dialect

    async def serve(self, request: Request, client: ClientConnection, owner: str, content: bytes) -> None:
        """Serve one turn of a conversation; what cannot be stored is passed on."""
        asked = await self.parse(request, owner, content)
        if not asked.is_kept:
            upstream = self.state.upstreams[self.dialect]
            reply = await upstream.send(self.wire_format.path, asked.content, asked.headers, asked.query)
            await pass_on(upstream, reply, client)
        elif asked.body.get("stream") is True:
            await self._exchange_with_keep_alive(asked, client, owner)
        else:
            await self._exchange(asked, client, owner)

    async def parse(self, request: Request, owner: str, content: bytes) -> ClientRequest:
        """Parse a request."""
        return await self.read(owner, content, partial(self.parsed, request=request, content=content, owner=owner))

    def parsed(
        self, body: dict[str, Any], request: Request, content: bytes, owner: str, *, stored: int = 0
    ) -> ClientRequest:
        """Return a request whose body is read; `stored` of its messages did not come from the client."""
        messages = self.wire_format.messages(body)
        check_count(messages, self.state.settings.limits, stored=stored)
        identity = identity_of(request.headers)
        return ClientRequest(
            content=content,
            body=body,
            headers=request.headers,
            query=query_of(request.scope),
            identity=identity,
            history=parse(messages, owner=owner, dialect=self.dialect, name=identity.name),
        )

    async def _exchange_with_keep_alive(self, asked: ClientRequest, client: ClientConnection, owner: str) -> None:
        """Serve a turn, and keep the connection alive until the answer begins."""
        connection = KeepAliveConnection(client, self.wire_format)
        try:
            async with connection.waiting():
                await self._exchange(asked, connection, owner)
        except Refused as refused:
            if not connection.begun:
                raise
            await connection.refuse(refused)

    async def _exchange(self, asked: ClientRequest, client: ClientConnection, owner: str) -> None:
        state, dialect = self.state, self.wire_format
        claim = await state.clients.claim(
            asked.history,
            owner=owner,
            dialect=dialect.name,
            name=asked.identity.name,
            model=asked.model,
            found=asked.found,
            head=not asked.is_aside,
        )
        client.headers.append((SESSION.encode(), claim.session.address.conversation.encode()))
        release = state.releaser(claim.session, asked.model)
        upstream = state.upstreams[dialect.name]
        try:
            await Exchange(asked, dialect=dialect, upstream=upstream, claim=claim, caller=client, release=release).run()
        finally:
            release()


class PassThrough(Endpoint):
    """Other requests of a client to its provider: passed on unchanged, as is the answer."""

    def __init__(self, state: State, dialect: WireFormat) -> None:
        super().__init__(state)
        self.dialect: Dialect = dialect.name

    async def serve(self, request: Request, client: ClientConnection, owner: str, content: bytes) -> None:
        """Pass the request on."""
        upstream = self.state.upstreams[self.dialect]
        path = provider_path(request.scope, self.dialect)
        if path is None:
            raise Refused(400, "the path holds an id that is none: letters, digits and . _ : @ ~ = - make one.")
        sent = content if request.method == "POST" else None
        reply = await upstream.send(path, sent, request.headers, query_of(request.scope), request.method)
        await pass_on(upstream, reply, client)


class OfAccount(PassThrough):
    """Files, batches and OpenAI's conversations, which belong to a provider's account: only where clients have one."""

    async def serve(self, request: Request, client: ClientConnection, owner: str, content: bytes) -> None:
        """Pass the request on, unless all clients share the gateway's account."""
        if self.state.keys and not self.state.upstreams[self.dialect].with_client_key:
            raise Refused(
                403,
                "files, batches and conversations at the provider belong to the account of the gateway, which its"
                " clients share. They are served where clients have accounts of their own"
                f" (gateway.upstreams.{self.dialect}.pass_client_key: always).",
            )
        await super().serve(request, client, owner, content)


async def pass_on(upstream: Upstream, reply: Reply, client: ClientConnection) -> None:
    """Pass an answer on as it comes; an error without what clients may not see."""
    async with aclosing(reply):
        if not reply.is_success:
            await pass_refusal(upstream, reply, await reply.read(), client)
            return
        await client.start(reply.status, reply.passed_back())
        async for piece in reply.pieces():
            await client.write(piece)
    await client.finish()
