"""Keys of model providers: only environment variables hold them, never config.yaml."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

# provider -> the variable that holds its key; "custom" is any endpoint given by auxiliary.compression.base_url
VARIABLES = {
    "openai": "OPENAI_API_KEY",
    "anthropic": "ANTHROPIC_API_KEY",
    "openrouter": "OPENROUTER_API_KEY",
    "custom": "AUXILIARY_COMPRESSION_API_KEY",
}

_KEY_NAME = re.compile(
    r"(^|_)(api_?key|access_?key|secret(_?key)?|password|passwd|(api|auth|access)_?token)$|^token$", re.IGNORECASE
)
_KEY_VALUE = re.compile(
    r"sk-[\w-]{16,}|(xai-|pplx-|nvapi-|gsk_|hf_|ghp_|r8_)[A-Za-z0-9]{20,}|AIza[\w-]{30,}|AKIA[A-Z0-9]{12,}"
)
_URL_PASSWORD = re.compile(r"(?P<before>[a-z][a-z0-9+.-]*://[^\s/:@]*):[^\s/]+(?=@)", re.IGNORECASE)


def api_key(provider: str, environ: Mapping[str, str] = os.environ) -> str | None:
    """Return the provider's key from the environment; None when the provider is unknown or its variable is blank."""
    variable = VARIABLES.get(provider.lower())
    return (environ.get(variable, "").strip() or None) if variable else None


def present_keys(environ: Mapping[str, str] = os.environ) -> dict[str, bool]:
    """Say for each variable whether it holds a key; the keys themselves stay where they are."""
    return {variable: bool(environ.get(variable, "").strip()) for variable in VARIABLES.values()}


def names_a_key(name: str) -> bool:
    """Tell whether a configuration key is called like a secret, as `api_key` is and `max_tokens` is not."""
    return bool(_KEY_NAME.search(name.replace("-", "_")))


def looks_like_key(value: Any) -> bool:
    """Tell whether a value has the shape of a provider's key."""
    return isinstance(value, str) and bool(_KEY_VALUE.fullmatch(value.strip()))


def where_keys_belong(name: str) -> str:
    """Tell where the key with this name belongs."""
    named = [variable for provider, variable in VARIABLES.items() if provider in name.lower()]
    return f"Set the environment variable {named[0] if named else ', '.join(VARIABLES.values())} instead."


def hidden(name: str, value: Any) -> Any:
    """Return a value fit to be shown: passwords in addresses, and whatever is called or shaped like a key, starred."""
    if isinstance(value, dict):
        return {key: hidden(str(key), item) for key, item in value.items()}
    if isinstance(value, list):
        return [hidden(name, item) for item in value]
    if not isinstance(value, str):
        return value
    return "***" if names_a_key(name) or looks_like_key(value) else _URL_PASSWORD.sub(r"\g<before>:***", value)
