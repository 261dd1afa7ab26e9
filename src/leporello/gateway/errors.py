"""The errors that the gateway answers with: a status and a message, in the format of the client's dialect."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

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

if TYPE_CHECKING:
    from leporello.messages import Dialect

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
    426: "invalid_request_error",
    429: "rate_limit_error",
    502: "upstream_error",
    503: "overloaded_error",
    504: "timeout_error",
}


KEY_REFUSED: Final = "the provider refused the key of this gateway; its operator must look after it."
CLIENT_KEY_REFUSED: Final = "(the provider refused the client's own key, which the gateway passed on)"


def public_message(error: Exception) -> str:
    """Return the message of an error for clients, without the gateway's account, files and addresses."""
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
        self.headers: dict[str, str] = {} if retry_after is None else {"retry-after": str(retry_after)}
        if status == HTTPStatus.UNAUTHORIZED:
            self.headers["www-authenticate"] = "Bearer"
        super().__init__(message)

    @property
    def type(self) -> str:
        """The type of the error, as both providers name it."""
        return _TYPES.get(self.status, "api_error")

    def body(self, dialect: Dialect) -> dict[str, Any]:
        """Return the body of the answer as the provider of this dialect would write it."""
        if dialect == "anthropic":
            return {"type": "error", "error": {"type": self.type, "message": self.message}}
        return {"error": {"message": self.message, "type": self.type, "param": None, "code": self.code}}
