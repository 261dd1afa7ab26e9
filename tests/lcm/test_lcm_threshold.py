"""When the engine folds, and what that is computed from."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest

from leporello import LCMEngine
from leporello.config.model import Lcm
from leporello.lcm.threshold import (
    LEAST_IN_VIEW,
    NAMES_SHARE,
    OPEN_LEAF_SHARE,
    Inputs,
    UsageMeter,
    budgets,
    floor_share,
    price_shares,
)
from leporello.tokens import count_messages

if TYPE_CHECKING:
    from leporello.messages import Message


def cost_per_turn(threshold: int, inputs: Inputs) -> float:
    """What a turn costs, counted out: what is read from the cache, and what folds write to it again.

    Tail, summaries and the open leaf are their share of whatever threshold is tried.
    """
    floor = inputs.base + inputs.beyond + inputs.share * threshold
    turns = max(threshold - floor, 1) / inputs.growth
    read = inputs.read_price * (floor + threshold) / 2
    rewritten = (inputs.write_price - inputs.read_price) * (floor - inputs.base)
    return read + rewritten / turns


def check_is_cheapest(threshold: int, inputs: Inputs, tolerance: float = 0.005) -> None:
    """Check that no other threshold with enough excess is cheaper by more than a trifle."""
    lowest = int((inputs.base + inputs.beyond + LEAST_IN_VIEW) / (1 - inputs.share)) + 1
    best = min(cost_per_turn(other, inputs) for other in range(lowest, 250_000, 500))
    assert cost_per_turn(threshold, inputs) <= best * (1 + tolerance)


CASES = [
    Inputs(base=base, beyond=beyond, growth=growth, read_price=read)
    for base in (4_000, 12_000, 40_000)
    for beyond in (-1_500, 0, 3_000)
    for growth in (500.0, 2_000.0, 6_000.0)
    for read in (0.1, 0.25)
]


@pytest.mark.parametrize("inputs", CASES, ids=lambda i: f"{i.base}-{i.beyond}-{i.growth:.0f}-{i.read_price}")
def test_the_threshold_is_where_a_turn_costs_least(inputs: Inputs) -> None:
    check_is_cheapest(inputs.threshold, inputs)
    assert inputs.floor + inputs.excess == inputs.threshold


@pytest.mark.parametrize("factor", [0.6, 1.5])
def test_planted_a_threshold_beside_the_best_is_caught(factor: float) -> None:
    inputs = Inputs(base=40_000, growth=6_000.0)
    with pytest.raises(AssertionError):
        check_is_cheapest(int(inputs.threshold * factor), inputs)


def test_the_excess_follows_the_formula_between_its_bounds() -> None:
    inputs = Inputs(base=40_000, growth=6_000)
    assert inputs.excess == int(math.sqrt(2 * inputs.rewrite * 6_000 / inputs.held_price))
    assert Inputs(base=2_000, growth=100).excess == 30_000
    assert Inputs(base=4_000_000, growth=9_000).excess == 90_000


@pytest.mark.parametrize("zone", [0.0, 0.05, 0.1])
@pytest.mark.parametrize("base", [2_000, 12_000])
def test_the_masked_zone_counts_among_what_is_in_view(zone: float, base: int) -> None:
    inputs = Inputs(base=base, share=0.45 + zone, zone=zone, growth=100)
    assert inputs.excess + zone * inputs.threshold == pytest.approx(30_000, abs=2)
    assert inputs.threshold == pytest.approx(Inputs(base=base, share=0.45, growth=100).threshold, abs=2)


@pytest.mark.parametrize("zone", [0.05, 0.15, 0.3, 0.4])
@pytest.mark.parametrize("base", [4_000, 30_000, 90_000])
@pytest.mark.parametrize("price", [(0.1, 1.25), (1.0, 1.0)])
def test_whatever_the_zone_there_is_room_to_grow(zone: float, base: int, price: tuple[float, float]) -> None:
    share = floor_share(Lcm(masked_zone=zone))
    inputs = Inputs(base=base, share=share, zone=zone, growth=500, read_price=price[0], write_price=price[1])
    assert inputs.excess >= 15_000


def test_the_floor_has_room_for_the_list_of_names() -> None:
    defaults = Lcm()
    zones = defaults.tail + defaults.masked_zone + defaults.summary_share + OPEN_LEAF_SHARE
    assert floor_share(defaults) == pytest.approx(zones + NAMES_SHARE)


def test_without_a_cache_the_window_is_kept_small() -> None:
    """Every token is paid in full in every turn then, and a fold costs nothing extra."""
    plain = Inputs(base=12_000, growth=500, read_price=1.0, write_price=1.0)
    assert plain.excess == LEAST_IN_VIEW


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


def test_the_floor_is_measured_at_the_first_request_after_a_fold() -> None:
    meter = UsageMeter(floor_share(Lcm()))
    for prompt in (10_000, 12_000, 14_000):
        meter.observe(prompt)
    before = meter.inputs((0.1, 1.25))
    meter.folded(30_000)
    meter.observe(10_000 + int(floor_share(Lcm()) * 30_000) + 2_000)
    measured = meter.inputs((0.1, 1.25))
    assert before.beyond == 0
    assert measured.beyond == pytest.approx(2_000, abs=1)
    assert measured.base == 10_000
    assert measured.growth == pytest.approx(1_500 + 0.2 * 500 + 0.2 * (500 - 0.2 * 500))


def test_one_odd_fold_does_not_move_the_threshold_far() -> None:
    meter = UsageMeter(floor_share(Lcm()))
    meter.observe(12_000)
    calm = meter.inputs((0.1, 1.25)).threshold
    for prompt in (25_000, 190_000, 25_000):
        meter.folded(calm)
        meter.observe(prompt)
    assert meter.inputs((0.1, 1.25)).threshold < 1.25 * calm


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
    assert told.keys() >= {"mode", "base", "floor", "growth", "rewrite", "read_price", "held_price", "excess"}


class TestRefire:
    """A conversation that cannot get below its threshold."""

    def fired(self, turns: int, growth: str) -> list[int]:
        engine = LCMEngine(32_000, config={"threshold": 0.5})
        engine.on_event = lambda _: None
        messages: list[Message] = [{"role": "user", "content": "word " * 20_000}]
        fired = []
        for turn in range(turns):
            function = {"name": "run", "arguments": f'{{"n": {turn}}}'}
            messages += [
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"id": f"c{turn}", "type": "function", "function": function}],
                },
                {"role": "tool", "tool_call_id": f"c{turn}", "content": f"{turn}: {growth}"},
            ]
            tokens = count_messages(messages)
            engine.should_compress_preflight(messages)
            if engine.should_compress(tokens):
                fired.append(turn)
                messages = engine.compress(messages, current_tokens=tokens)
        return fired

    def test_small_turns_do_not_fire_every_time(self) -> None:
        assert 1 <= len(self.fired(60, "nothing new")) < 6

    @pytest.mark.slow
    def test_it_fires_again_once_the_window_has_grown(self) -> None:
        fired = self.fired(40, "something new " * 200)
        assert 2 <= len(fired) < 20
        assert fired[-1] > 20
