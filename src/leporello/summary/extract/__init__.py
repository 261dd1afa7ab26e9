"""A summary without a model: the same template, filled from what the conversation itself says."""

from leporello.summary.extract.summary import extract_summary

__all__ = ["extract_summary"]
