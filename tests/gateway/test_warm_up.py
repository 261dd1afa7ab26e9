"""A gateway loads the packages that write summaries when it starts: the first fold does not wait for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.fixtures.gateway import running, settings

from leporello.llm import sdk
from leporello.llm.anthropic import AnthropicClient
from leporello.llm.openai import OpenAIClient
from leporello.store import open_store
from leporello.testing.model_server import ModelServer

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("both", [False, True])
def test_what_writes_summaries_is_loaded_before_the_first_request(
    both: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only for the providers that are set up: the package of another one is not needed."""
    for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    loaded: set[type] = set()
    monkeypatch.setattr(sdk, "_preloaded", loaded)
    with ModelServer() as upstream:
        config = settings(upstream.openai_url, upstream.anthropic_url)
        if not both:
            del config["gateway"]["upstreams"]["anthropic"]
        store = open_store(tmp_path / "store.db")
        with running(config, store):
            assert loaded == ({OpenAIClient, AnthropicClient} if both else {OpenAIClient})
        store.close()
