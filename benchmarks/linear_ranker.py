"""Learns from questions with known answers how much each of several figures says about a candidate.

Each question is a choice among its candidates: the chance of one grows with the weighted sum of its figures (logistic
regression over lists). The weights are those that make the right candidates likeliest, found question by question.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from operator import mul
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

ROUNDS, RATE, PENALTY = 12, 0.1, 0.002


@dataclass(frozen=True, kw_only=True)
class Example:
    """The figures of every candidate of a question, and which candidates are right."""

    rows: Sequence[Sequence[float]]
    right: Sequence[int]


def learned(examples: Sequence[Example]) -> list[float]:
    """Return a weight for each figure: its mean over the second half of the rounds."""
    order = [example for example in examples if example.right and len(example.right) < len(example.rows)]
    width = len(order[0].rows[0])
    weights, seen, total = [0.0] * width, [1e-9] * width, [0.0] * width
    random = Random(0)
    for number in range(ROUNDS):
        random.shuffle(order)
        for example in order:
            for at, slope in enumerate(_slope(weights, example)):
                step = slope - PENALTY * weights[at]
                seen[at] += step * step
                weights[at] += RATE * step / math.sqrt(seen[at])
        if number >= ROUNDS // 2:
            total = [one + other for one, other in zip(total, weights, strict=True)]
    return [one / (ROUNDS - ROUNDS // 2) for one in total]


def scores(weights: Sequence[float], rows: Sequence[Sequence[float]]) -> list[float]:
    """Return the weighted sum of each candidate's figures."""
    return [sum(map(mul, weights, row)) for row in rows]


def _slope(weights: Sequence[float], example: Example) -> list[float]:
    """Return how the logarithm of the chance that a right candidate is chosen grows with each weight."""
    chances = _chances(scores(weights, example.rows))
    right = sum(chances[at] for at in example.right) or 1e-12
    wanted = {at: chances[at] / right for at in example.right}
    slope = [0.0] * len(weights)
    for at, (chance, row) in enumerate(zip(chances, example.rows, strict=True)):
        pull = wanted.get(at, 0.0) - chance
        if abs(pull) > 1e-5:
            slope = [one + pull * figure for one, figure in zip(slope, row, strict=True)]
    return slope


def _chances(found: Sequence[float]) -> list[float]:
    best = max(found)
    powers = [math.exp(score - best) for score in found]
    whole = sum(powers)
    return [power / whole for power in powers]
