"""What callers pass, looked at where it comes in: an error says what is wrong and what to pass instead."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from leporello.engine import ContextEngine
from leporello.errors import SessionError
from leporello.plugins import EngineSource

if TYPE_CHECKING:
    from collections.abc import Sequence


def check_texts(**values: Any) -> None:
    """Refuse what must be text, or left out, and is neither."""
    for name, value in values.items():
        if value is not None and not isinstance(value, str):
            raise SessionError(f"{name} is text, not {_named(value)}.")


def check_window(context_length: Any) -> None:
    """Refuse a window that is no number of tokens."""
    if context_length is None:
        return
    if not isinstance(context_length, int) or isinstance(context_length, bool) or context_length < 0:
        raise SessionError(
            f"context_length is the model's window in tokens, a whole number such as 200_000, not {context_length!r}."
        )


def check_engine(engine: Any) -> None:
    """Refuse what is neither an engine nor a way to one."""
    if isinstance(engine, type):
        raise SessionError(f"engine is a class: pass an engine of it, {engine.__name__}(...), or a name.")
    if engine is not None and not isinstance(engine, (str, ContextEngine, EngineSource)):
        raise SessionError(f"engine is a name, a ContextEngine or an EngineSource, not {_named(engine)}.")


def check_store(store: Any) -> None:
    """Refuse what is neither a store nor the address of one."""
    if store is None or isinstance(store, (str, os.PathLike)):
        return
    if not all(hasattr(store, name) for name in ("append", "window", "record_request")):
        raise SessionError(f"store is a path, an address or a Store, not {_named(store)}.")


def check_sink(on_event: Any) -> None:
    """Refuse a listener that cannot be called."""
    if on_event is not None and not callable(on_event):
        raise SessionError(f"on_event is a function that takes an event, not {_named(on_event)}.")


def check_error(error: Any) -> None:
    """Refuse what no client raises."""
    if not isinstance(error, BaseException):
        raise SessionError(f"recover takes the exception that your client raised, not {_named(error)}.")


def checked_tools(tools: Any) -> Sequence[dict[str, Any]]:
    """Return the tools of a request, or say what is wrong with them."""
    if tools is None:
        return ()
    if not isinstance(tools, (list, tuple)):
        raise SessionError(f"tools is a list of tool schemas, not {_named(tools)}.")
    for at, tool in enumerate(tools):
        if not isinstance(tool, dict):
            raise SessionError(f"tools[{at}] is a tool schema, a dict, not {_named(tool)}.")
    return tools


def _named(value: Any) -> str:
    return f"{type(value).__name__} {value!r:.60}"
