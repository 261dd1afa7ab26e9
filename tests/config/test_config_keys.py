"""Keys come from the environment, and nothing shows them."""

from __future__ import annotations

import pytest

from leporello.config.keys import api_key, hidden, looks_like_key, names_a_key, present_keys

ENVIRON = {"OPENAI_API_KEY": " one ", "ANTHROPIC_API_KEY": "  ", "AUXILIARY_COMPRESSION_API_KEY": "two"}


def test_a_key_is_found_by_its_provider() -> None:
    assert [api_key(name, ENVIRON) for name in ("openai", "OpenAI", "custom")] == ["one", "one", "two"]


def test_no_key_is_none_whatever_the_reason() -> None:
    assert [api_key(name, ENVIRON) for name in ("anthropic", "openrouter", "nobody", "auto", "")] == [None] * 5


def test_presence_is_told_without_the_keys() -> None:
    present = present_keys(ENVIRON)
    assert present == {
        "OPENAI_API_KEY": True,
        "ANTHROPIC_API_KEY": False,
        "OPENROUTER_API_KEY": False,
        "AUXILIARY_COMPRESSION_API_KEY": True,
    }
    assert "one" not in repr(present)


@pytest.mark.parametrize(
    "name", ["api_key", "OPENAI_API_KEY", "apikey", "secret", "db_password", "access-token", "token"]
)
def test_names_of_keys(name: str) -> None:
    assert names_a_key(name)


@pytest.mark.parametrize("name", ["max_tokens", "key", "stop_token", "api_key_env", "api_keys", "monkey", "keys"])
def test_names_that_are_none(name: str) -> None:
    assert not names_a_key(name)


@pytest.mark.parametrize(
    "value", ["sk-proj-abcdefgh12345678", "sk-ant-api03-abcdefghijklmnop", "ghp_" + "a1" * 18, " sk-or-v1-" + "0" * 30]
)
def test_values_that_look_like_keys(value: str) -> None:
    assert looks_like_key(value)


@pytest.mark.parametrize(
    "value", ["claude-sonnet-5", "xai-grok-4-fast-reasoning", "sk-small", "hf-internal-testing-tiny-model", 5, None]
)
def test_values_that_do_not(value: object) -> None:
    assert not looks_like_key(value)


def test_what_is_shown_holds_no_secret() -> None:
    block = {
        "api_key": "x",
        "url": "postgresql://me:p@ss:w@host/db",
        "list": ["sk-abcdefgh12345678"],
        "n": 1,
        "plain": "a:b@c",
    }
    assert hidden("mine", block) == {
        "api_key": "***",
        "url": "postgresql://me:***@host/db",
        "list": ["***"],
        "n": 1,
        "plain": "a:b@c",
    }
