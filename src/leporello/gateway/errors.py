"""What the gateway answers when it cannot serve a request: a status, and why, in the words of the client's dialect."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any, Final

from leporello.errors import (
    AuthenticationError,
    ConfigError,
    MessageError,
    ModelError,
    QueryError,
    QuotaError,
    SessionError,
    StoreError,
)
from leporello.gateway.scrub import Scrubber

_TYPES: Final = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    409: "conflict_error",
    411: "invalid_request_error",
    413: "request_too_large",
    415: "invalid_request_error",
    429: "rate_limit_error",
    502: "upstream_error",
    503: "overloaded_error",
    504: "timeout_error",
}


KEY_REFUSED: Final = "the provider refused the key of this gateway; its operator must look after it."


def told(error: Exception) -> str:
    """Return what a client learns of an error: nothing of the account, the files and the machines behind."""
    if isinstance(error, (AuthenticationError, QuotaError)):
        return KEY_REFUSED
    if isinstance(error, StoreError):
        return f"the store: {error.problem}"
    if isinstance(error, ModelError):
        return Scrubber("", "").text(str(error))
    if isinstance(error, ConfigError):
        return f"{error.key or 'the configuration'}: {error.problem}"
    if isinstance(error, (MessageError, SessionError, QueryError)):
        return str(error)
    return "something went wrong in the gateway; its log says what."


class Refused(Exception):  # noqa: N818 - an answer, not a defect
    """A request that is answered with an error; the text is for the client."""

    def __init__(self, status: int, message: str, *, retry_after: int | None = None, code: str | None = None) -> None:
        self.status = status
        self.message = message
        self.code = code
        self.headers = {} if retry_after is None else {"retry-after": str(retry_after)}
        if status == HTTPStatus.UNAUTHORIZED:
            self.headers["www-authenticate"] = "Bearer"
        super().__init__(message)

    @property
    def type(self) -> str:
        """The kind of error, in the words that both providers use."""
        return _TYPES.get(self.status, "api_error")

    def body(self, dialect: str) -> dict[str, Any]:
        """Return the body of the answer as the provider of this dialect would write it."""
        if dialect == "anthropic":
            return {"type": "error", "error": {"type": self.type, "message": self.message}}
        return {"error": {"message": self.message, "type": self.type, "param": None, "code": self.code}}
