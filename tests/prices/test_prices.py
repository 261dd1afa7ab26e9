"""What a call costs, computed by hand, and when nobody knows."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
from dataclasses import replace
from decimal import Decimal
from importlib.resources import files
from typing import Any

import pytest
from genai_prices.types import ModelPrice, Tier, TieredPrices
from hypothesis import given, strategies as st

from leporello.cli import local_model
from leporello.cli.format import spent
from leporello.prices import Price, cost, cost_at, price_of
from leporello.prices.table import _converted, _packaged
from leporello.session.accounts import Spent


def usage(fresh: int = 0, read: int = 0, written: int = 0, output: int = 0) -> dict[str, int]:
    return {"input_tokens": fresh, "cache_read_tokens": read, "cache_write_tokens": written, "output_tokens": output}


@pytest.mark.parametrize(
    ("model", "spent", "dollars"),
    [
        # 1,000 × 2 + 100,000 × 0.20 + 2,000 × 2.50 + 500 × 10 = 32,000 per million
        ("claude-sonnet-5", usage(1_000, 100_000, 2_000, 500), 0.032),
        # 10,000 × 3 + 4,000 × 15 = 90,000
        ("anthropic/claude-sonnet-4-5-20250929", usage(10_000, output=4_000), 0.09),
        # above 200,000: 250,000 × 6 + 1,000 × 22.50 = 1,522,500
        ("claude-sonnet-4-5", usage(250_000, output=1_000), 1.5225),
        # cached tokens belong to the prompt: 1,000 × 6 + 249,000 × 0.60 + 0 = 155,400
        ("claude-sonnet-4-5", usage(1_000, read=249_000), 0.1554),
        # exactly 200,000 is not above: 200,000 × 3 = 600,000
        ("claude-sonnet-4-5", usage(200_000), 0.6),
        # 300,000 × 10 + 2,000 × 45 = 3,090,000
        ("gpt-5.5", usage(300_000, output=2_000), 3.09),
        # no price for writes: they cost as input, 1,000 × 1.25 + 1,000 × 1.25 = 2,500
        ("gpt-5-2025-08-07", usage(1_000, written=1_000), 0.0025),
        ("gemini-3-pro-preview", usage(1_000_000), 4.0),
        ("deepseek-chat", usage(output=1_000_000), 0.28),
    ],
)
def test_a_call_costs_what_the_list_says(model: str, spent: dict[str, int], dollars: float) -> None:
    assert cost(spent, model) == pytest.approx(dollars)


def test_writes_for_an_hour_cost_twice_the_input() -> None:
    written = usage(written=1_000_000)
    assert cost(written, "claude-sonnet-5") == pytest.approx(2.5)
    assert cost(written, "claude-sonnet-5", cache_ttl="1h") == pytest.approx(4.0)
    assert cost({**written, "cache_write_1h_tokens": 400_000}, "claude-sonnet-5") == pytest.approx(
        0.6 * 2.5 + 0.4 * 4.0
    )


@pytest.mark.parametrize("model", ["claude-opus-4-8", "claude-sonnet-4-6", "claude-haiku-4-5", "claude-fable-5"])
def test_claude_caching_follows_the_rule(model: str) -> None:
    price = price_of(model)
    assert price is not None
    assert price.cache_read == pytest.approx(price.input * 0.1)
    assert price.cache_write_5m == pytest.approx(price.input * 1.25)
    assert price.cache_write_1h == pytest.approx(price.input * 2)


def test_usage_in_openai_form_is_understood() -> None:
    raw = {
        "prompt_tokens": 103_000,
        "cache_read_tokens": 100_000,
        "cache_write_tokens": 2_000,
        "completion_tokens": 500,
    }
    assert cost(raw, "claude-sonnet-5") == pytest.approx(0.032)


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("nobody-knows", ""),
        ("gpt-5-imaginary", ""),
        ("gpt-5.55", ""),
        ("gpt-2025-5.5", ""),
        ("claude-sonnet-5", "openai-codex"),
        ("gpt-5.5", "copilot"),
        ("deepseek-chat", "together"),
        ("nobody/knows", "openrouter"),
        ("gpt-5.5", "github-copilot"),
        ("llama-3.3-70b", "ollama"),
        ("", ""),
    ],
)
def test_an_unknown_price_is_none_and_never_a_guess(model: str, provider: str) -> None:
    assert price_of(model, provider) is None
    assert cost(usage(1_000), model, provider) is None


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("anthropic/claude-sonnet-5", "openrouter"),
        ("openrouter/anthropic/claude-sonnet-5", ""),
        ("claude-sonnet-5", "openrouter"),
        ("Claude-Sonnet-5", "anthropic"),
        ("claude-sonnet-5-20260630", "anthropic"),
        ("claude-sonnet-5@20260630", ""),
        ("claude-sonnet-5-latest", ""),
    ],
)
def test_names_of_one_model_have_one_price(model: str, provider: str) -> None:
    assert price_of(model, provider) == price_of("claude-sonnet-5")


@pytest.mark.parametrize(
    ("model", "provider"),
    [("deepseek/deepseek-chat", "openrouter"), ("claude-sonnet-4-6", "anthropic"), ("gpt-5-codex", "openai")],
)
def test_a_price_that_is_not_ours_says_where_it_is_from(model: str, provider: str) -> None:
    price = price_of(model, provider)
    assert price is not None
    assert re.fullmatch(r"genai-prices [\d.]+", price.source)


def test_a_price_has_a_step_for_every_length_that_is_charged_differently() -> None:
    steps = TieredPrices(base=Decimal(1), tiers=[Tier(start=10, price=Decimal(2)), Tier(start=100, price=Decimal(4))])
    price = _converted(ModelPrice(input_mtok=steps, output_mtok=Decimal(8), cache_write_mtok=Decimal(3)))
    assert price is not None
    assert [price.at(tokens).input for tokens in (10, 11, 100, 101)] == [1, 2, 2, 4]
    assert {price.at(tokens).output for tokens in (1, 11, 101)} == {8}
    assert (price.cache_read, price.cache_write_1h) == (None, 3)
    assert _converted(ModelPrice(input_mtok=Decimal(1))) is None


def test_the_package_is_loaded_for_a_price_that_is_not_ours_and_not_before() -> None:
    code = """
        import sys
        from leporello.prices import price_of
        price_of("deepseek-chat"), price_of("mine", overrides={"mine": {"input": 1, "output": 1}})
        assert "genai_prices" not in sys.modules
        price_of("gpt-5.5")
        assert "genai_prices" in sys.modules
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(code)], check=True)


