"""The configuration of a gateway for one program of one user: it asks providers with that program's own key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leporello.config import Config


def for_one_user(config: Config, addresses: Mapping[str, str], *, tools: bool) -> Config:
    """Return a configuration without keys of its own, with `addresses` of providers where they differ from it."""
    gateway, upstreams = config.gateway, config.gateway.upstreams
    changed: dict[str, Any] = {}
    for name in type(upstreams).model_fields:
        update: dict[str, Any] = {"pass_client_key": True}
        if name in addresses:
            update["base_url"] = _base_url(addresses[name], name)
        changed[name] = getattr(upstreams, name).model_copy(update=update)
    own = {"upstreams": upstreams.model_copy(update=changed), "api_keys": {}, "processes": 1, "tools": tools}
    return config.model_copy(update={"gateway": gateway.model_copy(update=own)})


def _base_url(address: str, provider: str) -> str:
    """Return an address as it stands in config.yaml: for Anthropic without the version, which requests have."""
    address = address.rstrip("/")
    return address.removesuffix("/v1") if provider == "anthropic" else address
