"""The headers that are passed on from a client to its provider and back; all others are dropped."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from leporello.gateway.keys import CREDENTIALS, presented, token_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_TO_PROVIDER: Final = re.compile(
    r"accept|content-type|http-referer|idempotency-key|user-agent|x-app|x-title|originator|version"
    r"|anthropic-[a-z0-9-]+|openai-[a-z0-9-]+|x-openai-[a-z0-9-]+|x-codex-[a-z0-9-]+|x-claude-code-[a-z0-9-]+"
    r"|(x-|x-parent-)?session-id|x-session-affinity|thread-id|session_id|conversation_id|x-client-request-id"
)
"""Headers of a client for the provider; none of them names a person or has a key."""

CHATGPT_ACCOUNT: Final = "chatgpt-account-id"
"""The header that a login of ChatGPT comes with."""

_ACCOUNT: Final = frozenset({CHATGPT_ACCOUNT, "openai-organization", "openai-project"})
"""Headers that name the account of a key; they are passed on with the key."""

_TO_CLIENT: Final = re.compile(
    r"content-type|cache-control|retry-after(-ms)?|(x-|openai-|anthropic-)?request-id|x-should-retry|x-codex-turn-state"
    r"|(x-|anthropic-)ratelimit-[a-z0-9-]+|(openai|anthropic)-(processing-ms|version|model)"
)
"""Headers of a provider for the client; any other may tell something about the account or its servers."""

_TO_ACCOUNT: Final = re.compile(r"(anthropic|openai|x-codex)-[a-z0-9-]+")
"""Headers of a provider about the account, for a client with an account of its own."""


def to_provider(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a client that go to the provider; repeated ones are joined."""
    found: dict[str, list[str]] = {}
    for name, value in headers.items():
        if _TO_PROVIDER.fullmatch(name) and name not in _ACCOUNT:
            found.setdefault(name, []).append(letters(value.encode("latin-1")))
    return {name: ", ".join(values) for name, values in found.items()}


def credentials(headers: Mapping[str, str], *, keyed: bool) -> dict[str, str]:
    """Return the client's own key for the provider, and its account; not its key for a `keyed` gateway."""
    own = presented(headers) if keyed else ""
    given = {name: headers[name] for name in (*CREDENTIALS, *_ACCOUNT) if name in headers}
    return {name: letters(value.encode("latin-1")) for name, value in given.items() if token_of(value) != own}


def to_client(raw: Iterable[tuple[bytes, bytes]], *, own_account: bool) -> list[tuple[bytes, bytes]]:
    """Return the headers of a provider that go to the client."""
    lower = [(name.lower(), name.lower().decode("latin-1"), value) for name, value in raw]
    return [
        (name, value)
        for name, text, value in lower
        if _TO_CLIENT.fullmatch(text) or (own_account and _TO_ACCOUNT.fullmatch(text))
    ]


def letters(value: bytes) -> str:
    """Decode a header as UTF-8, or as Latin-1 if it is not UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
