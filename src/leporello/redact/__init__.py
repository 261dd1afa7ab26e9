"""Secrets out of text: what goes to a summariser, an index or a log passes here first.

`redact` replaces every secret it knows by `[REDACTED:<kind>]`; when it cannot finish it withholds the whole text.
"""

from leporello.redact.redactor import WITHHELD, redact, redact_value, secrets
from leporello.redact.spans import Secret

__all__ = ["WITHHELD", "Secret", "redact", "redact_value", "secrets"]
