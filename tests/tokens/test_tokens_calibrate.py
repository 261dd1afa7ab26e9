"""Calibration finds a model's factor, and no wrong report leads it astray."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, strategies as st

from leporello.tokens import Calibration, Estimator, count_messages, count_request
from leporello.tokens.calibrate import HIGHEST_FACTOR, LOWEST_FACTOR

TALK = [{"role": "user", "content": "Please read the file and tell me what it does. " * 30}]


def learned(*reports: tuple[int, int]) -> float:
    calibration = Calibration()
    for estimated, reported in reports:
        calibration.observe("m", estimated, reported)
    return calibration.factor("m")


def test_nothing_known_means_no_change() -> None:
    assert Calibration().factor("m") == 1.0


def test_the_factor_is_what_the_reports_say() -> None:
    assert learned((1000, 1300), (2000, 2600), (4000, 5200)) == pytest.approx(1.3)


@pytest.mark.parametrize("wrong", [(1000, 0), (1000, 12), (1000, 500_000), (1000, -5), (0, 1000), (1000, 2900), (3, 9)])
def test_one_wrong_report_changes_nothing(wrong: tuple[int, int]) -> None:
    """Zero, cached tokens left out, a count of something else: the median of the others stands."""
    assert learned((1000, 1300), (1100, 1430), wrong, (1200, 1560)) == pytest.approx(1.3)


def test_a_mean_would_have_been_led_astray() -> None:
    ratios = [1.3, 1.3, 2.9, 1.3]
    assert abs(sum(ratios) / len(ratios) - 1.3) > 0.3


@pytest.mark.parametrize("broken", [None, "1300", 1300.5, math.nan, True])
def test_reports_that_are_no_counts_are_left_out(broken: Any) -> None:
    calibration = Calibration()
    calibration.observe("m", 1000, broken)
    calibration.observe("m", broken, 1000)
    assert calibration.factor("m") == 1.0


def test_a_new_kind_of_text_is_followed() -> None:
    assert learned(*[(1000, 1000)] * 20, *[(1000, 1400)] * 3) == pytest.approx(1.4)


@given(st.lists(st.tuples(st.integers(-10, 10**7), st.integers(-10, 10**7)), max_size=30))
def test_the_factor_is_bounded_and_survives_a_store(reports: list[tuple[int, int]]) -> None:
    calibration = Calibration()
    for estimated, reported in reports:
        calibration.observe("m", estimated, reported)
    assert LOWEST_FACTOR <= calibration.factor("m") <= HIGHEST_FACTOR
    restored = Calibration.from_dict(json.loads(json.dumps(calibration.to_dict())))
    assert restored.to_dict() == calibration.to_dict()
    assert restored.factor("m") == calibration.factor("m")


def test_models_do_not_share_a_factor() -> None:
    calibration = Calibration()
    calibration.observe("a", 1000, 1400)
    assert calibration.factor("b") == 1.0


def test_a_damaged_state_is_read_as_far_as_it_can_be() -> None:
    state: dict[str, Any] = {"a": [1.2, "x", 99.0, None], "b": 7, "c": [], "d": [math.nan]}
    assert Calibration.from_dict(state).to_dict() == {"a": [1.2]}


def test_an_estimator_corrects_requests_and_adds_only_what_is_new() -> None:
    estimator = Estimator("m")
    plain = count_request(TALK, system="Be brief.")
    assert estimator.request(TALK, system="Be brief.") == plain
    estimator.learn(plain * 2, TALK, system="Be brief.")
    assert estimator.request(TALK, system="Be brief.") == plain * 2
    assert estimator.since(50_000, TALK) == 50_000 + 2 * count_messages(TALK)
    assert estimator.since(-1, []) == 0


def test_estimators_of_one_model_share_what_they_learn() -> None:
    calibration = Calibration()
    Estimator("m", calibration).learn(2 * count_request(TALK), TALK)
    assert Estimator("m", calibration).messages(TALK) == 2 * count_messages(TALK)
