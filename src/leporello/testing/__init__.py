"""For authors of engines and hosts: a contract kit, conversations, and a provider on loopback.

Nothing here is imported before it is used: the kit needs pytest only inside tests, the strategies hypothesis, and the
model server starlette and uvicorn (all in the extra `testing`).
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leporello.testing.contract import CheckResult, ContractSuite, check_engine
    from leporello.testing.conversations import conversation
    from leporello.testing.defects import broken_conversation
    from leporello.testing.extension_suites import RuleSuite, StoreSuite
    from leporello.testing.model_server import ModelServer

_HOMES = {
    "CheckResult": "leporello.testing.contract",
    "ContractSuite": "leporello.testing.contract",
    "ModelServer": "leporello.testing.model_server",
    "RuleSuite": "leporello.testing.extension_suites",
    "StoreSuite": "leporello.testing.extension_suites",
    "broken_conversation": "leporello.testing.defects",
    "check_engine": "leporello.testing.contract",
    "conversation": "leporello.testing.conversations",
}

__all__ = [
    "CheckResult",
    "ContractSuite",
    "ModelServer",
    "RuleSuite",
    "StoreSuite",
    "broken_conversation",
    "check_engine",
    "conversation",
]


def __getattr__(name: str) -> object:
    """Import a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'leporello.testing' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
