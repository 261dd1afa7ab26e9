"""The contract: what a context engine is. Standard library only, so that any project can depend on it."""

from leporello.engine.base import ContextEngine
from leporello.engine.fit import call_fitting, fitting, strict_keywords
from leporello.engine.interrupts import ForeignCall
from leporello.engine.report import CompactionReport, Status
from leporello.engine.usage import Usage, normalise_usage
from leporello.engine.window import window_tokens

__all__ = [
    "CompactionReport",
    "ContextEngine",
    "ForeignCall",
    "Status",
    "Usage",
    "call_fitting",
    "fitting",
    "normalise_usage",
    "strict_keywords",
    "window_tokens",
]
