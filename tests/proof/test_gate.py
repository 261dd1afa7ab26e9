"""Gates: what they say, and that a wrong one is refused."""

from __future__ import annotations

from typing import Any

import pytest

from leporello.errors import GateError
from leporello.proof.gate import parse


def engine(cost: float | None, lost: int = 0, in_context: float = 0.9) -> dict[str, Any]:
    return {"cost_usd": cost, "probes": {"lost": lost}, "needed": {"in_context": in_context}, "cache_hit_share": 0.9}


ENGINES = {"mask": engine(1.0, lost=40), "lcm": engine(1.05), "other": engine(1.2, lost=2, in_context=0.5)}


def failures(text: str) -> list[str]:
    return [failure for condition in parse(text) for failure in condition.failures(ENGINES)]


def test_a_condition_holds_for_every_engine_that_is_no_baseline() -> None:
    assert failures("lost=0") == ["lost=0: other has probes.lost 2, the limit is 0"]


def test_a_condition_may_name_its_engine() -> None:
    assert failures("lcm:lost=0, lcm:cost<=1.1*mask, lcm:needed.in_context>=0.8") == []


def test_a_limit_may_be_a_multiple_of_another_engine() -> None:
    assert failures("cost<=1.1*mask") == ["cost<=1.1*mask: other has cost_usd 1.2, the limit is 1.1"]
    assert failures("lcm:cost<other") == []


@pytest.mark.parametrize("text", ["", "lost", "lost=many*", "lost!0", "lost=0;cost<1"])
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(GateError, match="no condition"):
        parse(text)


def test_an_unknown_figure_or_engine_is_told() -> None:
    with pytest.raises(GateError, match="no figure 'beauty'"):
        failures("beauty>1")
    assert failures("cost<=1*nobody") == [f"cost<=1*nobody: there is no engine 'nobody' in this replay"] * 2  # noqa: F541
    assert failures("nobody:lost=0") == ["nobody:lost=0: there is no engine 'nobody' in this replay"]


def test_a_figure_that_is_not_known_fails() -> None:
    assert parse("cost<1")[0].failures({"lcm": engine(None)}) == ["cost<1: lcm has no cost_usd"]
