"""A request for a page: who looks, and what was asked for."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl

if TYPE_CHECKING:
    from starlette.requests import Request

    from leporello.store import ConversationInfo, Store
    from leporello.view.access import Viewer

_LONGEST_FORM: Final = 64 * 1024
_LONGEST_QUERY: Final = 1_000
_DIGITS: Final = 12


class ProblemError(Exception):
    """What is told instead of a page."""

    def __init__(self, status: HTTPStatus, told: str) -> None:
        super().__init__(told)
        self.status = status


class PageRequest:
    """A request for a page: who looks, and what was asked for."""

    def __init__(self, request: Request, viewer: Viewer, store: Store, form: dict[str, str]) -> None:
        self.request = request
        self.viewer = viewer
        self.store = store
        self.form = form

    def text(self, name: str) -> str:
        """Return a parameter, "" without it."""
        return self.request.query_params.get(name, "")[:_LONGEST_QUERY]

    def number(self, name: str, default: int = 0) -> int:
        """Return a parameter that is a whole number."""
        given = self.text(name)
        return int(given) if given.isascii() and given.isdecimal() and len(given) <= _DIGITS else default

    @property
    def reveal(self) -> bool:
        """Whether secrets are asked for."""
        return self.text("reveal") == "1"

    @property
    def is_fragment(self) -> bool:
        """Whether a part of the page was asked for by the page itself."""
        return self.request.headers.get("hx-request") == "true"

    def conversation(self) -> ConversationInfo:
        """Return the conversation that was asked for, if this viewer may see it."""
        key = self.text("c")
        owner = self.viewer.owner if self.viewer.owner is not None else self.text("owner")
        info = self.store.info(key, owner=owner) if key else None
        if info is None:
            raise ProblemError(HTTPStatus.NOT_FOUND, "There is no such conversation, or it belongs to another key.")
        return info


async def form_of(request: Request) -> dict[str, str]:
    """Read a small form."""
    content = b""
    async for chunk in request.stream():
        content += chunk
        if len(content) > _LONGEST_FORM:
            return {}
    return dict(parse_qsl(content.decode("utf-8", "replace"), keep_blank_values=True))
