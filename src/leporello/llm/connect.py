"""Which model writes the summaries: from the configuration and the keys that are set to a client, or to none."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from leporello.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leporello.config import Config
    from leporello.config.model import ModelSettings
    from leporello.llm.client import LLM
    from leporello.llm.sdk import SdkClient

DEFAULT_MODELS = {
    "openrouter": "google/gemini-2.5-flash",
    "openai": "gpt-5-mini",
    "anthropic": "claude-haiku-4-5",
}
"""An inexpensive model with a large window per provider; the order is the one in which `auto` looks for keys."""

_MODELS_OF = {
    "openrouter": re.compile(r"[^/]+/."),
    "openai": re.compile(r"(gpt|chatgpt|o\d)[-\d]", re.IGNORECASE),
    "anthropic": re.compile(r"claude", re.IGNORECASE),
}
_NO_KEY = "none"
"""What a local server that asks for no key is sent; the package insists on one."""


@dataclass(frozen=True, kw_only=True)
class _Route:
    """Where a model is reached: who serves it, where, with which key."""

    provider: str
    model: str
    key: str
    base_url: str | None = None


def connect(
    config: Config, *, environ: Mapping[str, str] = os.environ, main: ModelSettings | None = None
) -> LLM | None:
    """Return a client for the summariser that the configuration asks for; None when no key is set for it.

    `main` is the main model's route when it differs from `config.model`. A configuration that can never work, whatever
    keys are set, is a `ConfigError` that says what to set.
    """
    from leporello.config.summariser import missing  # loads pydantic, not needed to use a client of one's own

    main = main or config.model
    wanted = config.auxiliary.compression
    wrong = next(missing(wanted), None)
    if wrong is not None:
        raise _wrong(config, *wrong)
    if wanted.base_url:
        route: _Route | None = _endpoint(config, environ)
    elif wanted.provider == "auto":
        route = _first_with_key(config, main, environ)
    elif wanted.provider == "main":
        route = _main_route(config, main, environ)
    else:
        route = _named(wanted.provider, wanted.model, environ)
    if route is None:
        return None
    client = _client(route, _window(config, main, route))
    client.own_prices = config.own_prices()
    return client


def _endpoint(config: Config, environ: Mapping[str, str]) -> _Route:
    """Return the route to `auxiliary.compression.base_url`."""
    from leporello.config.summariser import no_model

    wanted = config.auxiliary.compression
    if wanted.provider in {"main", "anthropic"}:
        raise _wrong(
            config,
            "provider",
            f"base_url is for OpenAI-compatible endpoints, but the provider is '{wanted.provider}'.",
            "Set the provider to 'auto', or remove base_url.",
        )
    if not wanted.model:
        raise _wrong(config, *no_model(wanted))
    provider = "custom" if wanted.provider == "auto" else wanted.provider
    key = _key("custom", environ) or _key(provider, environ) or _key("openai", environ) or _NO_KEY
    return _Route(provider=provider, model=wanted.model, key=key, base_url=wanted.base_url)


def _first_with_key(config: Config, main: ModelSettings, environ: Mapping[str, str]) -> _Route | None:
    """Return the first route that has a key: the main model's, then the others.

    A main model at an address of its own comes first with or without a key: who runs a local model does not expect the
    conversation to be sent elsewhere because some key is set.
    """
    model = config.auxiliary.compression.model
    if main.base_url and main.default:
        return _own_address(main, model, environ)
    order = dict.fromkeys([_provider_of(main), *DEFAULT_MODELS])
    keys = {name: key for name in order if name in DEFAULT_MODELS and (key := _key(name, environ))}
    if not model:
        return next((_Route(provider=name, model=DEFAULT_MODELS[name], key=keys[name]) for name in keys), None)
    for name, key in keys.items():
        if _MODELS_OF[name].match(model):
            return _Route(provider=name, model=model, key=key)
    if not keys:
        return None
    raise _wrong(
        config,
        "provider",
        f"no provider with a key ({', '.join(_variable(name) for name in keys)}) is known to serve '{model}'.",
        "Set auxiliary.compression.provider to the one that does, or auxiliary.compression.base_url to its address.",
    )


def _main_route(config: Config, main: ModelSettings, environ: Mapping[str, str]) -> _Route | None:
    """Return the main model's own route."""
    if not main.default:
        raise _wrong(
            config,
            "provider",
            "it is 'main', but there is no main model.",
            "Set model.default, or name a provider.",
        )
    if main.base_url:
        return _own_address(main, config.auxiliary.compression.model, environ)
    provider = _provider_of(main)
    if provider not in DEFAULT_MODELS:
        raise _wrong(
            config,
            "provider",
            f"it is 'main', but a summariser cannot be reached through '{provider or main.default}'.",
            f"Set it to one of {_known()}, or set auxiliary.compression.base_url.",
        )
    return _named(provider, config.auxiliary.compression.model or main.default, environ)


def _own_address(main: ModelSettings, model: str | None, environ: Mapping[str, str]) -> _Route:
    provider = _provider_of(main) or "custom"
    key = _key(provider, environ) or _key("openai", environ) or _NO_KEY
    return _Route(provider=provider, model=model or main.default or "", key=key, base_url=main.base_url)


def _named(provider: str, model: str | None, environ: Mapping[str, str]) -> _Route | None:
    """Return the route through a provider whose address is known, if its key is set."""
    key = _key(provider, environ)
    return _Route(provider=provider, model=model or DEFAULT_MODELS[provider], key=key) if key else None


def _provider_of(main: ModelSettings) -> str:
    """Return who serves the main model: as configured, or by its name; "" when it is unknown."""
    if main.provider != "auto":
        return main.provider
    return next((name for name, pattern in _MODELS_OF.items() if main.default and pattern.match(main.default)), "")


def _window(config: Config, main: ModelSettings, route: _Route) -> int:
    from leporello.tokens.windows import window_of  # reads its table, which only a summariser with a model needs

    if config.auxiliary.compression.context_length:
        return config.auxiliary.compression.context_length
    if route.model == main.default and route.base_url == main.base_url and main.context_length:
        return main.context_length
    return window_of(route.model, route.provider, overrides=config.windows) or 0


def _client(route: _Route, context_length: int) -> SdkClient:
    if route.provider == "anthropic":
        from leporello.llm.anthropic import AnthropicClient

        return AnthropicClient(
            model=route.model, api_key=route.key, base_url=route.base_url, context_length=context_length
        )
    from leporello.llm.openai import OPENROUTER_URL, OpenAIClient

    return OpenAIClient(
        model=route.model,
        api_key=route.key,
        provider=route.provider,
        base_url=route.base_url or (OPENROUTER_URL if route.provider == "openrouter" else None),
        context_length=context_length,
    )


def _key(provider: str, environ: Mapping[str, str]) -> str | None:
    from leporello.config.keys import api_key  # loads pydantic

    return api_key(provider, environ)


def _variable(provider: str) -> str:
    from leporello.config.keys import VARIABLES

    return VARIABLES[provider]


def _known() -> str:
    return ", ".join(sorted(DEFAULT_MODELS))


def _wrong(config: Config, key: str, problem: str, hint: str) -> ConfigError:
    return ConfigError(problem, file=config.path, key=f"auxiliary.compression.{key}", hint=hint)
