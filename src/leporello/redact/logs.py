"""Log lines without secrets: one filter on every logger of Leporello."""

from __future__ import annotations

import logging
import traceback

from leporello.redact.redactor import WITHHELD, redact


class _Redacting(logging.Filter):
    """Redact what a record says, its arguments and its traceback included."""

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            said = record.getMessage()
        except Exception:  # noqa: BLE001 - the text of a foreign object may raise anything
            said = WITHHELD
        record.msg, record.args = redact(said), None
        if record.exc_info:
            record.exc_text = redact("".join(traceback.format_exception(*record.exc_info)).rstrip())
            record.exc_info = None
        return True


_REDACTING = _Redacting()


def logger(name: str = "leporello") -> logging.Logger:
    """Return a logger whose lines hold no known secret."""
    found = logging.getLogger(name)
    found.addFilter(_REDACTING)
    return found


logger()
