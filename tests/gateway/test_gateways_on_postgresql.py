"""Two gateways, each with connections of its own, serve one PostgreSQL database as one gateway would."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from tests.fixtures.gateway import running, settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.fixtures.databases import Schemas
    from tests.fixtures.gateway import Gateway

    from leporello.testing.model_server import ModelServer

pytestmark = pytest.mark.slow


@pytest.fixture
def gateways(schemas: Schemas, upstream: ModelServer) -> Iterator[list[Gateway]]:
    config = settings(upstream.openai_url, upstream.anthropic_url)
    with ExitStack() as stack:
        yield [stack.enter_context(running(config, schemas.open("shared"))) for _ in range(2)]


def test_a_client_of_two_gateways_in_turn_has_one_conversation(gateways: list[Gateway]) -> None:
    history: list[dict[str, Any]] = []
    names = {gateways[n % 2].say(history, f"question {n} about the harbour") for n in range(8)}
    assert len(names) == 1
    (name,) = names
    assert gateways[0].texts(name) == [message["content"] for message in history]
    (info,) = gateways[1].store.conversations()
    assert (info.messages, info.branches) == (16, 1)


def test_many_clients_at_once_keep_their_conversations_apart(gateways: list[Gateway]) -> None:
    def talk(client: int) -> tuple[str, list[dict[str, Any]]]:
        history: list[dict[str, Any]] = []
        names = {gateways[(client + n) % 2].say(history, f"client {client} asks {n}") for n in range(4)}
        (name,) = names
        return name, history

    with ThreadPoolExecutor(6) as pool:
        talks = list(pool.map(talk, range(12)))
    assert len({name for name, _ in talks}) == 12
    for name, history in talks:
        assert gateways[0].texts(name) == [message["content"] for message in history]
        assert gateways[0].store.check_chain(name) == []
