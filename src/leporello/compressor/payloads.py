"""When head and tail alone are too large, their payloads are shortened; the originals go to the summariser."""

from leporello.summary.payloads import shorten

__all__ = ["shorten"]
