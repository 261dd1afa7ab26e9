"""One TLS context for all clients: the certificates in it are most of what a client weighs and takes to make."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import ssl


@cache
def shared_context() -> ssl.SSLContext:
    """Return the context that the official packages make for each of their clients, made once."""
    http = import_module("httpx2" if find_spec("httpx2") else "httpx")  # whichever the packages are built on
    context: ssl.SSLContext = http.create_ssl_context()
    return context
