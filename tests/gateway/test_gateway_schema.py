"""Our own routes keep what their OpenAPI document promises, whatever is sent to them."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

import httpx2
import pytest

from leporello.gateway.openapi import document

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.gateway.conftest import Gateway

    from leporello.testing.model_server import ModelServer


@pytest.mark.slow
@pytest.mark.skipif(find_spec("schemathesis") is None, reason="schemathesis is not installed")
def test_schemathesis_finds_nothing(start: Callable[..., Gateway], upstream: ModelServer) -> None:
    main = {"default": "m", "provider": "openai", "base_url": upstream.openai_url}
    gateway = start(upstream, {"model": main})
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{gateway.address}/openapi.json"]
    found = subprocess.run(
        [*command, "--max-examples", "20", "--generation-deterministic"], capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stdout


def test_every_route_of_the_document_is_served(gateway: Gateway) -> None:
    got = httpx2.get(f"{gateway.address}/openapi.json").json()
    assert got == document()
    for path, operations in got["paths"].items():
        for method in set(operations) - {"parameters"}:
            answer = httpx2.request(method.upper(), f"{gateway.address}{path.replace('{id}', 'nobody')}")
            assert answer.status_code in (200, 400, 404), (method, path)
