"""How often and after how long a failed request to a provider is retried."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leporello.errors import ModelError


@dataclass(frozen=True, kw_only=True)
class RetryPolicy:
    """Bounds for retries: the attempts for one request, the first pause and the longest, in seconds."""

    attempts: int = 5
    first: float = 1.0
    longest: float = 60.0

    def pause(self, error: ModelError, attempt: int) -> float | None:
        """Return how long to wait after this attempt failed; None when the request is not to be retried.

        The provider's own waiting time is kept, and is not waited for when it is longer than `longest`.
        """
        if not error.retryable or attempt >= self.attempts:
            return None
        if error.retry_after is not None:
            return error.retry_after if error.retry_after <= self.longest else None
        return min(self.longest, self.first * 2.0 ** (attempt - 1))
