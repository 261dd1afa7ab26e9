"""The redactor, under the name that plugins for Hermes Agent import."""

from typing import Any

from leporello.redact import redact


def redact_sensitive_text(text: Any, **_unused: Any) -> Any:
    """Take secrets out of a text, always; what is no text becomes one, and None stays None."""
    return None if text is None else redact(str(text))