def test_overrides_come_first() -> None:
    own: dict[str, Price | dict[str, Any]] = {
        "mine": Price(input=1, output=2),
        "ollama/llama-3.3": {"input": 0, "output": 0},
        "gpt-5.5": {"input": 7, "output": 8},
    }
    assert cost(usage(1_000_000, output=1_000_000), "mine", overrides=own) == pytest.approx(3.0)
    assert cost(usage(1_000_000), "llama-3.3", "ollama", overrides=own) == 0.0
    assert cost(usage(1_000_000), "gpt-5.5", overrides=own) == pytest.approx(7.0)


@given(
    st.dictionaries(
        st.sampled_from([*usage(), "prompt_tokens"]), st.none() | st.integers(-9, 10**7) | st.text(max_size=3)
    )
)
def test_no_usage_raises_or_costs_less_than_nothing(raw: dict[str, Any]) -> None:
    dollars = cost(raw, "claude-sonnet-4-5")
    assert dollars is not None
    assert dollars >= 0


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(0, 10**6))
def test_without_tiers_costs_add_up(fresh: int, read: int, written: int, output: int) -> None:
    price = Price(input=3, output=15, cache_read=0.3, cache_write_5m=3.75)
    parts = [usage(fresh), usage(read=read), usage(written=written), usage(output=output)]
    assert cost_at(usage(fresh, read, written, output), price) == pytest.approx(
        sum(cost_at(part, price) for part in parts)
    )


def problems(rows: list[dict[str, Any]]) -> list[str]:
    """List what is wrong with a list of prices."""
    names = [(row["provider"], row["model"]) for row in rows]
    found = [f"{name} twice" for name in set(names) if names.count(name) > 1]
    for row in rows:
        if not (0 <= row["input"] <= row["output"] <= 1_000) or row.get("cache_read", 0) > row["input"]:
            found.append(f"{row['model']}: price")
        if not row.get("source") or not re.fullmatch(r"20\d\d-\d\d", row.get("as_of", "")):
            found.append(f"{row['model']}: source")
        long = row.get("long")
        if long and not (
            long["input"] >= row["input"] and long["output"] >= row["output"] and long["above"] >= 100_000
        ):
            found.append(f"{row['model']}: long")
        price = price_of(row["model"], row["provider"])
        if price is None or (price.input, price.output) != (row["input"], row["output"]):
            found.append(f"{row['model']}: not found by its own name")
    return found


def test_every_row_is_sound() -> None:
    rows = json.loads(files("leporello.prices").joinpath("prices.json").read_text("utf-8"))
    assert rows
    assert problems(rows) == []
    assert [row["model"] for row in rows if _same_in_the_package(row)] == []


def _same_in_the_package(row: dict[str, Any]) -> bool:
    theirs = _packaged(row["model"], row["model"], (row["provider"],))
    ours = price_of(row["model"], row["provider"])
    return theirs is not None and ours == replace(theirs, as_of=row["as_of"], source=row["source"])


def test_the_model_of_the_local_chat_costs_nothing_and_the_chat_says_so() -> None:
    used = {"prompt_tokens": 1_000, "completion_tokens": 100}
    paid, unknown = (cost(used, local_model.NAME, provider) for provider in ("custom", "openai"))
    assert (paid, unknown) == (0.0, None)
    assert spent(Spent().plus_request(used, paid)).startswith("no cost · 1 request · ")
    assert spent(Spent().plus_request(used, unknown)).startswith("cost unknown · 1 request · ")


def test_the_check_finds_planted_defects() -> None:
    good = {"model": "gpt-4", "provider": "openai", "input": 30, "output": 60, "as_of": "2026-08", "source": "x"}
    planted: list[dict[str, Any]] = [
        good,
        good,
        good | {"input": 90},
        good | {"as_of": "yesterday"},
        good | {"cache_read": 31},
        good | {"long": {"above": 272_000, "input": 1, "output": 1}},
        good | {"output": 61},
    ]
    assert len(problems(planted)) >= 6
