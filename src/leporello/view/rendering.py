"""Templates with everything escaped, what they may call, and the responses that are made of them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse, Response

from leporello.messages.visible import one_line, visible
from leporello.store.titles import title_of
from leporello.view import text
from leporello.view.access import headers_of
from leporello.view.text import piece_of

if TYPE_CHECKING:
    from leporello.store import ConversationInfo
    from leporello.view.access import Access, Viewer
    from leporello.view.page_request import PageRequest, ProblemError

LABELS: Final = {
    "system": "System prompt",
    "tools": "Tools",
    "summary": "Summaries",
    "masked": "Masked zone",
    "tail": "Tail, word for word",
    "free": "Free",
    "cached": "Read from the cache",
    "written": "Written to the cache",
    "fresh": "Fresh",
    "spent": "Spent",
    "saved": "Saved by folding",
}
"""What the parts of a window and the charges are called."""


def address(page: str, /, **query: Any) -> str:
    """Return the address of a page; what is None or "" is left out of it."""
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return (f"/view/{page}" if page else "/view") + (f"?{urlencode(given)}" if given else "")


class Here:
    """Addresses of pages about one conversation; the owner is named where a viewer sees those of several."""

    def __init__(self, info: ConversationInfo, *, named: bool) -> None:
        self._fixed = {"c": info.key, "owner": info.owner if named else None}

    def __call__(self, page: str, /, **query: Any) -> str:
        """Return the address of a page."""
        return address(page, **self._fixed, **query)


def environment() -> Environment:
    """Return the templates."""
    made = Environment(
        loader=PackageLoader("leporello.view"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(address=address, labels=LABELS, piece_length=text.PIECE)
    made.filters.update(
        number=text.number,
        short=text.short,
        dollars=text.dollars,
        percent=text.percent,
        when=text.when,
        day=text.day,
        machine_time=text.machine_time,
        clean=text.clean,
        visible=visible,
        one_line=one_line,
        brief=text.brief,
        preview=text.preview,
        path_end=text.path_end,
        prose=text.prose,
        tool_names=text.tool_names,
    )
    return made


class Renderer:
    """Renders templates as responses; `read_only` pages offer nothing that changes a conversation."""

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
