"""Caching switches itself on where the model and the provider support it, and says so."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from inline_snapshot import snapshot

from leporello.caching import CachePolicy, choose
from leporello.caching.markers import count_markers
from leporello.config import Config
from leporello.config.model import PromptCaching
from leporello.errors import ConfigError

MARK = {"type": "ephemeral"}
SYSTEM = {"role": "system", "content": "s"}
TALK = [SYSTEM, *({"role": "user", "content": str(n)} for n in range(6))]

Strategy = Literal["system_and_3", "planner"]


def chosen(
    model: str,
    provider: str = "auto",
    base_url: str | None = None,
    *,
    ttl: Literal["5m", "1h"] = "5m",
    strategy: Strategy = "system_and_3",
) -> CachePolicy:
    settings = PromptCaching(cache_ttl=ttl, strategy=strategy)
    return choose(model=model, provider=provider, base_url=base_url, settings=settings)


@pytest.mark.parametrize(
    ("model", "provider", "base_url", "enabled", "native"),
    [
        ("claude-sonnet-5", "anthropic", None, True, True),
        ("claude-sonnet-5", "auto", None, True, True),
        ("claude-sonnet-5", "anthropic", "http://127.0.0.1:8080", True, True),
        ("anthropic/claude-sonnet-5", "openrouter", None, True, False),
        ("anthropic/claude-sonnet-5", "auto", None, True, False),
        ("anthropic/Claude-Sonnet-5", "openai", "https://openrouter.ai/api/v1", True, False),
        ("claude-sonnet-5", "openai", "https://api.anthropic.com/v1", True, True),
        ("claude-sonnet-5", "custom", "http://localhost:4000", False, False),
        ("claude-sonnet-5", "auto", "http://localhost:4000", False, False),
        ("claude-sonnet-5", "auto", "https://openrouter.ai.example.com/v1", False, False),
        ("gpt-5.5", "openai", None, False, False),
        ("openai/gpt-5.5", "openrouter", None, False, False),
        ("some-model", "anthropic", None, False, False),
        ("", "auto", None, False, False),
    ],
)
def test_it_is_on_for_claude_at_anthropic_and_openrouter(
    model: str, provider: str, base_url: str | None, enabled: bool, native: bool
) -> None:
    policy = chosen(model, provider, base_url)
    assert (policy.enabled, policy.native) == (enabled, native)
    assert bool(count_markers(policy.mark(TALK))) == enabled


@pytest.mark.parametrize("provider", ["anthropic", "openrouter"])
@pytest.mark.parametrize(("dialect", "native"), [("openai", False), ("anthropic", True)])
def test_the_dialect_decides_what_a_tool_result_carries(provider: str, dialect: str, native: bool) -> None:
    """A marker on a tool message itself is for the converter to Anthropic's format alone."""
    policy = choose(
        model="claude-sonnet-5", provider=provider, base_url=None, settings=PromptCaching(), dialect=dialect
    )
    result = {"role": "tool", "tool_call_id": "c", "content": "out"}
    assert ("cache_control" in policy.mark([result])[0]) == policy.native == native


def test_an_address_that_is_none_belongs_to_nobody() -> None:
    assert not chosen("claude-sonnet-5", "auto", "http://[::1").enabled


def test_the_status_line() -> None:
    lines = {
        "openrouter": chosen("anthropic/claude-sonnet-5", "openrouter").line(),
        "an hour": chosen("claude-sonnet-5", "anthropic", ttl="1h").line(),
        "openai": chosen("gpt-5.5", "openai").line(),
        "newer openai": chosen("gpt-5.6", "openai").line(),
        "newer openai, planned": chosen("gpt-5.6", "openai", strategy="planner").line(),
        "a server of one's own": chosen("qwen3", "ollama").line(),
        "a gpt elsewhere": chosen("gpt-5.5", "auto", "http://localhost:4000").line(),
    }
    assert lines == snapshot(
        {
            "openrouter": "💾 Prompt caching: ENABLED (Claude via OpenRouter, 5m TTL)",
            "an hour": "💾 Prompt caching: ENABLED (Claude via Anthropic, 1h TTL)",
            "openai": "💾 Prompt caching: automatic (OpenAI caches by itself)",
            "newer openai": "💾 Prompt caching: automatic (OpenAI caches by itself)",
            "newer openai, planned": "💾 Prompt caching: ENABLED (OpenAI, 30m TTL)",
            "a server of one's own": "",
            "a gpt elsewhere": "",
        }
    )


@pytest.mark.parametrize("strategy", ["system_and_3", "planner"])
def test_the_lifetime_reaches_the_marker(strategy: Strategy) -> None:
    marked = chosen("claude-sonnet-5", ttl="1h", strategy=strategy).mark(TALK)
    assert marked[-1]["content"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}


@pytest.mark.parametrize("strategy", ["system_and_3", "planner"])
@pytest.mark.parametrize("on_tools", range(6))
def test_marks_on_tools_count(strategy: Strategy, on_tools: int) -> None:
    tools = [{"name": str(n), "cache_control": MARK} for n in range(on_tools)] + [{"name": "plain"}]
    marked = chosen("claude-sonnet-5", strategy=strategy).mark(TALK, tools=tools)
    assert count_markers(marked) <= max(0, 4 - on_tools)
    assert count_markers(marked) or on_tools >= 4


def test_a_clean_list_needs_no_search() -> None:
    policy = chosen("claude-sonnet-5")
    assert policy.mark(TALK, clean=True) == policy.mark(TALK)
    dirty = [SYSTEM, {"role": "user", "content": "old", "cache_control": MARK}, *TALK[1:]]
    assert count_markers(policy.mark(dirty)) == 4
    assert count_markers(policy.mark(dirty, clean=True)) == 5, "the caller's word is taken"


def test_off_means_the_same_messages_in_a_new_list() -> None:
    marked = chosen("gpt-5.5", "openai").mark(TALK)
    assert marked is not TALK
    assert all(new is old for new, old in zip(marked, TALK, strict=True))


def test_newer_openai_models_get_a_breakpoint_on_the_system_prompt() -> None:
    marked: list[Any] = chosen("gpt-5.6", "openai", strategy="planner").mark(TALK)
    part = {"type": "text", "text": "s", "prompt_cache_breakpoint": {"mode": "explicit"}}
    assert marked == [{"role": "system", "content": [part]}, *TALK[1:]]


@pytest.mark.parametrize("model", ["gpt-5.5", "gpt-4o"])
def test_older_openai_models_do_not(model: str) -> None:
    assert not chosen(model, "openai", strategy="planner").enabled


@pytest.mark.parametrize("ttl", ["2h", "10m", 5])
def test_another_lifetime_is_a_configuration_error(ttl: Any) -> None:
    with pytest.raises(ConfigError, match="cache_ttl"):
        Config.from_mapping({"prompt_caching": {"cache_ttl": ttl}})
