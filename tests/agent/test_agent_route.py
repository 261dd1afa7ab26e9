"""Where the main model is reached, and what is said when it cannot be."""

from typing import Any

import pytest

from leporello.agent.route import MainRoute, main_route, shown_address, with_route
from leporello.config import Config
from leporello.errors import ConfigError

KEYS = {"OPENAI_API_KEY": "sk-openai-1234", "ANTHROPIC_API_KEY": "sk-ant-1234", "OPENROUTER_API_KEY": "sk-or-1234"}
LOCAL = "http://127.0.0.1:8080/v1"


def route(block: dict[str, Any], environ: dict[str, str] | None = None, **given: Any) -> MainRoute:
    config = Config.from_mapping({"model": block})
    return main_route(config, environ=KEYS if environ is None else environ, **given)


@pytest.mark.parametrize(
    ("model", "given", "provider", "address", "key"),
    [
        ({"default": "claude-sonnet-5"}, {}, "anthropic", "https://api.anthropic.com", "sk-ant-1234"),
        ({"default": "gpt-5.5"}, {}, "openai", "https://api.openai.com/v1", "sk-openai-1234"),
        ({"default": "x/y"}, {}, "openrouter", "https://openrouter.ai/api/v1", "sk-or-1234"),
        ({}, {"model": "claude-opus-5"}, "anthropic", "https://api.anthropic.com", "sk-ant-1234"),
        ({"default": "q", "base_url": LOCAL}, {}, "custom", LOCAL, "sk-openai-1234"),
        ({"default": "q", "base_url": LOCAL, "provider": "anthropic"}, {}, "anthropic", LOCAL, "sk-ant-1234"),
        (
            {"default": "q", "base_url": LOCAL},
            {"provider": "openai"},
            "openai",
            "https://api.openai.com/v1",
            "sk-openai-1234",
        ),
        ({"default": "q"}, {"base_url": LOCAL, "provider": "ollama"}, "ollama", LOCAL, "none"),
        (
            {"default": "gpt-5.5", "provider": "openai-codex"},
            {"base_url": LOCAL},
            "openai-codex",
            LOCAL,
            "sk-openai-1234",
        ),
    ],
)
def test_the_route(model: dict[str, Any], given: dict[str, Any], provider: str, address: str, key: str) -> None:
    found = route(model, **given)
    assert (found.provider, found.address, found.api_key) == (provider, address, key)
    assert found.dialect == ("anthropic" if provider == "anthropic" else "openai")


def test_a_local_server_needs_no_key() -> None:
    assert route({"default": "q", "base_url": LOCAL}, {}).api_key == "none"


@pytest.mark.parametrize(
    ("model", "environ", "told"),
    [
        ({}, {}, "no model is chosen. Set it with `leporello config set model.default NAME`."),
        (
            {"default": "claude-opus-5"},
            {},
            "there is no key for anthropic. Set the environment variable ANTHROPIC_API_KEY.",
        ),
        (
            {"default": "my-model"},
            KEYS,
            "no provider is known for the model 'my-model'. Set it to one of",
        ),
        (
            {"default": "m", "provider": "acme"},
            KEYS,
            "the provider 'acme' is not known here. It needs the address of an OpenAI-compatible endpoint: set",
        ),
        (
            {"default": "gpt-5.5", "provider": "openai-codex"},
            KEYS,
            "Codex itself is reached with a ChatGPT sign-in, which there is no client for here",
        ),
    ],
)
def test_what_cannot_work_says_what_to_set(model: dict[str, Any], environ: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        route(model, environ)
    assert told in str(caught.value)


def test_everybody_reads_the_same_main_model() -> None:
    config = Config.from_mapping({"model": {"default": "a", "context_length": 9_000, "max_tokens": 7}})
    same = with_route(config, main_route(config, base_url=LOCAL, environ={}))
    assert (same.model.default, same.model.base_url, same.model.context_length) == ("a", LOCAL, 9_000)
    other = with_route(config, main_route(config, model="b", base_url=LOCAL, environ={}))
    assert (other.model.default, other.model.context_length, other.model.max_tokens) == ("b", None, 7)
    assert with_route(config, main_route(config, base_url=LOCAL, environ={}), 5_000).model.context_length == 5_000


@pytest.mark.parametrize(
    "address",
    ["foo", "ftp://x/v1", "http://", "http://:80", "http://a:b/v1", "http://a b/v1", "http://a\n/v1", "//a/v1"],
)
def test_what_is_no_address_is_said_before_anybody_is_asked(address: str) -> None:
    with pytest.raises(ConfigError, match=r"is not an address\. It looks like this: http://localhost:8000/v1"):
        route({"default": "m"}, base_url=address)


@pytest.mark.parametrize("key", ["sk-ab\ncd", "sk-ab cd", "sk-\u00e4\u00f6", "sk-\x1b[0m"])
def test_a_key_that_can_be_none_is_refused_and_not_repeated(key: str) -> None:
    """The packages would put it into their error."""
    with pytest.raises(ConfigError, match="the key in OPENAI_API_KEY holds a space") as caught:
        route({"default": "m", "base_url": LOCAL}, {"OPENAI_API_KEY": key})
    assert key not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        (LOCAL, LOCAL),
        ("https://me:pass@host/v1", "https://\u2026@host/v1"),
        ("https://me:p@ss@host/v1?key=1", "https://\u2026@host/v1"),
        ("https://host/v1?key=1", "https://host/v1"),
    ],
)
def test_an_address_is_shown_without_what_is_secret_in_it(address: str, shown: str) -> None:
    assert shown_address(address) == shown
    assert route({"default": "m"}, base_url=address).who == f"custom at {shown}"


def test_a_provider_at_its_own_address_is_called_by_its_name() -> None:
    assert route({"default": "gpt-5.5"}).who == "openai"
