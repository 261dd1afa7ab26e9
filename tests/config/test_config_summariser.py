"""A summariser that can never be reached is refused when the configuration is read, not when it is needed."""

from __future__ import annotations

from typing import Any

import pytest

from leporello.config import Config
from leporello.errors import ConfigError
from leporello.llm.connect import DEFAULT_MODELS, connect

ADDRESS = "http://127.0.0.1:8000/v1"


def read(**compression: Any) -> Config:
    """Read a configuration with these settings of the summariser."""
    return Config.from_mapping({"auxiliary": {"compression": compression}})


@pytest.mark.parametrize("provider", ["nous", "groq", "openai-codex", "copilot", "custom"])
def test_a_provider_without_a_known_address_needs_one(provider: str) -> None:
    with pytest.raises(ConfigError, match=rf"auxiliary\.compression\.provider: .*'{provider}'.*base_url"):
        read(provider=provider)
    llm = connect(read(provider=provider, base_url=ADDRESS, model="hermes-4"), environ={})
    assert llm is not None
    assert (llm.provider, llm.model, getattr(llm, "base_url", None)) == (provider, "hermes-4", ADDRESS)


@pytest.mark.parametrize("provider", ["auto", "main", *DEFAULT_MODELS])
def test_a_provider_with_a_known_address_needs_none(provider: str) -> None:
    assert read(provider=provider).auxiliary.compression.provider == provider


def test_an_address_needs_a_model() -> None:
    with pytest.raises(ConfigError, match=r"auxiliary\.compression\.model"):
        read(provider="nous", base_url=ADDRESS)
