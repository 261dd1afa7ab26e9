"""Other spellings of paths: without the version, with it twice, with a slash too many; and hints for unknown ones."""

from __future__ import annotations

import difflib
import re
from typing import TYPE_CHECKING, Any, Final

from leporello.messages.visible import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from starlette.types import ASGIApp, Receive, Scope, Send

    from leporello.messages import Dialect

_VERSION: Final = "/v1"
_ANTHROPIC: Final = f"{_VERSION}/messages"
_SHOWN: Final = 100
_ALIKE: Final = 0.85
"""How alike a path must be to the one that is meant: a letter or two may be wrong."""

_SAFE: Final = re.compile(r"((/|%2[Ff])[A-Za-z0-9_:@~=-][A-Za-z0-9._:@~=-]*)+")  # names of models have slashes
_SLASHES: Final = re.compile("/{2,}")


class CanonicalPaths:
    """Middleware that rewrites each path to its canonical form."""

    def __init__(self, app: ASGIApp, known: Iterable[str]) -> None:
        self._app = app
        self._versioned = {path.split("/")[2] for path in known if path.startswith(f"{_VERSION}/")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] == "http":
            raw = scope.get("raw_path") or scope["path"].encode()
            scope = {**scope, "path": self.canonical(scope["path"])}
            scope["raw_path"] = self.canonical(raw.decode("latin-1")).encode("latin-1")
        await self._app(scope, receive, send)

    def canonical(self, path: str) -> str:
        """Return the canonical form of a path."""
        path = _SLASHES.sub("/", path).rstrip("/") or "/"
        rest = path
        while rest.startswith(f"{_VERSION}/"):
            rest = rest.removeprefix(_VERSION)
        first = rest.split("/")[1]
        return f"{_VERSION}{rest}" if first in self._versioned else path


def dialect_of(scope: Scope) -> Dialect:
    """Return the dialect of a request by its path and headers."""
    by_header = any(name == b"anthropic-version" for name, _ in scope["headers"])
    return "anthropic" if by_header or scope["path"].startswith(_ANTHROPIC) else "openai"


def provider_path(scope: Scope, dialect: Dialect) -> str | None:
    """Return the path behind the base_url of a provider; None if it has characters that could change its meaning."""
    raw = scope.get("raw_path") or scope["path"].encode()
    path = str(raw.decode("latin-1"))
    if not _SAFE.fullmatch(path):
        return None
    return path if dialect == "anthropic" else path.removeprefix(_VERSION)


def query_of(scope: Scope) -> str:
    """Return what stands behind the question mark of a request."""
    query: bytes = scope["query_string"]
    return query.decode()


def not_served(scope: Scope, known: Iterable[str]) -> str:
    """Return the message for an unknown path, with a hint which one may be meant."""
    path = one_line(scope["path"])[:_SHOWN]
    paths = sorted(known)
    for ending in paths:
        if ending.startswith(_VERSION) and "{" not in ending and path.endswith(ending.removeprefix(_VERSION)):
            base = "that of the gateway" if ending.startswith(_ANTHROPIC) else "that of the gateway with /v1 behind it"
            return f"{path} is not served here. For {ending} the base_url of a client is {base}."
    near = difflib.get_close_matches(path, paths, n=1, cutoff=_ALIKE)
    return f"{path} is not served here." + (f" Did you mean {near[0]}?" if near else f" Served are {_shown(paths)}.")


def _shown(paths: Iterable[Any]) -> str:
    """Return the main paths; the reference lists the others."""
    wanted = ("/v1/chat/completions", "/v1/messages", "/v1/responses", "/v1/embeddings", "/v1/models")
    return ", ".join(path for path in wanted if path in set(paths))
