"""The keys of the gateway, of which the configuration has the hashes."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

_PREFIX: Final = "sha256:"
_OWN: Final = "lpr-"
_KEY_BYTES: Final = 32

KEY: Final = "x-leporello-key"
"""The header for the gateway's key, for a client that has one of its provider too."""

CREDENTIALS: Final = ("authorization", "x-api-key")
"""The headers that providers take keys in."""


def new_key() -> str:
    """Return a new key; it is long and random, so that it cannot be found from its hash."""
    return _OWN + secrets.token_urlsafe(_KEY_BYTES)


def hashed(key: str) -> str:
    """Return the hash of a key."""
    return _PREFIX + sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


class Keys:
    """The keys of the configuration: a name for each hash."""

    def __init__(self, hashes: Mapping[str, str]) -> None:
        self._hashes = dict(hashes)

    def __bool__(self) -> bool:
        return bool(self._hashes)

    def owner(self, headers: Mapping[str, str]) -> str | None:
        """Return the owner of the key in a request; None without a known key.

        Every hash is compared in constant time, so that the time tells nothing about a key.
        """
        given = hashed(presented(headers))
        owner = None
        for name, known in self._hashes.items():
            if hmac.compare_digest(given, known):
                owner = name
        return owner


def presented(headers: Mapping[str, str]) -> str:
    """Return the key that a request carries for the gateway, in its own header or a provider's; "" for none."""
    kind = headers.get("authorization", "").partition(" ")[0]
    bearer = token_of(headers["authorization"]) if kind.lower() == "bearer" else ""
    return headers.get(KEY) or headers.get("x-api-key") or bearer


def token_of(credential: str) -> str:
    """Return the key in the value of a header: what stands behind the word for its kind."""
    return credential.partition(" ")[2].strip() or credential


def is_loopback(host: str) -> bool:
    """Tell whether an address reaches this machine only."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def from_this_machine(headers: Mapping[str, str], pages: Collection[str] = ()) -> bool:
    """Tell whether a request was meant for this machine, and by it or one of the web pages that may.

    Without keys, loopback is the only protection; a web page in a browser here could reach it too, but it cannot hide
    where it comes from.
    """
    origin = headers.get("origin")
    return _names_loopback(f"//{headers.get('host', '')}") and (
        origin is None or origin in pages or _names_loopback(origin)
    )


@lru_cache(maxsize=256)
def _names_loopback(address: str) -> bool:
    try:
        return is_loopback(urlsplit(address).hostname or "")
    except ValueError:
        return False
