"""Where the main model is reached: from the configuration and the keys that are set."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from leporello.caching.providers import route_of
from leporello.config.keys import VARIABLES, api_key
from leporello.errors import ConfigError
from leporello.llm.openai import OPENAI_URL, OPENROUTER_URL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leporello.config import Config
    from leporello.messages import Dialect


ANTHROPIC_URL: Final = "https://api.anthropic.com"
_ADDRESSES: Final = {"openai": OPENAI_URL, "openrouter": OPENROUTER_URL, "anthropic": ANTHROPIC_URL}
_KEYED_AS: Final = {"custom": "openai", "openai-codex": "openai"}
_NEEDS: Final = {
    "openai-codex": "Codex itself is reached with a ChatGPT sign-in, which there is no client for here; "
    "a proxy that signs in has such an endpoint, and is sent the key in OPENAI_API_KEY. ",
}
"""What some providers need besides."""
_KEY: Final = re.compile(r"[!-~]+")
_NO_ADDRESS: Final = re.compile(r"[\x00-\x20\x7f]")
_NO_KEY: Final = "none"
"""What a local server that asks for no key is sent; the packages insist on one."""


@dataclass(frozen=True, kw_only=True)
class MainRoute:
    """Who serves the main model, where, and with which key; the key is in no `repr`.

    `base_url` is None for the provider's own address, `key_from` the variable that its key is read from.
    """

    model: str
    provider: str
    api_key: str = field(repr=False)
    base_url: str | None = None
    max_tokens: int | None = None
    key_from: str = ""

    @property
    def has_key(self) -> bool:
        """Whether a key is sent."""
        return self.api_key != _NO_KEY

    @property
    def dialect(self) -> Dialect:
        """The format of requests and answers on this route."""
        return "anthropic" if self.provider == "anthropic" else "openai"

    @property
    def who(self) -> str:
        """The provider by its name and, if it is not its own, the address: what failed is told with it."""
        return f"{self.provider} at {shown_address(self.base_url)}" if self.base_url else self.provider

    @property
    def address(self) -> str:
        """Where requests go."""
        return self.base_url or _ADDRESSES[self.provider]


def main_route(
    config: Config,
    *,
    model: str | None = None,
    provider: str | None = None,
    base_url: str | None = None,
    environ: Mapping[str, str] = os.environ,
) -> MainRoute:
    """Return the route to the main model; what is not given comes from the configuration.

    The configured address belongs to the configured provider: another provider is asked at its own. A route that cannot
    work is a `ConfigError` that says what to set.
    """
    name = model or config.model.default
    if not name:
        raise _wrong(config, "default", "no model is chosen.", "Set it with `leporello config set model.default NAME`.")
    address = base_url or (config.model.base_url if provider in {None, config.model.provider} else None)
    who = route_of(name, provider or config.model.provider, address)
    if not address and who not in _ADDRESSES:
        raise _without_address(config, name, who, given=provider)
    if address:
        _check_address(config, address, given=base_url)
    keyed = _KEYED_AS.get(who, who)
    key = api_key(keyed, environ)
    if not key and not address:
        raise _wrong(
            config, "provider", f"there is no key for {who}.", f"Set the environment variable {VARIABLES[who]}."
        )
    if key and not _KEY.fullmatch(key):
        problem = f"the key in {VARIABLES[keyed]} holds a space, a line end or another character that no key has."
        raise _wrong(config, "provider", problem, "Copy it again, without anything around it.")
    limit = config.model.max_tokens
    return MainRoute(
        model=name,
        provider=who,
        api_key=key or _NO_KEY,
        base_url=address,
        max_tokens=limit,
        key_from=VARIABLES.get(keyed, ""),
    )


def _without_address(config: Config, model: str, provider: str, *, given: str | None) -> ConfigError:
    """Say what a provider needs whose address is not known, or that there is none for the model."""
    known = ", ".join(sorted(_ADDRESSES))
    if not provider:
        problem = f"no provider is known for the model {model!r}."
        return _wrong(config, "provider", problem, f"Set it to one of {known}, or set model.base_url to an address.")
    hint = (
        f"It needs the address of an OpenAI-compatible endpoint: set model.base_url, or give --base-url. "
        f"{_NEEDS.get(provider, '')}Providers with a known address: {known}."
    )
    problem = f"the address of the provider {provider!r} is not known here."
    return _wrong(config, "provider", problem, hint, given=given)


def with_route(config: Config, route: MainRoute, context_length: int | None = None) -> Config:
    """Return the configuration with this route as its main model, so that everybody who reads it agrees on one."""
    named: dict[str, Any] = {
        "default": route.model,
        "provider": route.provider,
        "base_url": route.base_url,
        "context_length": context_length or config.model.window_of(route.model),
    }
    return config.model_copy(update={"model": config.model.model_copy(update=named)})


def _check_address(config: Config, address: str, *, given: str | None) -> None:
    """Refuse what cannot be an address before it is asked again and again."""
    try:
        parts = urlsplit(address)
        is_address = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or _NO_ADDRESS.search(address):
        problem = f"{shown_address(address)!r} is not an address."
        raise _wrong(config, "base_url", problem, "It looks like this: http://localhost:8000/v1", given=given)


def shown_address(address: str) -> str:
    """Return an address fit to be shown: a name and a password in it, and what it asks for, are left out."""
    before, _, rest = address.partition("?")[0].rpartition("@")
    return f"{before.partition('://')[0]}://…@{rest}" if before else rest


def _wrong(config: Config, key: str, problem: str, hint: str, *, given: str | None = None) -> ConfigError:
    """Return the error about a value: one that was given, and not configured, is named without a file."""
    if given:
        return ConfigError(problem, file=key, hint=hint)
    return ConfigError(problem, file=config.path, key=f"model.{key}", hint=hint)
