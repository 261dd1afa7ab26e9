"""Pass only what a signature takes, so that engines written for older and newer hosts all run."""

from __future__ import annotations

import difflib
import inspect
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
T = TypeVar("T")
_ACCEPTED: Final[WeakKeyDictionary[Callable[..., Any], frozenset[str] | None]] = WeakKeyDictionary()


def fitting(function: Callable[..., Any], /, **offered: Any) -> dict[str, Any]:
    """Return the offered keyword arguments that `function` accepts.

    A callable whose signature cannot be read (some builtins) gets none.
    """
    accepted = _accepted(getattr(function, "__func__", function))  # a bound method is another object each time
    return offered if accepted is None else {name: value for name, value in offered.items() if name in accepted}


def _accepted(function: Callable[..., Any]) -> frozenset[str] | None:
    """Return the names of the keyword arguments that `function` accepts, None if it accepts any; read once."""
    try:
        return _ACCEPTED[function]
    except (KeyError, TypeError):  # it was not read yet, or cannot be remembered
        accepted = _read(function)
    with suppress(TypeError):
        _ACCEPTED[function] = accepted
    return accepted


def _read(function: Callable[..., Any]) -> frozenset[str] | None:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return frozenset()
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return None
    return frozenset(p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY))


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
