"""A model provider on loopback, for tests: real HTTP, three dialects, a script, and every way to fail.

It needs the extra `testing`. `python -m leporello.testing.model_server --help` runs one in a process of its own.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from leporello.testing.model_server.cache import PromptCache, as_counted
from leporello.testing.model_server.failures import WORDINGS, Failure, Planned
from leporello.testing.model_server.requests import ReceivedRequest
from leporello.testing.model_server.script import Step, Use, echo

if TYPE_CHECKING:
    from leporello.testing.model_server.server import ModelServer

__all__ = [
    "WORDINGS",
    "Failure",
    "ModelServer",
    "Planned",
    "PromptCache",
    "ReceivedRequest",
    "Step",
    "Use",
    "as_counted",
    "echo",
]


def __getattr__(name: str) -> object:
    """Import the server itself when it is first used: only it needs the packages of the extra."""
    if name != "ModelServer":
        raise AttributeError(f"module 'leporello.testing.model_server' has no attribute {name!r}")
    try:
        value: object = import_module("leporello.testing.model_server.server").ModelServer
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the model server needs {error.name}; in a checkout of Leporello: pip install '.[testing]'",
            name=error.name,
        ) from error
    globals()[name] = value
    return value
