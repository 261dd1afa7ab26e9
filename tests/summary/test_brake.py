"""How small a compaction must make a window, and when the next one may come."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from leporello.engine import CompactionReport
from leporello.summary.brake import LEAST_GROWTH, LITTLE, ROOMY, SAFE_SHARE, fires_at, goal_for

Brake = Callable[[CompactionReport, int, int, int], int]


def ours(report: CompactionReport, was: int, threshold: int, window: int) -> int:
    return fires_at(report, was, threshold=threshold, window=window)


def check_brake(brake: Brake, before: int, after: int, beside: int, threshold: int, window: int) -> None:
    """No compaction every turn, none held back for ever, none left to the provider's refusal."""
    report = CompactionReport(status="folded", tokens_before=before, tokens_after=after)
    now = min(after, before) + beside
    again = brake(report, before + beside, threshold, window)
    if threshold - now >= threshold * ROOMY and report.saved >= LITTLE:
        assert again == 0, "there is room, and the threshold alone decides"
        return
    assert again > now + threshold * LEAST_GROWTH - 1, "it would fire in the next turn"
    most = max(now + threshold // 2, now + int(threshold * LEAST_GROWTH) + 1)
    assert again <= most, "it never fires again"
    assert again <= max(window * SAFE_SHARE, now + threshold * LEAST_GROWTH + 1), "it fires too late for the window"


SIZES = st.integers(0, 400_000)


@given(
    before=SIZES,
    after=SIZES,
    beside=st.integers(0, 50_000),
    window=st.integers(1_000, 400_000),
    share=st.floats(0.1, 0.9),
)
def test_the_brake_holds_and_releases(before: int, after: int, beside: int, window: int, share: float) -> None:
    check_brake(ours, before, after, beside, int(window * share), window)


@pytest.mark.parametrize(
    ("broken", "after"),
    [
        (lambda *_: 0, 58_000),
        (lambda _report, _was, _threshold, window: 10 * window, 58_000),
        (lambda _report, was, threshold, _window: was + threshold, 58_000),
        (lambda report, was, threshold, window: max(1, ours(report, was, threshold, window)), 10_000),
    ],
    ids=["every turn", "never again", "too late", "although there is room"],
)
def test_planted_a_broken_brake_is_caught(broken: Brake, after: int) -> None:
    with pytest.raises(AssertionError):
        check_brake(broken, 60_000, after, 0, 50_000, 100_000)


def test_a_window_that_stays_full_may_grow_by_half_the_threshold() -> None:
    full = CompactionReport(status="folded", tokens_before=60_000, tokens_after=45_000)
    assert fires_at(full, 60_000, threshold=50_000, window=200_000) == 45_000 + 25_000
    assert fires_at(full, 60_000, threshold=50_000, window=64_000) == int(64_000 * 0.85)


def test_after_a_compaction_that_brought_little_the_window_must_grow() -> None:
    """Also when there is room, as after a compaction that somebody asked for."""
    little = CompactionReport(status="unchanged", tokens_before=10_000, tokens_after=9_900)
    assert fires_at(little, 10_000, threshold=50_000, window=200_000) > 10_000


@given(messages=SIZES, prompt=SIZES, threshold=st.integers(1, 300_000))
def test_what_the_provider_counts_beside_the_messages_is_taken_off(messages: int, prompt: int, threshold: int) -> None:
    goal = goal_for(messages, prompt, threshold)
    assert goal is not None
    beside = max(0, prompt - messages)
    assert goal + beside < threshold or goal == int(threshold * 0.25)
    assert 0 <= goal < max(threshold, 1)


def test_without_a_threshold_there_is_no_goal() -> None:
    assert goal_for(10, 10, 0) is None
