"""Turns into text: with a model, without one, and the exact values that must survive either way."""

from leporello.summary.request import Summary, SummaryRequest
from leporello.summary.summariser import Summariser

__all__ = ["Summariser", "Summary", "SummaryRequest"]
