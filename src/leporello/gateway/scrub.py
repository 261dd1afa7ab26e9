"""What clients may learn of a provider's refusal: what was wrong, and nothing of the account or the machines behind."""

from __future__ import annotations

import json
import re
from typing import Any, Final
from urllib.parse import urlsplit

from leporello.redact import redact

SHORTEST_KEY: Final = 8
"""What local servers are sent in place of a key is a word, not a secret."""

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
    """Takes a gateway's key and addresses, and known shapes of secrets, out of texts of its provider."""

    def __init__(self, key: str, address: str) -> None:
        self._key = key if len(key) >= SHORTEST_KEY else ""
        parts = urlsplit(address)
        self._hosts = [name for name in (address, parts.netloc, parts.hostname) if name] if address else []

    def content(self, content: bytes) -> bytes:
        """Return the body of a refusal; JSON stays JSON, and what holds nothing of the kind stays as it is."""
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
        """Return a text of the provider."""
        text = self._without_key(text)
        for host in self._hosts:
            text = text.replace(host, "[the provider]")
        return redact(_ACCOUNT.sub("[account]", _ADDRESS.sub("[address]", text)))

    def _without_key(self, text: str) -> str:
        """Take out the key and every part of it that tells something; providers quote its ends."""
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
    """Take the longest part of a key that begins at a place out of a text."""
    end = len(key)
    while key[start:end] not in text:
        end -= 1
    return text.replace(key[start:end], "[key]")
