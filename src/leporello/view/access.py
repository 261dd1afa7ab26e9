"""Who may see the page: a key's owner who signed in, this machine, or who has a one-time token; and the headers.

A sign-in is a cookie that scripts cannot read, that no other site's request carries, and that expires; what it means
is kept in memory here. A key is never part of an address. What changes something needs the token of the sign-in too.
"""

from __future__ import annotations

import hmac
import secrets
import time
from dataclasses import dataclass, field
from hashlib import sha256
from threading import Lock
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from leporello.gateway.keys import KEY, Keys, from_this_machine

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.requests import Request
    from starlette.responses import Response

ADMIN: Final = "admin"
"""The name of the key that sees the conversations of all."""
SIGN_IN_SECONDS: Final = 8 * 3_600
TOKEN_SECONDS: Final = 600
"""How long a one-time token waits to be used."""
_MOST_SIGN_INS: Final = 1_000
_BYTES: Final = 32

HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
"""What every answer of the page carries."""


@dataclass(frozen=True, kw_only=True)
class Viewer:
    """Who looks: `owner` is whose conversations are seen, None for those of all; `csrf` belongs to the sign-in."""

    owner: str | None
    csrf: str = ""
    name: str = ""
    """The name of the key, "" without one."""


@dataclass(frozen=True, kw_only=True)
class _SignIn:
    viewer: Viewer
    expires: float


@dataclass(kw_only=True)
class Access:
    """Decides who sees what.

    keys      the keys of the gateway; without any, this machine is served
    local     what a viewer without a key sees; None for the conversations of all
    tokens    whether such a viewer needs a one-time token first
    """

    keys: Keys
    local: str | None = ""
    tokens: bool = False
    clock: Callable[[], float] = time.time
    cookie: str = field(default_factory=lambda: f"leporello-view-{secrets.token_hex(4)}")
    _sign_ins: dict[bytes, _SignIn] = field(default_factory=dict)
    _waiting: dict[bytes, float] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def is_for_us(self, request: Request) -> bool:
        """Tell whether a request may be meant for this page; without keys, only one that names this machine is.

        A page of another site may lead here by a link, and no more: it can neither send a form, nor load something from
        here behind its reader's back, whose time or status would tell what is stored.
        """
        if not self.keys and not from_this_machine(request.headers):
            return False
        return _same_origin(request) or (request.method in ("GET", "HEAD") and _is_visit(request))

    def viewer(self, request: Request) -> Viewer | None:
        """Return who looks; None when they have to sign in."""
        with self._lock:
            found = self._sign_ins.get(_hashed(request.cookies.get(self.cookie, "")))
        if found is not None and found.expires > self.clock():
            return found.viewer
        return None

    def needs_key(self) -> bool:
        """Tell whether one signs in with a key."""
        return bool(self.keys)

    def opens_itself(self) -> bool:
        """Tell whether a viewer of this machine is let in without anything."""
        return not self.keys and not self.tokens

    def sign_in(self, key: str) -> str | None:
        """Return a cookie for the owner of a key; None when the key is not known."""
        owner = self.keys.owner({KEY: key}) if key else None
        if owner is None:
            return None
        return self.admit(None if owner == ADMIN else owner, name=owner)

    def new_token(self, seconds: float = TOKEN_SECONDS) -> str:
        """Return a token that opens the page once, as long as it waits."""
        token = secrets.token_urlsafe(_BYTES)
        with self._lock:
            self._waiting[_hashed(token)] = self.clock() + seconds
        return token

    def redeem(self, token: str) -> str | None:
        """Return a cookie for a one-time token, which is void from then on; None when it is not known."""
        with self._lock:
            expires = self._waiting.pop(_hashed(token), 0.0)
        return self.admit(self.local) if expires > self.clock() else None

    def admit(self, owner: str | None, *, name: str = "") -> str:
        """Sign a user in, and return the value of the cookie."""
        return self.admitted(owner, name=name)[1]

    def admitted(self, owner: str | None, *, name: str = "") -> tuple[Viewer, str]:
        """Sign a user in, and return the viewer and the value of the cookie."""
        value, now = secrets.token_urlsafe(_BYTES), self.clock()
        viewer = Viewer(owner=owner, csrf=secrets.token_urlsafe(_BYTES), name=name)
        with self._lock:
            self._sign_ins = {key: one for key, one in self._sign_ins.items() if one.expires > now}
            while len(self._sign_ins) >= _MOST_SIGN_INS:
                del self._sign_ins[next(iter(self._sign_ins))]
            self._sign_ins[_hashed(value)] = _SignIn(viewer=viewer, expires=now + SIGN_IN_SECONDS)
        return viewer, value

    def sign_out(self, request: Request) -> None:
        """Forget a sign-in."""
        with self._lock:
            self._sign_ins.pop(_hashed(request.cookies.get(self.cookie, "")), None)

    def set_cookie(self, request: Request, response: Response, value: str) -> None:
        """Give the browser its cookie; an empty one takes it back."""
        response.set_cookie(
            self.cookie,
            value,
            max_age=SIGN_IN_SECONDS if value else 0,
            path="/view",
            secure="https" in (request.url.scheme, request.headers.get("x-forwarded-proto")),
            httponly=True,
            samesite="strict",
        )


def is_token(viewer: Viewer, given: str) -> bool:
    """Tell whether a form carries the token of its viewer's sign-in."""
    return bool(viewer.csrf) and hmac.compare_digest(viewer.csrf.encode(), given.encode("utf-8", "replace"))


def _same_origin(request: Request) -> bool:
    """Tell whether a request was sent by a page of this address; browsers say so, and a page cannot hide it."""
    site = request.headers.get("sec-fetch-site")
    if site is not None and site not in ("same-origin", "none"):
        return False
    origin = request.headers.get("origin")
    return origin is None or _host(origin) == request.headers.get("host", "")


def _is_visit(request: Request) -> bool:
    """Tell whether a browser opens the page in a tab, from wherever."""
    return request.headers.get("sec-fetch-mode") == "navigate" and request.headers.get("sec-fetch-dest") == "document"


def _host(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _hashed(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogateescape")).digest()


def headers_of(response: Mapping[str, str]) -> dict[str, str]:
    """Return the security headers that an answer still lacks."""
    return {name: value for name, value in HEADERS.items() if name not in response}
