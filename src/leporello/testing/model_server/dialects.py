"""The dialects that the model server speaks, each a module of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol, cast

from leporello.testing.model_server import anthropic_dialect, openai_dialect, responses_dialect

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leporello.testing.model_server.answer import Answer
    from leporello.testing.model_server.requests import ReceivedRequest


class Dialect(Protocol):
    """How answers are written."""

    def chunks(self, request: ReceivedRequest, answer: Answer) -> Iterable[bytes]:
        """Return the answer to a request as it goes over the wire."""

    def error_event(self, error: dict[str, Any]) -> bytes:
        """Return the event that ends a stream with an error."""


DIALECTS: Final = {
    "openai": cast("Dialect", openai_dialect),
    "anthropic": cast("Dialect", anthropic_dialect),
    "responses": cast("Dialect", responses_dialect),
}
