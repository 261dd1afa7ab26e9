"""The pages about the gateway are true: their settings are read as meant, their routes are those that are served."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from starlette.routing import Route

from leporello.config import Config
from leporello.config.model import GatewayLimits
from leporello.gateway.app import create_app
from leporello.store import open_store

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
HOW_TO = (ROOT / "docs" / "how-to" / "gateway.md").read_text(encoding="utf-8")
REFERENCE = (ROOT / "docs" / "reference" / "gateway.md").read_text(encoding="utf-8")


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page, re.DOTALL | re.MULTILINE)


def test_the_yaml_is_a_configuration(tmp_path: Path) -> None:
    loaded = []
    for block in blocks(HOW_TO, "yaml"):
        (tmp_path / "config.yaml").write_text(block, encoding="utf-8")
        loaded.append(Config.load(tmp_path / "config.yaml").gateway)
    provider, clients, limits = loaded
    assert clients.upstreams.openai.pass_client_key is clients.upstreams.anthropic.pass_client_key is True
    assert provider.upstreams.openai.api_key_env == "MY_SERVER_KEY"
    assert limits.limits == GatewayLimits()  # the page shows the defaults


def test_every_route_is_in_the_reference() -> None:
    app = create_app(Config.from_mapping({}), open_store(":memory:"))
    served = {route.path.replace(":path", "") for route in app.routes if isinstance(route, Route)}
    named = set(re.findall(r"`(?:GET|POST|DELETE) (/[^`?]*)", REFERENCE))
    assert named == served
