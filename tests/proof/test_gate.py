"""Gates: what they say, and that a wrong one is refused."""

from __future__ import annotations

from typing import Any

import pytest

from leporello.cli import replay
from leporello.errors import GateError
from leporello.proof.gate import parse


def engine(cost: float | None, lost: int = 0, in_context: float = 0.9) -> dict[str, Any]:
    probes = {"n": 60, "asked": 50, "by_cue": 46, "lost": lost, "kinds": {"value": {"lost": lost}}}
    return {"cost_usd": cost, "probes": probes, "needed": {"in_context": in_context}, "cache_hit_share": 0.9}


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


def test_a_limit_may_be_a_multiple_of_another_figure() -> None:
    assert failures("lcm:by_cue>=0.9*asked") == []
    assert failures("lcm:by_cue>=0.95*asked") == ["lcm:by_cue>=0.95*asked: lcm has probes.by_cue 46, the limit is 47.5"]


WRONG = ["", " , ", "lost", "lost=many*", "lost!0", "lost=0;cost<1", "cost<=mask*1.1", "lost=-1", "in_context>=80%"]


@pytest.mark.parametrize("text", WRONG)
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(GateError, match="no condition"):
        parse(text)


UNKNOWN = ["beauty>1", "cost<=1*nobody", "nobody:lost=0", "needed>0", "probes.kinds=0", "cost<=2*needed", "lost<=masc"]


@pytest.mark.parametrize("text", UNKNOWN)
def test_what_a_replay_cannot_have_is_refused_before_it_is_run(text: str) -> None:
    with pytest.raises(GateError):
        parse(text, ENGINES)
    with pytest.raises(GateError, match="only baselines"):
        parse("lost=0", ["none", "mask", "recorded"])
    assert parse("lost=0, cost<=mask, needed.kinds.path.present>=0.5, mask:reread.unnecessary>0", ENGINES)


def test_a_share_of_what_is_counted_is_refused() -> None:
    """One probe that is found would be more than 0.9."""
    with pytest.raises(GateError, match=r"a number of probes; compare it as in by_cue>=0.9\*asked"):
        parse("by_cue>=0.9", ENGINES)
    assert parse("by_cue>=0.9*asked, lost<=2, in_context>=0.9", ENGINES)


def test_a_gate_that_is_refused_reads_no_file() -> None:
    for gate in ["", "beauty>1", "nobody:lost=0"]:
        with pytest.raises(GateError):
            replay.command(["no-such-file.jsonl", "--gate", gate], standalone_mode=False)


def test_a_condition_on_what_was_never_asked_fails() -> None:
    nothing = {"lcm": {**engine(1.0), "probes": {"n": 0, "lost": 0, "asked": 0, "by_cue": 0, "kinds": {}}}}
    assert parse("lost=0")[0].failures(nothing) == ["lost=0: lcm has no probes.lost"]
    assert parse("by_cue>=0.9*asked")[0].failures(nothing) == ["by_cue>=0.9*asked: lcm has no probes.by_cue"]
    assert parse("probes.kinds.rule.lost=0")[0].failures(ENGINES)[0].endswith("lcm has no probes.kinds.rule.lost")


def test_an_unknown_figure_or_engine_is_told() -> None:
    with pytest.raises(GateError, match="no figure or engine 'beauty'"):
        failures("beauty>1")
    with pytest.raises(GateError, match="no figure or engine 'nobody'"):
        failures("cost<=1*nobody")
    assert failures("nobody:lost=0") == ["nobody:lost=0: there is no engine 'nobody' in this replay"]


def test_a_figure_that_is_not_known_fails() -> None:
    assert parse("cost<1")[0].failures({"lcm": engine(None)}) == ["cost<1: lcm has no cost_usd"]
