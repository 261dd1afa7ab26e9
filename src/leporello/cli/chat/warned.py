"""Leporello's warnings, told where the user looks."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from leporello.errors import LeporelloWarning

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def warnings_to(tell: Callable[[str], None]) -> Iterator[None]:
    """Show Leporello's warnings inside the block, and no others."""

    def show(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, file: Any = None, line: Any = None
    ) -> None:
        tell(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", LeporelloWarning)
        warnings.showwarning = show
        yield
