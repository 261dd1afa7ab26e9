"""What a page is answered with: a template that is rendered, the headers that keep it safe, or what went wrong."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.responses import HTMLResponse, Response

from leporello.store.titles import title_of
from leporello.view.access import headers_of
from leporello.view.rendering import Here, environment
from leporello.view.text import piece_of

if TYPE_CHECKING:
    from leporello.store import ConversationInfo
    from leporello.view.access import Access, Viewer
    from leporello.view.page_request import PageRequest, ProblemError


class Answers:
    """Renders templates; `read_only` pages offer nothing that changes a conversation."""

    def __init__(self, access: Access, *, read_only: bool) -> None:
        self._access = access
        self._read_only = read_only
        self._templates = environment()

    def page(self, template: str, *, viewer: Viewer | None, **values: Any) -> Response:
        """Render a template."""
        html = self._templates.get_template(template).render(
            viewer=viewer,
            by_key=values.pop("by_key", self._access.needs_key()),
            read_only=self._read_only,
            **values,
        )
        return secured(HTMLResponse(html.encode("utf-8", "backslashreplace")))

    def problem(self, problem: ProblemError, viewer: Viewer | None = None) -> Response:
        """Return the page that tells what is wrong."""
        answer = self.page("problem.html", viewer=viewer, told=str(problem), status=problem.status)
        answer.status_code = problem.status
        return answer

    def about(self, asked: PageRequest, info: ConversationInfo, template: str, **values: Any) -> Response:
        """Render a page about one conversation."""
        here = Here(info, named=asked.viewer.owner is None)
        title = "" if asked.is_fragment else title_of(asked.store, info)
        return self.page(template, viewer=asked.viewer, info=info, here=here, title=title, **values)

    def with_text(
        self,
        asked: PageRequest,
        info: ConversationInfo,
        text: str,
        templates: tuple[str, str],
        place: dict[str, Any],
        **values: Any,
    ) -> Response:
        """Render a piece of a long text, alone, in a fragment or in a page; `place` is where it is found again."""
        here = Here(info, named=asked.viewer.owner is None)
        page = asked.request.url.path.removeprefix("/view/")
        template = templates[0] if asked.is_fragment else templates[1]
        return self.about(
            asked,
            info,
            "_piece.html" if asked.text("only") == "piece" else template,
            piece=piece_of(text, asked.number("start"), reveal=asked.reveal),
            reveal=asked.reveal,
            as_prose=values.pop("as_prose", page == "node"),
            source=partial(here, page, only="piece", **place),
            **values,
        )


def secured(answer: Response) -> Response:
    """Add the headers that keep a page from being misused."""
    for name, value in headers_of(answer.headers).items():
        answer.headers[name] = value
    return answer
