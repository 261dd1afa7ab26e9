"""What changes something: each is asked once more before it is done, with the token of the sign-in."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from anyio import from_thread
from starlette.responses import Response, StreamingResponse

from leporello.errors import SessionError
from leporello.view.access import is_token
from leporello.view.page_request import ProblemError
from leporello.view.rendering import secured
from leporello.view.text import clean

if TYPE_CHECKING:
    from leporello.store import ConversationInfo
    from leporello.view.actions import Actions
    from leporello.view.page_request import PageRequest
    from leporello.view.rendering import Renderer


class Forms:
    """The forms that fold, pin, delete and export; without `actions` they are refused."""

    def __init__(self, renderer: Renderer, actions: Actions | None) -> None:
        self._renderer = renderer
        self._actions = actions

    def confirm(self, asked: PageRequest) -> Response:
        """Ask whether something is really meant."""
        info = self._changeable(asked)
        what = asked.text("what")
        if what not in ("fold", "pin", "unpin", "delete", "export"):
            raise ProblemError(HTTPStatus.NOT_FOUND, "There is no such action.")
        return self._renderer.about(asked, info, "confirm.html", what=what, id=asked.text("id"), csrf=asked.viewer.csrf)

    def act(self, asked: PageRequest) -> Response:
        """Do what was confirmed."""
        info = self._changeable(asked)
        actions, what, by = self._actions, asked.form.get("what"), asked.viewer.name
        assert actions is not None  # noqa: S101 - _changeable looked
        try:
            if what == "fold":
                told = actions.fold(info, asked.form.get("focus", "").strip(), by)
            elif what in ("pin", "unpin"):
                told = actions.pin(info, asked.form.get("id", ""), by, pinned=what == "pin")
            elif what == "delete":
                if forget := getattr(asked.request.app.state, "forget", None):  # the gateway may hold it ready
                    from_thread.run(forget, info.owner, info.key)
                told = actions.delete(info, by)
            else:
                raise ProblemError(HTTPStatus.NOT_FOUND, "There is no such action.")
        except SessionError as error:
            raise ProblemError(HTTPStatus.CONFLICT, clean(error)) from error
        return self._renderer.about(asked, info, "done.html", told=told, gone=what == "delete")

    def export(self, asked: PageRequest) -> Response:
        """Write everything that is stored of a conversation, secrets too."""
        info = self._changeable(asked)
        assert self._actions is not None  # noqa: S101 - _changeable looked
        lines = self._actions.export(info, asked.viewer.name)
        headers = {"content-disposition": 'attachment; filename="conversation.jsonl"'}
        body = (f"{line}\n".encode("utf-8", "backslashreplace") for line in lines)
        return secured(StreamingResponse(body, media_type="application/x-ndjson", headers=headers))

    def _changeable(self, asked: PageRequest) -> ConversationInfo:
        """Return the conversation of an action; a form must carry the token of its sign-in."""
        if self._actions is None:
            raise ProblemError(HTTPStatus.FORBIDDEN, "This page only reads.")
        if asked.request.method == "POST" and not is_token(asked.viewer, asked.form.get("csrf", "")):
            raise ProblemError(HTTPStatus.FORBIDDEN, "This form is no longer valid; open the page again.")
        return asked.conversation()
