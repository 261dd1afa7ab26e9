"""A provider on this machine for trying the gateway: it echoes messages, and needs no key."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from leporello.testing.model_server import ModelServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leporello.config import Config

MODEL: Final = "echo"
WINDOW: Final = 16_000


@contextmanager
def demonstration(config: Config) -> Iterator[Config]:
    """Run the provider, and return a configuration whose models are all served by it."""
    with ModelServer(window=WINDOW, accepts_key=lambda _: True) as server:
        yield _config_for(server, config)


def _config_for(server: ModelServer, config: Config) -> Config:
    upstreams = config.gateway.upstreams
    keyless: dict[str, Any] = {"api_key_env": None}
    changed = {
        "openai": upstreams.openai.model_copy(update={"base_url": server.openai_url, **keyless}),
        "anthropic": upstreams.anthropic.model_copy(update={"base_url": server.anthropic_url, **keyless}),
    }
    gateway = config.gateway.model_copy(update={"upstreams": upstreams.model_copy(update=changed)})
    model = {"default": MODEL, "provider": "openai", "base_url": server.openai_url, "context_length": WINDOW}
    main = config.model.model_copy(update=model)
    return config.model_copy(update={"gateway": gateway, "model": main, "windows": {**config.windows, MODEL: WINDOW}})
