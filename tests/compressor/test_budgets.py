"""The numbers of the compressor for the windows people use."""

from __future__ import annotations

import pytest

from leporello.compressor import ContextCompressor
from leporello.compressor.budgets import CompressorBudgets
from leporello.events import Event

# window -> threshold, tail budget, longest summary
WINDOWS = {
    8_192: (4_096, 819, 409),
    32_000: (16_000, 3_200, 1_600),
    128_000: (64_000, 12_800, 6_400),
    200_000: (100_000, 20_000, 10_000),
    262_144: (131_072, 26_214, 12_000),
    1_000_000: (500_000, 100_000, 12_000),
}


@pytest.mark.parametrize("window", WINDOWS)
def test_a_window_gives_its_numbers(window: int) -> None:
    engine = ContextCompressor(window)
    assert (engine.threshold_tokens, engine.tail_token_budget, engine.max_summary_tokens) == WINDOWS[window]
    assert (engine.protect_first_n, engine.protect_last_n, engine.threshold_percent) == (3, 20, 0.50)


def test_a_tiny_window_still_gets_a_summary_of_256_tokens() -> None:
    assert ContextCompressor(2_000).max_summary_tokens == 256


def test_update_model_gives_the_same_numbers_as_the_constructor() -> None:
    engine = ContextCompressor()
    engine.update_model("claude-sonnet-5", 200_000, provider="anthropic")
    assert (engine.threshold_tokens, engine.tail_token_budget, engine.max_summary_tokens) == WINDOWS[200_000]


@pytest.mark.parametrize(
    ("content", "window", "budget"),
    [
        (5_000, 200_000, 2_000),  # at least 2,000
        (40_000, 200_000, 8_000),  # a fifth
        (90_000, 200_000, 10_000),  # at most 5 % of the window
        (900_000, 1_000_000, 12_000),  # and never more than 12,000
        (5_000, 8_192, 409),  # the maximum wins over the minimum
    ],
)
def test_the_summary_budget(content: int, window: int, budget: int) -> None:
    assert CompressorBudgets.of(window, threshold=0.5, target_ratio=0.2).summary_tokens(content) == budget


@pytest.mark.parametrize(
    "config",
    [{"threshold": 0.6, "target_ratio": 0.5}, {"compression": {"threshold": 0.6, "target_ratio": 0.5}}],
    ids=["block", "whole configuration"],
)
def test_the_configuration_changes_the_numbers(config: dict[str, object]) -> None:
    engine = ContextCompressor(100_000, config=config)
    assert (engine.threshold_tokens, engine.tail_token_budget) == (60_000, 30_000)


class TestCodex:
    """gpt-5.5 on Codex: a raised threshold, said once, gone with the model."""

    def engine(self, config: dict[str, object] | None = None) -> tuple[ContextCompressor, list[Event]]:
        engine, heard = ContextCompressor(config=config), list[Event]()
        engine.on_event = heard.append
        return engine, heard

    def test_the_threshold_is_raised_and_said_once(self) -> None:
        engine, heard = self.engine()
        for _ in range(3):
            engine.update_model("gpt-5.5", 272_000, provider="openai-codex")
        assert engine.threshold_tokens == 231_200
        assert engine.tail_token_budget == 46_240
        (notice,) = heard
        assert str(notice) == (
            "gpt-5.5 on Codex has a window of 272K: compaction now starts at 85 % of it instead of 50%. "
            "To keep your own threshold: leporello config set compression.codex_gpt55_autoraise false"
        )

    @pytest.mark.parametrize(
        ("model", "provider", "window"),
        [
            ("gpt-5.5", "openai", 1_050_000),
            ("openai/gpt-5.5", "openrouter", 1_050_000),
            ("gpt-5.5-mini", "openai-codex", 272_000),
            ("gpt-5.4", "openai-codex", 272_000),
        ],
    )
    def test_no_other_route_is_touched(self, model: str, provider: str, window: int) -> None:
        engine, heard = self.engine()
        engine.update_model(model, window, provider=provider)
        assert engine.threshold_tokens == window // 2
        assert not heard

    def test_after_a_switch_the_raise_is_gone(self) -> None:
        engine, _ = self.engine()
        engine.update_model("gpt-5.5", 272_000, provider="openai-codex")
        engine.update_model("gpt-5.5", 1_000_000, provider="openai")
        assert engine.threshold_tokens == 500_000

    def test_it_can_be_switched_off(self) -> None:
        engine, heard = self.engine({"codex_gpt55_autoraise": False})
        engine.update_model("gpt-5.5", 272_000, provider="openai-codex")
        assert engine.threshold_tokens == 136_000
        assert not heard

    def test_a_higher_threshold_of_the_user_stays(self) -> None:
        engine, heard = self.engine({"threshold": 0.9})
        engine.update_model("gpt-5.5", 272_000, provider="openai-codex")
        assert engine.threshold_tokens == 244_800
        assert not heard
