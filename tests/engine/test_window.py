"""The window that an engine is given."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest

from leporello import ContextCompressor, LCMEngine
from leporello.engine import window_tokens

if TYPE_CHECKING:
    from leporello import ContextEngine


@pytest.mark.parametrize(("given", "tokens"), [(200_000, 200_000), (0, 0), (None, 0), (8_192.0, 8_192)])
def test_a_window_is_a_whole_number(given: Any, tokens: int) -> None:
    assert window_tokens(given) == tokens


@pytest.mark.parametrize("engine", [ContextCompressor, LCMEngine])
@pytest.mark.parametrize("given", [-5, "200000", 1.5, True, math.nan, math.inf, [8_192]])
def test_anything_else_is_refused_in_words(engine: type[ContextEngine], given: Any) -> None:
    with pytest.raises(ValueError, match=r"context_length is the model's window in tokens, a whole number"):
        engine(given)  # type: ignore[call-arg]
    working = engine(8_192)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="not "):
        working.update_model("some-model", given)
    assert working.context_length == 8_192
