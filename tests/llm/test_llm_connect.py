"""From configuration and keys to a client."""

import importlib
import subprocess
import sys
from typing import Any

import pytest
from inline_snapshot import snapshot

from leporello.config import Config
from leporello.config.model import ModelSettings
from leporello.errors import ConfigError
from leporello.llm import LLM, AnthropicClient, OpenAIClient, connect
from leporello.tokens.windows import window_of

OPENAI, ANTHROPIC, OPENROUTER = {"OPENAI_API_KEY": "o"}, {"ANTHROPIC_API_KEY": "a"}, {"OPENROUTER_API_KEY": "r"}
ALL = OPENAI | ANTHROPIC | OPENROUTER


def connected(environ: dict[str, str], main: dict[str, Any] | None = None, **compression: Any) -> LLM | None:
    config = Config.from_mapping({"model": main or {}, "auxiliary": {"compression": compression}})
    return connect(config, environ=environ)


def route(llm: LLM | None) -> tuple[str, str, str, str | None] | None:
    """Return who is asked, for what, with which key, and where."""
    if llm is None:
        return None
    assert isinstance(llm, (OpenAIClient, AnthropicClient))
    return llm.provider, llm.model, llm._api_key, llm.base_url


def test_without_a_key_there_is_no_model() -> None:
    assert connected({}) is None
    assert connected({"OPENAI_API_KEY": "  "}) is None
    assert connected(OPENAI, provider="anthropic") is None


def test_auto_takes_the_first_key() -> None:
    found = {
        name: route(connected(keys)) for name, keys in (("all", ALL), ("two", OPENAI | ANTHROPIC), ("one", ANTHROPIC))
    }
    assert found == snapshot(
        {
            "all": ("openrouter", "google/gemini-2.5-flash", "r", "https://openrouter.ai/api/v1"),
            "two": ("openai", "gpt-5-mini", "o", "https://api.openai.com/v1"),
            "one": ("anthropic", "claude-haiku-4-5", "a", "https://api.anthropic.com"),
        }
    )


def test_auto_prefers_the_main_models_provider() -> None:
    assert route(connected(ALL, {"default": "m", "provider": "anthropic"})) == snapshot(
        ("anthropic", "claude-haiku-4-5", "a", "https://api.anthropic.com")
    )
    assert route(connected(ALL, {"default": "claude-sonnet-5"})) == snapshot(
        ("anthropic", "claude-haiku-4-5", "a", "https://api.anthropic.com")
    )
    assert route(connected(OPENAI, {"default": "claude-sonnet-5"})) == snapshot(
        ("openai", "gpt-5-mini", "o", "https://api.openai.com/v1")
    )


def test_auto_stays_with_a_main_model_at_an_address_of_its_own() -> None:
    """Who runs a local model does not want the conversation to be sent to whatever key is set."""
    local = {"default": "qwen3", "base_url": "http://127.0.0.1:11434/v1", "context_length": 32768}
    llm = connected(OPENROUTER, local)
    assert route(llm) == ("custom", "qwen3", "none", "http://127.0.0.1:11434/v1")
    assert llm is not None
    assert llm.context_length == 32768


def test_auto_with_a_model_looks_for_who_serves_it() -> None:
    assert route(connected(ALL, model="gpt-5-nano")) == snapshot(
        ("openai", "gpt-5-nano", "o", "https://api.openai.com/v1")
    )
    assert route(connected(ALL, model="claude-haiku-4-5")) == snapshot(
        ("anthropic", "claude-haiku-4-5", "a", "https://api.anthropic.com")
    )
    assert route(connected(ALL, model="qwen/qwen3-30b")) == snapshot(
        ("openrouter", "qwen/qwen3-30b", "r", "https://openrouter.ai/api/v1")
    )
    assert connected({}, model="qwen/qwen3-30b") is None


def test_named_providers_use_their_own_key() -> None:
    assert route(connected(ALL, provider="openai")) == snapshot(
        ("openai", "gpt-5-mini", "o", "https://api.openai.com/v1")
    )
    assert route(connected(ALL, provider="openrouter", model="x-ai/grok-4-fast")) == snapshot(
        ("openrouter", "x-ai/grok-4-fast", "r", "https://openrouter.ai/api/v1")
    )
    assert isinstance(connected(ALL, provider="anthropic"), AnthropicClient)


