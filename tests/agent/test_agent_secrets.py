"""A provider's key is in no log, error, event, environment of a tool, or store."""

import logging
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from leporello.agent import TurnEnded, main_route, open_agent
from leporello.agent.model import MainModel
from leporello.config import Config
from leporello.testing.model_server import Failure, ModelServer, Step, Use

KEY = "sk-proj-Zq8vLr3TnW5xYb7KcM2dHf9J"
LEAKY = [
    Use(name="terminal", arguments={"command": "env; cat .env; cat half rest"}),
    Use(name="read_file", arguments={"path": ".env"}),
    Use(name="search_files", arguments={"pattern": "KEY="}),
]


def play(root: Path, store: Path, dialect: str) -> list[str]:
    """Let an agent come across the key in every way it can, and return all that it told."""
    (root / ".env").write_text(f"OPENAI_API_KEY={KEY}\n")
    (root / "half").write_text(KEY[:15])
    (root / "rest").write_text(KEY[15:])
    environ = {"PATH": os.environ["PATH"], "OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY}
    told: list[str] = []
    with ModelServer([Step(tool_calls=LEAKY), "Done."]) as server:
        url = server.openai_url if dialect == "openai" else server.anthropic_url
        with open_agent(
            workspace=root,
            model="m",
            provider=dialect,
            base_url=url,
            store=store,
            config={},
            confirm=lambda _: True,
            environ=environ,
        ) as agent:
            told += [f"{event} {event!r}" for event in agent.ask("What is in the environment?")]
            server.fail(Failure.BAD_KEY, times=1)
            told += [f"{event} {event!r}" for event in agent.ask("Again")]
            told += [repr(agent.model), repr(vars(agent)), str(agent.session.usage())]
        told += [str(message) for request in server.requests for message in request.messages]
    return told


def assert_no_key(*texts: str) -> None:
    assert [text[:80] for text in texts if KEY in text or KEY[10:] in text] == []


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["openai", "anthropic"])
def test_the_key_stays_where_it_is(root: Path, tmp_path: Path, dialect: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    told = play(root, tmp_path / "s.db", dialect)
    assert any("terminal" in text for text in told)
    assert_no_key(*told)
    assert_no_key(caplog.text)
    stored = [path for path in tmp_path.iterdir() if path.name.startswith("s.db")]
    assert stored
    assert_no_key(*[path.read_bytes().decode("latin-1") for path in stored])


@pytest.mark.parametrize("leak", [str, lambda key: f"the answer was {key}!", lambda key: f"…{key[10:]}"])
def test_the_check_catches_a_leak(leak: Callable[[str], str]) -> None:
    with pytest.raises(AssertionError):
        assert_no_key("harmless", leak(KEY))


def test_an_error_of_the_provider_does_not_repeat_the_key(root: Path) -> None:
    """Some servers quote the key that they refuse; the original exception, which holds the request, is not attached."""
    with ModelServer(accepts_key=lambda _: False) as server:
        route = main_route(
            Config.from_mapping({"model": {"default": "m", "base_url": server.openai_url}}),
            environ={"OPENAI_API_KEY": KEY},
        )
        assert_no_key(repr(route))
        model = MainModel(route)
        with pytest.raises(Exception, match="check the API key") as caught:
            list(model.chunks({"messages": [{"role": "user", "content": "Hello"}]}))
        model.close()
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_a_turn_that_failed_names_the_problem(root: Path) -> None:
    with ModelServer(accepts_key=lambda _: False) as server:
        agent = open_agent(
            workspace=root, model="m", base_url=server.openai_url, store=":memory:", config={}, environ={}
        )
        *_, end = agent.ask("Hello")
        agent.close()
    assert isinstance(end, TurnEnded)
    told = "answered 401: Incorrect API key provided. (check the API key)"
    assert str(end) == f"custom at {server.openai_url} {told}"
