"""Makes our base class of engines and a real Hermes Agent's know each other, so that `isinstance` holds both ways.

`ABCMeta.register` refuses the second direction as a cycle. A bridge, a subclass of theirs that recognises our engines,
does it without touching either class.
"""

from __future__ import annotations

from abc import ABCMeta
from typing import Any

from leporello.engine import ContextEngine

_bridges: dict[type, type] = {}  # kept: a base class knows its subclasses only weakly


def join(theirs: Any) -> bool:
    """Register the two base classes with each other; tell whether `theirs` is one that can be."""
    if not _is_engine_base(theirs):
        return False
    if theirs not in _bridges:
        ContextEngine.register(theirs)  # first: it also clears the cache of `isinstance`
        _bridges[theirs] = type(theirs)("LeporelloBridge", (theirs,), {"__subclasshook__": classmethod(_is_ours)})
    return True


def _is_engine_base(candidate: Any) -> bool:
    return (
        isinstance(candidate, ABCMeta)
        and ContextEngine not in candidate.__mro__
        and all(hasattr(candidate, name) for name in ("name", "compress", "should_compress"))
    )


def _is_ours(_bridge: type, subclass: type) -> Any:
    return True if ContextEngine in subclass.__mro__ else NotImplemented