def test_main_is_the_main_models_own_route() -> None:
    main = {"default": "claude-sonnet-5", "provider": "anthropic", "context_length": 1000}
    llm = connected(ALL, main, provider="main")
    assert route(llm) == ("anthropic", "claude-sonnet-5", "a", "https://api.anthropic.com")
    assert llm is not None
    assert llm.context_length == 1000


def test_a_given_main_model_comes_before_the_configured_one() -> None:
    config = Config.from_mapping({"model": {"default": "gpt-5"}, "auxiliary": {"compression": {"provider": "main"}}})
    llm = connect(config, environ=ALL, main=ModelSettings(default="claude-opus-5"))
    assert route(llm) == ("anthropic", "claude-opus-5", "a", "https://api.anthropic.com")


@pytest.mark.parametrize(
    ("environ", "key"),
    [
        ({"AUXILIARY_COMPRESSION_API_KEY": "x"} | ALL, "x"),
        (ALL, "o"),
        (ANTHROPIC, "none"),
        ({}, "none"),
    ],
)
def test_an_endpoint_gets_its_own_key_or_openais_or_none(environ: dict[str, str], key: str) -> None:
    llm = connected(environ, base_url="http://127.0.0.1:8000/v1", model="qwen3")
    assert route(llm) == ("custom", "qwen3", key, "http://127.0.0.1:8000/v1")


@pytest.mark.parametrize(
    ("main", "compression"),
    [
        ({}, {"base_url": "http://x/v1"}),
        ({}, {"base_url": "http://x/v1", "model": "m", "provider": "anthropic"}),
        ({"default": "gpt-5"}, {"base_url": "http://x/v1", "model": "m", "provider": "main"}),
        ({}, {"provider": "main"}),
        ({"default": "gpt-5.5", "provider": "openai-codex"}, {"provider": "main"}),
        ({}, {"provider": "groq"}),
        ({}, {"provider": "custom"}),
        ({}, {"model": "llama-3"}),
    ],
)
def test_what_can_never_work_says_what_to_set(main: dict[str, Any], compression: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"auxiliary\.compression\.\w+: .+ Set "):
        connected(ALL, main, **compression)


def test_the_window_is_configured_or_known_or_zero() -> None:
    def window(**compression: Any) -> int:
        llm = connected(ALL, **compression)
        assert llm is not None
        return llm.context_length

    assert window(context_length=5000) == 5000
    assert window(provider="anthropic") == window_of("claude-haiku-4-5", "anthropic")
    assert window(base_url="http://x/v1", model="nobody-knows-this") == 0


def test_an_own_window_overrides_the_table() -> None:
    config = Config.from_mapping({"windows": {"gpt-5-mini": 12345}})
    llm = connect(config, environ=OPENAI)
    assert llm is not None
    assert llm.context_length == 12345


def test_the_key_is_in_no_repr() -> None:
    llm = connected({"OPENAI_API_KEY": "hunter2"})
    assert "hunter2" not in repr(llm)
    assert "gpt-5-mini" in repr(llm)


@pytest.mark.slow
@pytest.mark.parametrize("module", ["leporello.llm", "leporello.llm.connect", "leporello.llm.scripted"])
def test_importing_loads_no_package_of_a_provider(module: str) -> None:
    code = (
        f"import sys, {module}; print([m for m in ('openai', 'anthropic', 'pydantic', 'httpx2') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.slow
def test_making_a_client_loads_no_package_of_a_provider() -> None:
    code = (
        "import sys; from leporello.config import Config; from leporello.llm import connect;"
        "connect(Config.from_mapping({}), environ={'OPENAI_API_KEY': 'k'}); print('openai' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_function_is_not_hidden_by_its_module() -> None:
    module = importlib.import_module("leporello.llm.connect")
    assert importlib.import_module("leporello.llm").connect is module.connect
