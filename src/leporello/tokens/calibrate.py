"""From the plain estimate to a model's own count: what providers report teaches a factor per model.

Tokenizers differ by a nearly constant factor on the same kind of text, and every answer of a provider names the true
size of the request it answers. So the factor is the median of the last ratios reported / estimated: a median, because a
single wrong report (a provider that counts cached tokens apart, a truncated request) must not move it.
"""

from __future__ import annotations

import math
from collections import deque
from statistics import median
from typing import TYPE_CHECKING, Any

from leporello.tokens.estimate import count_messages, count_request

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

LOWEST_FACTOR = 0.5
HIGHEST_FACTOR = 3.0
REMEMBERED = (
    5  # reports per model: a median of five bears two wrong ones, and follows a conversation that changes its kind
)
SMALLEST_ESTIMATE = 64  # below it, fixed overheads outweigh the text


class Calibration:
    """Factors per model, learned from pairs of estimated and reported tokens; its state is a plain dict."""

    def __init__(self) -> None:
        self._ratios: dict[str, deque[float]] = {}

    def observe(self, model: str, estimated: int, reported: int) -> None:
        """Learn from one answer; reports that cannot be true (nothing, or far outside the bounds) are left out."""
        if not (_is_count(estimated) and _is_count(reported)) or estimated < SMALLEST_ESTIMATE:
            return
        ratio = reported / estimated
        if LOWEST_FACTOR <= ratio <= HIGHEST_FACTOR:
            self._ratios.setdefault(model, deque(maxlen=REMEMBERED)).append(ratio)

    def factor(self, model: str) -> float:
        """Return what to multiply an estimate by for this model; 1.0 as long as nothing is known."""
        ratios = self._ratios.get(model)
        return median(ratios) if ratios else 1.0

    def to_dict(self) -> dict[str, list[float]]:
        """Return the state, ready for JSON."""
        return {model: list(ratios) for model, ratios in self._ratios.items()}

    @classmethod
    def from_dict(cls, state: Mapping[str, Any]) -> Calibration:
        """Restore the state that `to_dict` returned; what does not belong there is left out."""
        calibration = cls()
        for model, ratios in state.items():
            kept = [ratio for ratio in ratios if _is_ratio(ratio)] if isinstance(ratios, (list, tuple)) else []
            if kept:
                calibration._ratios[str(model)] = deque(kept, maxlen=REMEMBERED)
        return calibration


class Estimator:
    """Estimates for one model, corrected by what its provider has reported so far."""

    def __init__(self, model: str, calibration: Calibration | None = None) -> None:
        self.model = model
        self.calibration: Calibration = calibration if calibration is not None else Calibration()

    def request(self, messages: Iterable[Any], tools: Any = None, system: Any = None) -> int:
        """Estimate a whole request."""
        return self._corrected(count_request(messages, tools, system))

    def messages(self, messages: Iterable[Any]) -> int:
        """Estimate messages alone."""
        return self._corrected(count_messages(messages))

    def since(self, reported: int, new_messages: Iterable[Any]) -> int:
        """Estimate a request that extends an earlier one: what was reported for that, plus what is new."""
        return max(0, reported) + self.messages(new_messages)

    def learn(self, reported: int, messages: Iterable[Any], tools: Any = None, system: Any = None) -> None:
        """Learn from the size that the provider reported for a request."""
        self.calibration.observe(self.model, count_request(messages, tools, system), reported)

    def _corrected(self, estimate: int) -> int:
        return math.ceil(estimate * self.calibration.factor(self.model))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _is_ratio(value: Any) -> bool:
    return isinstance(value, float) and LOWEST_FACTOR <= value <= HIGHEST_FACTOR
