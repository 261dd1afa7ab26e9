"""A gateway loads what the first request and the first fold need when it starts: they do not wait for it."""

from __future__ import annotations

import json
import subprocess
import sys
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


FIRST_REQUEST = """
import json, sys
from contextlib import closing
from pathlib import Path
import httpx2
from leporello.config import Config
from leporello.gateway.background import in_background
from leporello.gateway.state import State
from leporello.store import open_store
from leporello.testing.model_server import ModelServer

folder, engine, planted = Path(sys.argv[1]), sys.argv[2], len(sys.argv) > 3
if planted:
    State._warm_up = lambda self: None
with ModelServer() as model, closing(open_store(folder / "store.db")) as store:
    upstreams = {"openai": {"base_url": model.openai_url, "pass_client_key": True}}
    settings = {"context": {"engine": engine}, "windows": {"m": 100_000}, "gateway": {"upstreams": upstreams}}
    with in_background(Config.coerce(settings), store) as gateway:
        before = set(sys.modules)
        body = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}
        key = {"authorization": "Bearer any"}
        httpx2.post(f"{gateway.address}/v1/chat/completions", json=body, headers=key, timeout=60).raise_for_status()
        print(json.dumps(sorted(set(sys.modules) - before)))
        assert store.conversations()
"""
PACKAGES = ("leporello", "_leporello_plugin", "genai_prices", "opentelemetry", "pydantic", "openai", "anthropic")


def loaded_by_the_first_request(*arguments: str) -> list[str]:
    """Return the modules of ours and of large packages that the first request of a process loads."""
    command = [sys.executable, "-c", FIRST_REQUEST, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return [name for name in json.loads(done.stdout) if name.startswith(PACKAGES)]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["compressor", "lcm"])
def test_the_first_request_loads_nothing(engine: str, tmp_path: Path) -> None:
    assert loaded_by_the_first_request(str(tmp_path), engine) == []


@pytest.mark.slow
def test_planted_a_gateway_that_starts_cold(tmp_path: Path) -> None:
    cold = loaded_by_the_first_request(str(tmp_path), "lcm", "planted")
    assert {"leporello.lcm.engine", "genai_prices"} <= set(cold)
