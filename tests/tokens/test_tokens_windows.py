"""A model's name finds its window, on its route."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from typing import Any

import pytest
from hypothesis import given, strategies as st

from leporello.tokens import DEFAULT_WINDOW, find_window, window_of


@pytest.mark.parametrize(
    ("model", "provider", "window"),
    [
        ("gpt-5.5", "openai-codex", 272_000),
        ("gpt-5.5", "openai", 1_050_000),
        ("gpt-5.5", "", 1_050_000),
        ("openai/gpt-5.5", "openrouter", 1_050_000),
        ("openrouter/openai/gpt-5.5", "", 1_050_000),
        ("gpt-5.5", "copilot", 400_000),
        ("gpt-5.5", "github-copilot", 400_000),
        ("claude-sonnet-5", "anthropic", 1_000_000),
        ("anthropic/claude-sonnet-5", "", 1_000_000),
        ("Claude-Sonnet-5 ", "ANTHROPIC", 1_000_000),
        ("claude-sonnet-4-5-20250929", "anthropic", 200_000),
        ("anthropic/claude-sonnet-4.5", "openrouter", 200_000),
        ("claude-sonnet-4-5@20250929", "vertex", 200_000),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "bedrock", 200_000),
        ("claude-opus-4-6", "anthropic", 1_000_000),
        ("deepseek/deepseek-r1:free", "openrouter", 65_536),
        ("models/gemini-2.5-pro", "google", 1_048_576),
        ("meta-llama/Llama-3.3-70B-Instruct", "together", 131_072),
        ("meta-llama/llama-3-8b", "", 8_192),
        ("accounts/fireworks/models/kimi-k2-thinking", "fireworks", 262_144),
        ("MiniMax-M2.5", "minimax", 204_800),
        ("z-ai/glm-4.6", "openrouter", 204_800),
    ],
)
def test_a_name_finds_its_window(model: str, provider: str, window: int) -> None:
    assert window_of(model, provider) == window


@pytest.mark.parametrize(
    ("model", "window"),
    [
        ("gpt-4", 8_192),
        ("gpt-4-0613", 8_192),
        ("gpt-4-1106-preview", 128_000),
        ("gpt-4-turbo", 128_000),
        ("gpt-4o-mini", 128_000),
        ("gpt-4.1-nano", 1_047_576),
        ("grok-4", 256_000),
        ("grok-4-fast-reasoning", 2_000_000),
        ("qwen3-coder-plus", 1_048_576),
        ("qwen3-coder-480b", 262_144),
    ],
)
def test_the_longest_name_wins(model: str, window: int) -> None:
    assert window_of(model) == window


@pytest.mark.parametrize("model", ["", "nobody-knows", "gpt-4.5-preview", "gpt-40", "o39", "claude", "gpt-5.55"])
def test_unknown_models_have_no_window(model: str) -> None:
    """A longer word or another version is not the same model."""
    assert window_of(model) is None


@pytest.mark.parametrize("provider", ["ollama", "lmstudio", "vllm"])
def test_a_server_of_ones_own_decides_itself(provider: str) -> None:
    assert window_of("llama-3.1", provider) is None
    assert window_of("llama-3.1", provider, overrides={"llama-3.1": 32_768}) == 32_768


def test_overrides_come_first_and_the_route_before_the_name() -> None:
    overrides = {"gpt-5.5": 111_000, "copilot/gpt-5.5": 222_000, "My-Model": 333_000}
    assert window_of("gpt-5.5", "openai", overrides=overrides) == 111_000
    assert window_of("gpt-5.5", "copilot", overrides=overrides) == 222_000
    assert window_of("openai/gpt-5.5", "openrouter", overrides=overrides) == 111_000
    assert window_of("my-model", overrides=overrides) == 333_000
    assert window_of("gpt-5.5-pro", overrides=overrides) == 1_050_000


def test_a_row_tells_where_it_comes_from_and_how_much_input_is_allowed() -> None:
    row = find_window("gpt-5", "openai")
    assert row is not None
    assert (row.window, row.input) == (400_000, 272_000)
    assert row.source
    assert re.fullmatch(r"20\d\d-\d\d", row.as_of)


@given(st.text(max_size=40), st.text(max_size=20))
def test_no_name_raises(model: str, provider: str) -> None:
    window = window_of(model, provider)
    assert window is None or window > 0


def problems(rows: list[dict[str, Any]]) -> list[str]:
    """List what is wrong with a table of windows."""
    names = [(row.get("provider", ""), row["model"]) for row in rows]
    found = [f"{name} twice" for name in set(names) if names.count(name) > 1]
    for row in rows:
        if not 1_024 <= row["window"] <= 10_000_000 or row.get("input", 1) > row["window"]:
            found.append(f"{row['model']}: window")
        if not row.get("source") or not re.fullmatch(r"20\d\d-\d\d", row.get("as_of", "")):
            found.append(f"{row['model']}: source")
        if row["model"] != row["model"].lower() or "/" in row["model"]:
            found.append(f"{row['model']}: name")
        own = window_of(row["model"], row.get("provider", ""))
        if own != row["window"]:
            found.append(f"{row['model']}: not found by its own name")
    return found


def test_every_row_is_sound() -> None:
    rows = json.loads(files("leporello.tokens").joinpath("windows.json").read_text("utf-8"))
    assert len(rows) > 200
    assert problems(rows) == []


def test_the_check_finds_planted_defects() -> None:
    good = {"model": "gpt-4", "window": 8_192, "as_of": "2026-08", "source": "x"}
    planted: list[dict[str, Any]] = [
        good,
        good,
        good | {"model": "GPT-4"},
        good | {"window": 0},
        good | {"source": ""},
        good | {"input": 9_000},
        good | {"window": 9_999},
    ]
    assert len(problems(planted)) >= 6


def test_the_default_is_one_that_any_current_model_has() -> None:
    assert DEFAULT_WINDOW == 128_000
