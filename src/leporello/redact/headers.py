"""Find credentials and cookies in the values of HTTP headers."""

from __future__ import annotations

import base64
import binascii
import re

from leporello.redact.spans import Secret
from leporello.redact.values import is_placeholder, is_token

_SCHEME = re.compile(
    r"(?P<scheme>Bearer|Basic|Token|ApiKey|Api-Key|Bot|OAuth|SSWS|GenieKey|Negotiate)(?:[ \t]|%20|\+){1,4}",
    re.IGNORECASE,
)
_CREDENTIAL = re.compile(r"[^\s\"'`,;\\<>{}$]{1,8192}+")
_COOKIES = re.compile(r"[^\n\r\"'`\\]{1,8192}+")
_COOKIE = re.compile(r"(?P<name>[^=;\s]{1,128}+)=(?P<value>[^;\s]{6,4096}+)")
_COOKIE_ATTRIBUTES = frozenset({"path", "domain", "expires", "max-age", "samesite", "version", "comment", "priority"})
_LONG_COOKIE = 16
_BASE64 = re.compile(r"[A-Za-z0-9+/]{8,1024}={0,2}")


def authorization(text: str, start: int) -> list[Secret]:
    """Return the credential of an Authorization header whose value begins here."""
    scheme = _SCHEME.match(text, start)
    found = _CREDENTIAL.match(text, scheme.end() if scheme is not None else start)
    if found is None or is_placeholder(found[0]):
        return []
    basic = scheme is not None and scheme["scheme"].lower() == "basic" and is_basic(found[0])
    if not basic and not is_token(found[0], quoted=scheme is not None):
        return []
    return [Secret(kind="authorization", start=found.start(), end=found.end())]


def cookies(text: str, start: int) -> tuple[list[Secret], int]:
    """Return the values of the cookies that a header lists from here on, and where the list ends."""
    line = _COOKIES.match(text, start)
    if line is None:
        return [], start
    found = [
        Secret(kind="cookie", start=pair.start("value"), end=pair.end("value"))
        for pair in _COOKIE.finditer(text, line.start(), line.end())
        if _is_cookie(pair["name"], pair["value"])
    ]
    return found, line.end()


def _is_cookie(name: str, value: str) -> bool:
    telling = any(map(str.isdigit, value)) or len(value) >= _LONG_COOKIE
    return telling and name.lower() not in _COOKIE_ATTRIBUTES and not is_placeholder(value)


def is_basic(value: str) -> bool:
    """Tell whether a value is base64 of `name:password`."""
    if _BASE64.fullmatch(value) is None:
        return False
    try:
        return b":" in base64.b64decode(value + "=" * (-len(value) % 4))
    except binascii.Error:
        return False
