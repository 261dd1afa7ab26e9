"""What a compaction must achieve, and when the next one may come."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, strategies as st

from leporello.engine import CompactionReport
from leporello.summary.refire import GROWTH, SAFE_SHARE, WORTH, Targets, fires_at, request_limit, targets

Rule = Callable[[CompactionReport, int, int, int], int]


def ours(report: CompactionReport, was: int, threshold: int, window: int) -> int:
    return fires_at(report, was, threshold=threshold, window=window)


def check_refire(rule: Rule, before: int, after: int, beside: int, threshold: int, window: int) -> None:
    """No compaction every turn, none held back for ever, none left to the provider's refusal."""
    report = CompactionReport(status="folded", tokens_before=before, tokens_after=after)
    now = min(after, before) + beside
    again = rule(report, before + beside, threshold, window)
    if threshold - now >= threshold * GROWTH:
        assert again == 0, "there is room, and the threshold alone decides"
    limit = request_limit(window)
    if now <= limit:
        assert again <= limit + 1, "it fires too late for the window"
    least = now + threshold * WORTH
    assert (again or threshold) > min(least - 1, limit), "it would fire in the next turn"
    assert again <= max(now + threshold * GROWTH, least + 1), "it never fires again"
    assert again <= max(window * SAFE_SHARE, least + 1), "it fires too late for the window"


SIZES = st.integers(0, 400_000)


@given(
    before=SIZES,
    after=SIZES,
    beside=st.integers(0, 50_000),
    window=st.integers(1_000, 400_000),
    share=st.floats(0.1, 0.9),
)
def test_the_next_compaction_is_neither_at_once_nor_never(
    before: int, after: int, beside: int, window: int, share: float
) -> None:
    check_refire(ours, before, after, beside, int(window * share), window)


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
def test_planted_a_broken_rule_is_caught(broken: Rule, after: int) -> None:
    with pytest.raises(AssertionError):
        check_refire(broken, 60_000, after, 0, 50_000, 100_000)


def test_a_window_that_stays_full_may_grow_by_half_the_threshold() -> None:
    full = CompactionReport(status="folded", tokens_before=60_000, tokens_after=45_000)
    assert fires_at(full, 60_000, threshold=50_000, window=200_000) == 45_000 + 25_000
    assert fires_at(full, 60_000, threshold=50_000, window=64_000) == int(64_000 * 0.85)


@given(after=st.integers(1, 60_000), window=st.integers(70_000, 200_000))
def test_a_token_more_or_less_does_not_move_the_next_compaction_by_more(after: int, window: int) -> None:
    """Two clients whose folds leave nearly the same are folded nearly as often."""
    check_steps(ours, after, window)


def check_steps(rule: Rule, after: int, window: int) -> None:
    less, more = (
        CompactionReport(status="folded", tokens_before=60_000, tokens_after=left) for left in (after - 1, after)
    )
    sizes = [max(50_000, rule(report, 60_000, 50_000, window)) for report in (less, more)]
    assert 0 <= sizes[1] - sizes[0] <= 1


def test_planted_a_step_at_a_quarter_is_caught() -> None:
    def stepped(report: CompactionReport, was: int, threshold: int, window: int) -> int:
        return 0 if report.tokens_after <= 37_500 else ours(report, was, threshold, window)

    with pytest.raises(AssertionError):
        check_steps(stepped, 37_501, 200_000)


@given(messages=SIZES, prompt=SIZES, threshold=st.integers(1, 300_000))
def test_what_the_request_has_beside_its_messages_is_taken_off(messages: int, prompt: int, threshold: int) -> None:
    wanted = targets(messages, prompt, threshold=threshold, window=2 * threshold)
    assert wanted.goal is not None
    assert wanted.most is not None
    beside = max(0, prompt - messages)
    assert wanted.goal + beside < threshold or wanted.goal == int(threshold * 0.25)
    assert 0 <= wanted.goal < max(threshold, 1)
    assert wanted.most + beside <= max(beside, request_limit(2 * threshold))


def test_without_a_threshold_any_result_will_do() -> None:
    wanted = targets(10, 10, threshold=0, window=0)
    assert (wanted.goal, wanted.most, wanted.least) == (None, None, 1)


class TestWorthIt:
    """What a compaction must free."""

    def test_one_that_the_threshold_asked_for_frees_a_tenth_of_it(self) -> None:
        wanted = targets(50_000, 52_000, threshold=50_000, window=100_000)
        assert wanted.least == 5_000
        assert wanted.not_worth_it == "it would free fewer than 5,000 tokens, a tenth of the threshold"

    @pytest.mark.parametrize("asked", [True, False])
    def test_one_below_the_threshold_or_asked_for_frees_anything(self, *, asked: bool) -> None:
        wanted = targets(49_000, 52_000 if asked else 49_000, threshold=50_000, window=100_000, asked=asked)
        assert wanted.least == 1
        assert wanted.not_worth_it == "the result would not have been shorter"

    def test_one_without_which_the_request_would_not_fit_frees_anything(self) -> None:
        limit = request_limit(100_000, 10_000)
        assert limit == 90_000
        inside = targets(50_000, limit, threshold=50_000, window=100_000, answer=10_000)
        beyond = targets(50_000, limit + 1, threshold=50_000, window=100_000, answer=10_000)
        assert (inside.least, beyond.least) == (5_000, 1)


def test_what_is_unread_may_push_the_window_beyond_the_threshold_but_not_beyond_the_model() -> None:
    wanted = Targets(goal=24_000, most=28_000, least=1)
    assert wanted.beside_unread(10_000, 5_000) == 24_000
    assert wanted.beside_unread(20_000, 5_000) == 25_000
    assert wanted.beside_unread(27_000, 5_000) == 28_000
    assert Targets(goal=None, most=None, least=1).beside_unread(27_000, 5_000) is None
