"""Who may use the gateway: keys that only their owners know, kept here as hashes."""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from hashlib import sha256
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

_PREFIX: Final = "sha256:"
_OWN: Final = "lpr-"
_KEY_BYTES: Final = 32


def new_key() -> str:
    """Return a fresh key; it is long and random, so that its hash cannot be turned back by trying."""
    return _OWN + secrets.token_urlsafe(_KEY_BYTES)


def hashed(key: str) -> str:
    """Return what is kept of a key."""
    return _PREFIX + sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


class Keys:
    """The keys of the configuration: a name for each hash."""

    def __init__(self, hashes: Mapping[str, str]) -> None:
        self._hashes = dict(hashes)

    def __bool__(self) -> bool:
        return bool(self._hashes)

    def owner(self, headers: Mapping[str, str]) -> str | None:
        """Return whose key a request carries; None when it carries none that is known.

        Every hash is compared, and each in constant time: how long it takes tells nothing about a key.
        """
        given = hashed(presented(headers))
        owner = None
        for name, known in self._hashes.items():
            if hmac.compare_digest(given, known):
                owner = name
        return owner


def presented(headers: Mapping[str, str]) -> str:
    """Return the key that a request carries, in either provider's manner; "" for none."""
    kind, _, token = headers.get("authorization", "").partition(" ")
    return headers.get("x-api-key") or (token.strip() if kind.lower() == "bearer" else "")


def is_loopback(host: str) -> bool:
    """Tell whether an address reaches this machine only."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def from_this_machine(headers: Mapping[str, str]) -> bool:
    """Tell whether a request was meant for this machine, and by it.

    Without keys, loopback is the only protection; a web page in a browser here could reach it too, but it cannot hide
    where it comes from.
    """
    origin = headers.get("origin")
    return _names_loopback(f"//{headers.get('host', '')}") and (origin is None or _names_loopback(origin))


def _names_loopback(address: str) -> bool:
    try:
        return is_loopback(urlsplit(address).hostname or "")
    except ValueError:
        return False
