"""A session that holds what the store does not: it is read anew before the conversation goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from leporello.errors import StoreBusyError
from leporello.gateway.client_sessions import HeldSession

if TYPE_CHECKING:
    from tests.fixtures.gateway import Gateway

pytestmark = pytest.mark.slow


def ask_again_after_a_failure(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> tuple[int, list[str]]:
    """Ask, be refused because the store cannot be written, ask again; returns the status and what is stored."""
    talk: list[dict[str, Any]] = []
    name = gateway.say(talk, "hello")

    def busy(*_: Any, **__: Any) -> tuple[str, ...]:
        raise StoreBusyError("it is in use by others.")

    talk.append({"role": "user", "content": "where is it?"})
    with monkeypatch.context() as patch:
        patch.setattr(gateway.store, "append", busy)
        assert gateway.chat(talk).status_code == 503
    return gateway.chat(talk).status_code, gateway.texts(name)


def test_one_that_holds_what_the_store_does_not_is_abandoned(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    status, stored = ask_again_after_a_failure(gateway, monkeypatch)
    assert status == 200
    assert stored == ["hello", "hello", "where is it?", "where is it?"], "the model server says what it heard"


def test_planted_one_that_is_used_again_is_noticed(gateway: Gateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HeldSession, "spoilt", property(lambda _: False, lambda _, __: None), raising=False)
    status, stored = ask_again_after_a_failure(gateway, monkeypatch)
    assert (status, len(stored)) != (200, 4)
