"""Pass only what a signature takes, so that engines written for older and newer hosts all run."""

from __future__ import annotations

import difflib
import inspect
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
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


def strict_keywords(function: Callable[P, T]) -> Callable[P, T]:
    """Make a misspelt keyword argument a TypeError that names the nearest right one."""
    known = [name for name in inspect.signature(function).parameters if name not in {"self", "cls"}]

    @wraps(function)
    def checked(*args: P.args, **kwargs: P.kwargs) -> T:
        for name in kwargs.keys() - known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f". Did you mean {near[0]!r}?" if near else f"; it takes {', '.join(known)}"
            raise TypeError(f"{function.__qualname__}() got an unexpected keyword argument {name!r}{hint}")
        return function(*args, **kwargs)

    return checked
