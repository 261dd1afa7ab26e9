"""Removes from a provider's error what clients may not see: the gateway's key, account and addresses."""

from __future__ import annotations

import json
import re
from typing import Any, Final
from urllib.parse import urlsplit

from leporello.redact import redact

SHORTEST_KEY: Final = 8
"""Shorter keys are placeholders for local servers, not secrets."""

_FRAGMENT: Final = 8
_LONGEST: Final = 64 * 1024
_ACCOUNT: Final = re.compile(r"\b(?:org|proj|user|acct|workspace)[-_][A-Za-z0-9][\w-]{5,}")
_ADDRESS: Final = re.compile(
    r"\b(?:https?://)?(?:(?:10|127)(?:\.\d{1,3}){3}|192\.168(?:\.\d{1,3}){2}|172\.(?:1[6-9]|2\d|3[01])(?:\.\d{1,3}){2}"
    r"|169\.254(?:\.\d{1,3}){2}|localhost|[\w.-]+\.(?:internal|intranet|local|localdomain|lan|svc|cluster\.local))\b"
    r"(?::\d+)?(?:/[^\s\"'<>)\]]*)?"
    r"|\[(?:::1|f[cd][0-9a-f]{2}:[0-9a-f:]*|fe80:[0-9a-f:]*)\](?::\d+)?",
    re.IGNORECASE,
)


class Scrubber:
    """Removes a gateway's key and addresses, and known forms of secrets, from texts of its provider."""

    def __init__(self, key: str, address: str) -> None:
        self._key = key if len(key) >= SHORTEST_KEY else ""
        parts = urlsplit(address)
        self._hosts = [name for name in (address, parts.netloc, parts.hostname) if name] if address else []

    def content(self, content: bytes) -> bytes:
        """Return the scrubbed body of an error; JSON stays JSON, and a body without such texts stays unchanged."""
        text = content[:_LONGEST].decode("utf-8", "replace")
        try:
            data = json.loads(content) if len(content) <= _LONGEST else None
        except (ValueError, RecursionError):
            data = None
        if not isinstance(data, (dict, list)):
            clean = self.text(text)
            return content if clean == text and len(content) <= _LONGEST else clean.encode()
        scrubbed = self._value(data)
        return content if scrubbed == data else json.dumps(scrubbed, ensure_ascii=True).encode()

    def text(self, text: str) -> str:
        """Return a scrubbed text of the provider."""
        text = self._without_key(text)
        for host in self._hosts:
            text = text.replace(host, "[the provider]")
        return redact(_ACCOUNT.sub("[account]", _ADDRESS.sub("[address]", text)))

    def _without_key(self, text: str) -> str:
        """Remove the key and every long part of it; providers quote its ends."""
        key = self._key
        if not key:
            return text
        text = text.replace(key, "[key]")
        for start in range(len(key) - _FRAGMENT + 1):
            if key[start : start + _FRAGMENT] in text:
                text = _run_of(key, start, text)
        return text

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(str(name)): self._value(item) for name, item in value.items()}
        return [self._value(item) for item in value] if isinstance(value, list) else value


def _run_of(key: str, start: int, text: str) -> str:
    """Remove the longest part of a key that begins at an index from a text."""
    end = len(key)
    while key[start:end] not in text:
        end -= 1
    return text.replace(key[start:end], "[key]")


def noted(content: bytes, note: str) -> bytes:
    """Return the body of an error with a note added to its message; a body without one stays unchanged."""
    try:
        body = json.loads(content)
        body["error"]["message"] = f"{body['error']['message']} {note}"
    except (ValueError, LookupError, TypeError, RecursionError):
        return content
    return json.dumps(body).encode()
