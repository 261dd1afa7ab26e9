"""Our own routes keep what their OpenAPI document promises, whatever is sent to them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import httpx2
import pytest

from leporello.gateway.keys import hashed
from leporello.gateway.openapi import document

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.fixtures.gateway import Gateway

    from leporello.testing.model_server import ModelServer

SOAK = bool(os.environ.get("LEPORELLO_SOAK"))
KEY = "key-of-ada"
SERVED = {"Listing", "Show", "Delete", "ShowMessages", "Speak", "Compress", "Reset", "Export"}


@pytest.fixture
def guarded(start: Callable[..., Gateway], upstream: ModelServer) -> Gateway:
    """A gateway with a key, and a model for its agent."""
    main = {"default": "m", "provider": "openai", "base_url": upstream.openai_url}
    return start(upstream, {"model": main}, api_keys={"ada": hashed(KEY)})


def checked(
    described: dict[str, Any], gateway: Gateway, folder: Path, *options: str
) -> subprocess.CompletedProcess[str]:
    """Let schemathesis try a gateway against a description of it."""
    (folder / "openapi.json").write_text(json.dumps(described), encoding="utf-8")
    command = [sys.executable, "-m", "schemathesis.cli", "run", "openapi.json", "--url", gateway.address]
    given = ["--header", f"Authorization: Bearer {KEY}", "--checks", "all", *options]
    return subprocess.run([*command, *given], cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_schemathesis_finds_nothing(guarded: Gateway, tmp_path: Path) -> None:
    """Every route was also tried in a way that it answers, and the key was asked for each time."""
    many = ["--max-examples", "300"] if SOAK else ["--max-examples", "8", "--generation-deterministic"]
    found = checked(document(), guarded, tmp_path, *many)
    assert found.returncode == 0, found.stdout + found.stderr
    figures = httpx2.get(f"{guarded.address}/metrics", headers={"x-api-key": KEY}).text
    assert {route for route, status in _answered(figures) if status == 200} >= SERVED
    assert not [(route, status) for route, status in _answered(figures) if status >= 500]


def _answered(figures: str) -> list[tuple[str, int]]:
    found = re.findall(r'leporello_requests_total\{route="(\w+)",status="(\d+)"\}', figures)
    return [(route, int(status)) for route, status in found]


def _without_a_status(paths: dict[str, Any]) -> None:
    del paths["/v1/sessions"]["get"]["responses"]["400"]


def _with_another_shape(paths: dict[str, Any]) -> None:
    paths["/v1/sessions"]["get"]["responses"]["200"]["content"]["application/json"]["schema"] = {"type": "array"}


def _with_a_key_for_everything(paths: dict[str, Any]) -> None:
    paths["/healthz"]["get"]["security"] = [{"key": []}]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("defect", "told"),
    [
        (_without_a_status, "Undocumented status code"),
        (_with_another_shape, "Response violates schema"),
        (_with_a_key_for_everything, "API accepts requests without authentication"),
    ],
)
def test_schemathesis_finds_a_planted_defect(
    defect: Callable[[dict[str, Any]], None], told: str, guarded: Gateway, tmp_path: Path
) -> None:
    described = deepcopy(document())
    described["paths"] = {path: described["paths"][path] for path in ("/healthz", "/v1/sessions")}
    defect(described["paths"])
    found = checked(described, guarded, tmp_path, "--phases", "coverage")
    assert found.returncode == 1, found.stdout + found.stderr
    assert told in found.stdout, found.stdout


@pytest.mark.slow
def test_every_route_of_the_document_is_served(gateway: Gateway) -> None:
    got = httpx2.get(f"{gateway.address}/openapi.json").json()
    assert got == document()
    for path, operations in got["paths"].items():
        for method in set(operations) - {"parameters"}:
            answer = httpx2.request(method.upper(), f"{gateway.address}{path.replace('{id}', 'nobody')}")
            assert answer.status_code in (200, 400, 404), (method, path)
