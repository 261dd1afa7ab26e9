"""A request of a client to a drop-in endpoint, parsed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leporello.gateway.dialects import has_additional_tools

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leporello.gateway.history import History
    from leporello.gateway.identity import Identity
    from leporello.gateway.recognition import Recognised


@dataclass(frozen=True, kw_only=True)
class ClientRequest:
    """The request as bytes for the provider and as data, its headers and query, and the history in it.

    `found` is the place where it continues if the client named it, as by `previous_response_id`; None leaves that to
    recognition. `passed_on` is set if only the provider can serve it.
    """

    content: bytes
    body: dict[str, Any]
    headers: Mapping[str, str]
    query: str
    identity: Identity
    history: History
    found: Recognised | None = None
    passed_on: bool = False

    @property
    def is_kept(self) -> bool:
        """Whether its conversation is stored; any other request is passed on to the provider."""
        return bool(self.history.hashes) and self.history.is_readable and not self.passed_on

    @property
    def model(self) -> str:
        """The model in the body, "" without one."""
        model = self.body.get("model")
        return model if isinstance(model, str) and model.isprintable() else ""

    @property
    def tools(self) -> list[dict[str, Any]]:
        """The tools of the client."""
        tools = self.body.get("tools")
        return [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []

    @property
    def marked(self) -> list[Any]:
        """Everything that may have a cache mark of the client: the body as a whole, and its messages."""
        return [self.body, *self.history.systems, *self.history.messages]

    @property
    def is_aside(self) -> bool:
        """Whether an agent asks apart from its work, for a title for example: it says so, or offers no tools then."""
        if self.identity.aside:
            return True
        return self.identity.by_agent and not self.tools and not has_additional_tools(self.body)
