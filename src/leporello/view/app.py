"""The page as an application: its routes, who is let in, and what went wrong."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import Route

from leporello.errors import LeporelloError
from leporello.messages.visible import one_line
from leporello.redact import logger
from leporello.view.forms import Forms
from leporello.view.page_request import PageRequest, ProblemError, form_of
from leporello.view.pages import Pages
from leporello.view.rendering import Renderer, address, secured
from leporello.view.text import clean

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

    from leporello.store import Store
    from leporello.view.access import Access
    from leporello.view.actions import Actions
    from leporello.view.pages import Handler

_STATIC: Final = Path(__file__).with_name("static")
_FILES: Final = {
    "view.css": "text/css",
    "view.js": "text/javascript",
    "htmx.min.js": "text/javascript",
    "icon.svg": "image/svg+xml",
}
_log = logger("leporello.view")


class PageRoutes:
    """The page on a store; without `actions` it only reads."""

    def __init__(self, store: Store, access: Access, *, actions: Actions | None = None) -> None:
        self._store = store
        self._access = access
        self._renderer = Renderer(access, read_only=actions is None)
        self._pages = Pages(self._renderer)
        self._forms = Forms(self._renderer, actions)

    def routes(self) -> list[Route]:
        """Return the routes, all under /view."""
        pages, forms = self._pages.by_path, self._forms
        return [
            *(Route(f"/view{path}", self._guarded(page), methods=["GET"]) for path, page in pages.items()),
            Route("/view/act", self._guarded(forms.confirm), methods=["GET"]),
            Route("/view/act", self._guarded(forms.act), methods=["POST"]),
            Route("/view/export", self._guarded(forms.export), methods=["POST"]),
            Route("/view/enter", self._enter, methods=["GET"]),
            Route("/view/sign-in", self._sign_in, methods=["GET", "POST"]),
            Route("/view/sign-out", self._sign_out, methods=["POST"]),
            Route("/view/static/{name}", self._static, methods=["GET"]),
        ]

    def _guarded(self, page: Handler) -> Callable[[Request], Awaitable[Response]]:
        """Return the endpoint of a page: it lets in those who may see it, and tells what went wrong."""

        async def endpoint(request: Request) -> Response:
            if not self._access.is_for_us(request):
                return self._renderer.problem(ProblemError(HTTPStatus.FORBIDDEN, "This address is not served here."))
            viewer, cookie = self._access.viewer(request), ""
            if viewer is None and self._access.opens_itself():
                viewer, cookie = self._access.admitted(self._access.local)
            if viewer is None:
                return self._to_sign_in(request)
            form = await form_of(request) if request.method == "POST" else {}
            try:
                answer = await run_in_threadpool(page, PageRequest(request, viewer, self._store, form))
            except ProblemError as problem:
                answer = self._renderer.problem(problem, viewer)
            except LeporelloError as error:
                _log.warning("a page failed: %s", one_line(str(error)))
                answer = self._renderer.problem(ProblemError(HTTPStatus.SERVICE_UNAVAILABLE, clean(error)), viewer)
            if cookie:
                self._access.set_cookie(request, answer, cookie)
            return answer

        return endpoint

    def _to_sign_in(self, request: Request) -> Response:
        to = address("sign-in")
        if request.headers.get("hx-request") == "true":
            return secured(Response(status_code=HTTPStatus.UNAUTHORIZED, headers={"hx-redirect": to}))
        return secured(RedirectResponse(to, status_code=HTTPStatus.SEE_OTHER))

    async def _enter(self, request: Request) -> Response:
        """Exchange a one-time token for a sign-in."""
        allowed = self._access.is_for_us(request)
        cookie = self._access.redeem(request.query_params.get("token", "")) if allowed else None
        if cookie is None:
            told = "This link was used already, or it has expired. Start `leporello view` again for a new one."
            return self._renderer.problem(ProblemError(HTTPStatus.FORBIDDEN, told))
        answer = RedirectResponse(address(""), status_code=HTTPStatus.SEE_OTHER)
        self._access.set_cookie(request, answer, cookie)
        return secured(answer)

    async def _sign_in(self, request: Request) -> Response:
        """Show the form for a key, or take the key."""
        if not self._access.is_for_us(request):
            return self._renderer.problem(ProblemError(HTTPStatus.FORBIDDEN, "This address is not served here."))
        if request.method != "POST":
            return self._renderer.page("sign_in.html", viewer=None, wrong=False, by_key=self._access.needs_key())
        cookie = self._access.sign_in((await form_of(request)).get("key", "").strip())
        if cookie is None:
            wrong = self._renderer.page("sign_in.html", viewer=None, wrong=True, by_key=self._access.needs_key())
            wrong.status_code = HTTPStatus.UNAUTHORIZED
            return wrong
        answer = RedirectResponse(address(""), status_code=HTTPStatus.SEE_OTHER)
        self._access.set_cookie(request, answer, cookie)
        return secured(answer)

    async def _sign_out(self, request: Request) -> Response:
        """End a sign-in; another site's page cannot end it."""
        if not self._access.is_for_us(request):
            return self._renderer.problem(ProblemError(HTTPStatus.FORBIDDEN, "This address is not served here."))
        self._access.sign_out(request)
        answer = RedirectResponse(address("sign-in"), status_code=HTTPStatus.SEE_OTHER)
        self._access.set_cookie(request, answer, "")
        return secured(answer)

    async def _static(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in _FILES:
            return self._renderer.problem(ProblemError(HTTPStatus.NOT_FOUND, "There is no such file."))
        return secured(FileResponse(_STATIC / name, media_type=_FILES[name], headers={"cache-control": "max-age=3600"}))

    def problem(self, problem: ProblemError) -> Response:
        """Return the page that tells what is wrong."""
        return self._renderer.problem(problem)


async def home(request: Request) -> Response:
    """Lead to the list of conversations."""
    return secured(RedirectResponse(address("")))


def create_app(view: PageRoutes) -> Starlette:
    """Return the page as an application of its own."""

    async def missing(request: Request, error: Exception) -> Response:
        return view.problem(ProblemError(HTTPStatus.NOT_FOUND, "There is no such page."))

    async def broken(request: Request, error: Exception) -> Response:
        told = "Something went wrong; the program's output says what."
        return view.problem(ProblemError(HTTPStatus.INTERNAL_SERVER_ERROR, told))

    routes = [Route("/", home), Route("/view/", home), *view.routes()]
    app = Starlette(routes=routes, exception_handlers={HTTPStatus.NOT_FOUND: missing, Exception: broken})
    app.router.redirect_slashes = False
    return app
