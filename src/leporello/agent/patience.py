"""How often and after how long a provider that could not answer is asked again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leporello.errors import ModelError


@dataclass(frozen=True, kw_only=True)
class Patience:
    """Bounds for asking again: the attempts for one request, the first pause and the longest, in seconds."""

    attempts: int = 5
    first: float = 1.0
    longest: float = 60.0

    def pause(self, error: ModelError, attempt: int) -> float | None:
        """Return how long to wait after this attempt failed; None when asking again makes no sense.

        The provider's own waiting time is kept; one that is too long for somebody who waits is not waited for.
        """
        if not error.retryable or attempt >= self.attempts:
            return None
        if error.retry_after is not None:
            return error.retry_after if error.retry_after <= self.longest else None
        return min(self.longest, self.first * 2.0 ** (attempt - 1))
