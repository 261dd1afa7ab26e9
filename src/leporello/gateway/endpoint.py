"""The base class of routes: checks the key, the number of running requests and the body, and answers errors."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from leporello.errors import LeporelloError
from leporello.gateway.bodies import SMALL, parsed, read_body, written
from leporello.gateway.client_connection import ClientConnection
from leporello.gateway.errors import Refused, public_message
from leporello.messages.visible import one_line
from leporello.redact import logger

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import Receive, Scope, Send

    from leporello.gateway.state import State
    from leporello.messages import Dialect


T = TypeVar("T")
_log = logger("leporello.gateway")


class Endpoint(ABC):
    """One route; subclasses implement `serve`."""

    dialect: Dialect = "openai"
    """The dialect of error messages."""
    too_many: int = HTTPStatus.TOO_MANY_REQUESTS
    """The status of a request that is one too many of its key."""

    def __init__(self, state: State) -> None:
        self.state = state

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        request, client = Request(scope, receive), ClientConnection(receive, send)
        started = time.monotonic()
        try:
            owner = self.state.owner(request.headers)
            with self.state.concurrency.slot(owner, self.too_many) as slot:
                content = await read_body(request, self.state.settings.limits, slot)
                await client.stays_for(self.serve(request, client, owner, content))
        except Refused as refused:
            await refuse(client, refused, self.dialect)
        except LeporelloError as error:
            _log.warning("a request failed: %s", one_line(str(error)))
            await refuse(client, Refused(503, public_message(error), retry_after=5), self.dialect)
        except ClientDisconnect:
            return
        finally:
            self.state.metrics.answered(type(self).__name__, client.status, time.monotonic() - started)

    @abstractmethod
    async def serve(self, request: Request, client: ClientConnection, owner: str, content: bytes) -> None:
        """Answer a request; raise Refused to answer with an error."""

    async def compute(self, owner: str, function: Callable[..., T], *args: Any) -> T:
        """Call a function in a thread of the key."""
        return await self.state.thread_limits.of(owner).run(partial(function, *args))

    async def read(self, owner: str, content: bytes, function: Callable[[dict[str, Any]], T]) -> T:
        """Parse a body and call a function with it; for a long one in a thread."""

        def reading() -> T:
            return function(parsed(content, self.state.settings.limits))

        return reading() if len(content) <= SMALL else await self.compute(owner, reading)


async def refuse(client: ClientConnection, refused: Refused, dialect: Dialect) -> None:
    """Answer with an error; if the answer has begun already, it ends here."""
    if client.status:
        _log.warning("an answer broke off: %s", one_line(str(refused)))
        return
    headers = {"content-type": "application/json", **refused.headers}
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()]
    await client.answer(refused.status, raw, written(refused.body(dialect)))
