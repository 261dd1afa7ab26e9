"""The 85 % net as clients meet it: before a turn, with any engine, and never at the cost of what was said."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from leporello.session.accounts import REQUEST
from leporello.session.hygiene import REASON
from leporello.testing.model_server import ModelServer, as_counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.fixtures.gateway import Gateway

pytestmark = pytest.mark.slow

WINDOW = 20_000
MARK = 17_000  # 85 %
CHATTER = "chatter " * 400
PLUGIN = """
import sys

from leporello.engine import ContextEngine


class Engine(ContextEngine):
    name = "{name}"

    def update_from_response(self, usage):
        pass

    def should_compress(self, prompt_tokens=None):
        return False

    def compress(self, messages, current_tokens=None, focus_topic=None):
        sys.modules["gateway_hygiene"].calls.append(len(messages))
        {what}
"""
KINDS = {
    "keeps-the-end": "return messages[max(at for at, one in enumerate(messages) if one['role'] == 'user') :]",
    "raises": "return messages[1 // 0]",
    "returns-nothing": "return None",
    "shrinks-nothing": "return messages",
}


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often a plugin's engine was asked to compress, and how many messages."""
    module = ModuleType("gateway_hygiene")
    found: list[int] = []
    module.__dict__["calls"] = found
    monkeypatch.setitem(sys.modules, "gateway_hygiene", module)
    return found


@pytest.fixture
def upstream() -> Iterator[ModelServer]:
    """A provider that counts tokens as providers do."""
    with ModelServer(usage=as_counted) as server:
        yield server


@pytest.fixture
def serving(start: Callable[..., Gateway], upstream: ModelServer, tmp_path: Path) -> Callable[..., Gateway]:
    """Start a gateway whose engine never folds by itself."""

    def make(engine: str = "compressor", **compression: Any) -> Gateway:
        if engine in KINDS:
            folder = tmp_path / "engines" / engine
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "plugin.yaml").write_text(f"name: {engine}\nversion: 1.0.0\n", encoding="utf-8")
            code = PLUGIN.format(name=engine, what=KINDS[engine])
            (folder / "__init__.py").write_text(code, encoding="utf-8")
        main = {"default": "m", "provider": "openai", "base_url": upstream.openai_url, "context_length": WINDOW}
        config = {
            "model": main,
            "windows": {"m": WINDOW},
            "context": {"engine": engine},
            "plugins": {"paths": [str(tmp_path / "engines")]},
            "compression": {"threshold": 1.0, "protect_last_n": 4, **compression},
            "lcm": {"threshold": 1.0, "background": False},
        }
        return start(upstream, config)

    return make


def say(gateway: Gateway, content: str, **body: Any) -> Any:
    got = gateway.post("/v1/sessions/room/messages", {"content": content, **body})
    assert got.status_code == 200, got.text
    return got.json()


def overnight(gateway: Gateway, tokens: int) -> list[str]:
    """Let users write to a conversation until it has this many tokens, without an answer; returns what was said."""
    said = [CHATTER]
    while say(gateway, said[-1], respond=False)["usage"]["tokens"] < tokens:
        said.append(f"{len(said)} {CHATTER}")
    return said


@pytest.mark.parametrize("engine", ["compressor", "lcm", "keeps-the-end"])
def test_at_the_mark_there_is_one_compaction_before_the_turn(
    engine: str, serving: Callable[..., Gateway], upstream: ModelServer, calls: list[int]
) -> None:
    gateway = serving(engine)
    say(gateway, "good evening")
    said = overnight(gateway, MARK)
    assert gateway.store.journal("room")[-1].reason == REQUEST
    turn = say(gateway, "good morning")
    assert (turn["content"], turn["usage"]["compactions"]) == ("good morning", 1)
    assert len(upstream.requests[-1].messages) < len(said)
    assert say(gateway, "what did I miss?")["usage"]["compactions"] == 1
    assert gateway.texts("room")[2:-4] == said


@pytest.mark.parametrize("engine", ["raises", "returns-nothing", "shrinks-nothing"])
def test_an_engine_that_cannot_is_asked_once_and_every_turn_is_answered(
    engine: str, serving: Callable[..., Gateway], calls: list[int]
) -> None:
    """The window of the provider is larger than the configured one here: the turn itself is possible."""
    gateway = serving(engine)
    say(gateway, "good evening")
    said = overnight(gateway, MARK)
    before = len(said) + 2
    for number in range(4):
        assert say(gateway, f"hello {number}")["reason"] == "done"
    assert len(calls) == 1
    assert gateway.texts("room")[2:before] == said
    gateway.stop()
    assert say(serving(engine), "and after a restart?")["reason"] == "done"
    assert len(calls) == 1
    assert gateway.texts("room")[2:before] == said


def test_below_the_mark_there_is_none(serving: Callable[..., Gateway]) -> None:
    gateway = serving()
    say(gateway, "good evening")
    overnight(gateway, MARK - 1000)
    assert say(gateway, "good morning")["usage"]["compactions"] == 0


def test_with_compression_off_there_is_none(serving: Callable[..., Gateway], upstream: ModelServer) -> None:
    gateway = serving(enabled=False)
    say(gateway, "good evening")
    said = overnight(gateway, MARK)
    assert say(gateway, "good morning")["usage"]["compactions"] == 0
    assert len(upstream.requests[-1].messages) > len(said)


def test_three_messages_are_never_folded(serving: Callable[..., Gateway], calls: list[int]) -> None:
    gateway = serving()
    for _ in range(3):
        usage = say(gateway, CHATTER * 15, respond=False)["usage"]
    assert usage["tokens"] > MARK
    say(gateway, "hello")
    assert REASON not in [row.report.get("trigger") for row in gateway.store.journal("room")]
    overnight(gateway, MARK)
    say(gateway, "and now?")
    assert REASON in [row.report.get("trigger") for row in gateway.store.journal("room")]
