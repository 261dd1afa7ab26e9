"""What the chat says to do when the provider cannot be reached, or refuses the key or the model."""

from __future__ import annotations

import pytest

from leporello.agent import MainRoute, main_route
from leporello.cli.chat.remedy import remedy
from leporello.config import Config
from leporello.errors import AuthenticationError, LeporelloError, NetworkError, OverloadedError, RequestRefusedError

LOCAL = MainRoute(
    model="m", provider="custom", api_key="k", base_url="http://me:word@127.0.0.1:9/v1", key_from="OPENAI_API_KEY"
)
PUBLIC = MainRoute(model="m", provider="openai", api_key="k", key_from="OPENAI_API_KEY")
KEYLESS = MainRoute(model="m", provider="custom", api_key="none", base_url="http://127.0.0.1:9/v1", key_from="K")


@pytest.mark.parametrize(
    ("error", "route", "said"),
    [
        (NetworkError("connection refused"), LOCAL, "Is the server at http://…@127.0.0.1:9/v1 running?"),
        (NetworkError("name not resolved"), PUBLIC, "Is this machine online?"),
        (AuthenticationError("401"), PUBLIC, "the environment variable OPENAI_API_KEY"),
        (AuthenticationError("401"), KEYLESS, "No key was sent: it is read from the environment variable K."),
        (RequestRefusedError("no such model", status=404), PUBLIC, "/model NAME"),
    ],
)
def test_a_remedy_fits_the_error(error: LeporelloError, route: MainRoute, said: str) -> None:
    assert said in remedy(error, route)
    assert "word" not in remedy(error, route)


@pytest.mark.parametrize("error", [OverloadedError("529"), RequestRefusedError("no", status=400), None])
def test_where_there_is_none_nothing_is_said(error: LeporelloError | None) -> None:
    assert remedy(error, PUBLIC) == ""


@pytest.mark.parametrize(
    ("model", "provider", "variable"),
    [("gpt-5", "openai", "OPENAI_API_KEY"), ("claude-sonnet-5", "anthropic", "ANTHROPIC_API_KEY")],
)
def test_a_route_knows_the_variable_of_its_key(model: str, provider: str, variable: str) -> None:
    config = Config.from_mapping({"model": {"default": model, "provider": provider}})
    route = main_route(config, environ={variable: "sk-test"})
    assert route.key_from == variable
    assert "sk-test" not in repr(route)
