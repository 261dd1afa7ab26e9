"""The bars of `python -m benchmarks.proof`, and who is measured there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from benchmarks import peers, proof

if TYPE_CHECKING:
    from pathlib import Path


def engine(cost: float, *, by_cue: int = 9, lost: int = 0, replaced: int = 0, overflows: int = 0) -> dict[str, Any]:
    """Return the figures of an engine of which ten probes were asked."""
    return {
        "cost_usd": cost,
        "cache_hit_share": 0.9,
        "compactions": 3,
        "replaced": replaced,
        "overflows": overflows,
        "needed": {"tokens": 10, "present": None, "in_context": None, "together": None, "beside": {}},
        "probes": {"n": 20, "asked": 10, "by_cue": by_cue, "lost": lost},
    }


def missed(lcm: dict[str, Any], window: int = proof.WIDE) -> list[str]:
    return proof.bars({"none": engine(10), "mask": engine(10), "lcm": lcm}, window)


def test_bars_that_are_just_met() -> None:
    assert missed(engine(9)) == []
    assert missed(engine(11), 200_000) == []


@pytest.mark.parametrize(
    ("planted", "told"),
    [
        (engine(9, lost=1), "lcm lost 1 of 20"),
        (engine(9, by_cue=8), "lcm finds 8 of 10 by cue, the bar is 90%"),
        (engine(9.1), "lcm costs 0.91 × no management, the bar is 0.9"),
    ],
)
def test_planted_a_bar_that_is_missed_is_told(planted: dict[str, Any], told: str) -> None:
    assert missed(planted) == [told]


def test_planted_a_window_that_costs_more_than_masking_is_told() -> None:
    assert missed(engine(11.1), 200_000) == ["lcm costs 1.11 × masking, the bar is 1.1"]


def test_the_table_tells_what_does_not_fit_and_whose_folds_are_another_ones() -> None:
    (_, _, row) = proof.table({"none": engine(10, overflows=1_234, replaced=2)}).splitlines()
    assert "| $10.00 (1,234 requests do not fit) |" in row
    assert "| 3 (2 by the compressor) |" in row


def test_a_plugin_of_others_is_measured_where_it_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "_VENV", tmp_path)
    assert (peers.plugin_folder("their-engine"), peers.version_of("their-engine")) == (None, None)
    folder = tmp_path / "their-engine"
    folder.mkdir()
    (folder / "plugin.yaml").write_text("name: their-engine\nversion: 0.7.0\n", "utf-8")
    assert (peers.plugin_folder("their-engine"), peers.version_of("their-engine")) == (folder, "0.7.0")
