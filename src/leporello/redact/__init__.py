"""Secrets out of text: what goes to a summariser, an index or a log passes here first.

`redact` replaces every secret it knows by `[REDACTED:<kind>]`; when it cannot finish it withholds the whole text.
`Redacted` is the type of what it returns, and `RedactedMessage` that of a message that passed it.
"""

from leporello.redact.logs import logger
from leporello.redact.messages import ABOUT, CALLED, PRINTED, RedactedMessage, redact_message, redact_messages
from leporello.redact.redacted import EMPTY, Redacted, joined
from leporello.redact.redactor import WITHHELD, redact, redact_part, redact_value, secrets
from leporello.redact.rules import Rule, pattern_rule
from leporello.redact.spans import Secret

__all__ = [
    "ABOUT",
    "CALLED",
    "EMPTY",
    "PRINTED",
    "WITHHELD",
    "Redacted",
    "RedactedMessage",
    "Rule",
    "Secret",
    "joined",
    "logger",
    "pattern_rule",
    "redact",
    "redact_message",
    "redact_messages",
    "redact_part",
    "redact_value",
    "secrets",
]
