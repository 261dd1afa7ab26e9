"""Pass only what a signature takes, so that engines written for older and newer hosts all run."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


def fitting(function: Callable[..., Any], /, **offered: Any) -> dict[str, Any]:
    """Return the offered keyword arguments that `function` accepts.

    A callable whose signature cannot be read (some builtins) gets none.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return {}
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return offered
    accepted = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return {name: value for name, value in offered.items() if name in accepted}


def call_fitting(function: Callable[..., T], /, *args: Any, **offered: Any) -> T:
    """Call `function` with `args` and those offered keyword arguments that it accepts."""
    return function(*args, **fitting(function, **offered))
