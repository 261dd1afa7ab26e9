"""The import names that plugins for Hermes Agent use, answered only where nothing else answers them.

    install(first=False)   put the finder on `sys.meta_path`: last, so that a real Hermes Agent wins, or first
    route_llm(llm)         let the `call_llm` of plugins reach this model for a while

A plain script runs with those names through `python -m leporello.plugins.hermes script.py`.
Importing this package loads the standard library only, because every pytest run of the environment does it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leporello.plugins.hermes.finder import PROVIDED, install, installed, uninstall

if TYPE_CHECKING:
    from leporello.plugins.hermes.host import route_llm

__all__ = ["PROVIDED", "install", "installed", "route_llm", "uninstall"]


def __getattr__(name: str) -> object:
    """Import `route_llm` when it is first used."""
    if name == "route_llm":
        from leporello.plugins.hermes.host import route_llm

        return route_llm
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
