"""When the engine folds, and what that is computed from."""

from __future__ import annotations

import math

import pytest

from leporello import LCMEngine
from leporello.config.model import Lcm
from leporello.lcm.threshold import Inputs, Meter, budgets, price_shares


def cost_per_turn(excess: float, inputs: Inputs) -> float:
    """What a turn costs when the window grows by `excess` between two folds: rewrites, and reading what is held."""
    return inputs.rewrite * inputs.growth / excess + inputs.read_price * excess / 2


@pytest.mark.parametrize("floor", [20_000, 40_000, 80_000])
@pytest.mark.parametrize("growth", [500.0, 2_000.0])
@pytest.mark.parametrize("read_price", [0.1, 0.25])
def test_the_excess_is_where_a_turn_costs_least(floor: int, growth: float, read_price: float) -> None:
    inputs = Inputs(floor=floor, growth=growth, read_price=read_price)
    best = min(range(30_000, 90_001, 500), key=lambda excess: cost_per_turn(excess, inputs))
    assert abs(inputs.excess - best) <= 500


def test_the_excess_follows_the_formula_between_its_bounds() -> None:
    inputs = Inputs(floor=40_000, growth=1_500, read_price=0.1)
    assert inputs.excess == int(math.sqrt(2 * inputs.rewrite * 1_500 / 0.1))
    assert Inputs(floor=0).excess == 30_000
    assert Inputs(floor=400_000, growth=9_000).excess == 90_000


@pytest.mark.parametrize("window", [8_192, 32_000, 200_000, 1_000_000])
def test_the_threshold_is_never_above_three_quarters_of_the_window(window: int) -> None:
    engine = LCMEngine(window)
    engine.update_from_response({"prompt_tokens": int(window * 0.9), "completion_tokens": 10})
    assert 0 < engine.threshold_tokens <= window * 0.75


def test_a_share_is_taken_as_it_is() -> None:
    assert LCMEngine(200_000, config={"threshold": 0.5}).threshold_tokens == 100_000


def test_without_a_window_nothing_fires() -> None:
    engine = LCMEngine(0)
    assert engine.threshold_tokens == 0
    assert not engine.should_compress(10**9)


def test_the_floor_is_what_the_provider_counts_after_a_fold() -> None:
    meter, settings = Meter(), Lcm()
    for prompt in (10_000, 12_000, 14_000):
        meter.observe(prompt)
    estimated = meter.inputs(settings, (0.1, 1.25)).floor
    meter.folded(0)
    meter.observe(23_456)
    measured = meter.inputs(settings, (0.1, 1.25))
    assert measured.floor == 23_456 != estimated
    assert measured.growth == pytest.approx(1_500 + 0.2 * 500 + 0.2 * (500 - 0.2 * 500))


@pytest.mark.parametrize("window", [8_192, 16_000, 32_000])
def test_a_small_window_has_room_for_several_leaves(window: int) -> None:
    made = budgets(Lcm(), window, Inputs())
    assert 256 <= made.leaf <= made.threshold / 4
    assert made.tail + made.summaries < made.threshold / 2


def test_a_large_window_has_leaves_of_four_percent() -> None:
    assert budgets(Lcm(threshold=0.5), 1_000_000, Inputs()).leaf == 40_000
    assert budgets(Lcm(threshold=0.5), 64_000, Inputs()).leaf == 4_000
    assert budgets(Lcm(leaf_tokens=700), 64_000, Inputs()).leaf == 700


def test_prices_come_from_the_list_and_have_a_default() -> None:
    assert price_shares("claude-sonnet-5", "anthropic") == pytest.approx((0.1, 1.25))
    assert price_shares("a-model-nobody-knows", "") == (0.1, 1.25)


def test_the_inputs_are_in_the_status() -> None:
    engine = LCMEngine(200_000)
    engine.update_model("claude-sonnet-5", 200_000, provider="anthropic")
    told = engine.get_status()["threshold"]
    assert told.keys() >= {"mode", "floor", "growth", "rewrite", "read_price", "excess"}
