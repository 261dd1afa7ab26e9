"""What the block `gateway` must not say at the same time."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leporello.config.model import Gateway


class Conflict(NamedTuple):
    """A key of the block, what is wrong with it, and what to do."""

    location: tuple[str, ...]
    problem: str
    hint: str


def conflicts(gateway: Gateway) -> Iterator[Conflict]:
    """Yield what is wrong with the block as a whole."""
    yield from client_keys(gateway)
    if "*" in gateway.cors_origins and not gateway.api_keys:
        yield Conflict(
            ("gateway", "cors_origins"),
            "without gateway.api_keys every web page that is open on this machine could use the gateway.",
            "Name the pages, or make a key with `leporello serve --new-key NAME`.",
        )


def client_keys(gateway: Gateway) -> Iterator[Conflict]:
    """Yield the upstreams that would get the keys of clients, although the gateway has keys of its own.

    A client sends one key as a rule: the gateway's own would be taken for the provider's.
    """
    if not gateway.api_keys:
        return
    for name in type(gateway.upstreams).model_fields:
        if getattr(gateway.upstreams, name).pass_client_key is True:
            yield Conflict(
                ("gateway", "upstreams", name, "pass_client_key"),
                "the keys of clients cannot be passed on while gateway.api_keys lets clients in by keys of the "
                "gateway: they send one key, and not that of the provider.",
                "Remove gateway.api_keys, or write `always` and let clients send the gateway's key in the header "
                "x-leporello-key and the provider's as usual.",
            )
