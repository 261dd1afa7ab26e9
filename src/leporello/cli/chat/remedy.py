"""What can be done when the provider cannot be reached, or refuses the key or the model."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from leporello.agent.route import shown_address
from leporello.errors import AuthenticationError, ModelError, NetworkError, QuotaError

if TYPE_CHECKING:
    from leporello.agent import MainRoute
    from leporello.errors import LeporelloError


def remedy(error: LeporelloError | None, route: MainRoute) -> str:
    """Return a sentence about what to do; "" when the error says it all."""
    if isinstance(error, NetworkError):
        if route.base_url:
            address = shown_address(route.base_url)
            return f"Is the server at {address} running? --base-url or model.base_url gives another address."
        return "Is this machine online? A proxy is taken from HTTPS_PROXY; --base-url gives another address."
    if isinstance(error, (AuthenticationError, QuotaError)):
        variable = f"the environment variable {route.key_from}" if route.key_from else "nowhere"
        return (
            f"The key is the one in {variable}." if route.has_key else f"No key was sent: it is read from {variable}."
        )
    if isinstance(error, ModelError) and error.status == HTTPStatus.NOT_FOUND:
        return (
            f"Does the model {route.model} exist there? --model NAME, or /model NAME in the chat, chooses another, "
            "--base-url another address."
        )
    return ""
