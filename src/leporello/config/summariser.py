"""Which settings of the summariser can never work, whatever keys are set."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leporello.config.keys import VARIABLES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leporello.config.model import AuxiliaryCompression

_CHOSEN_LATER = frozenset({"auto", "main"})
_WITH_ADDRESS = VARIABLES.keys() - {"custom"}


class Unworkable(NamedTuple):
    """A key of `auxiliary.compression`, what is wrong with it, and what to do."""

    key: str
    problem: str
    hint: str


def unworkable(wanted: AuxiliaryCompression) -> Iterator[Unworkable]:
    """Yield what is wrong with the summariser's address, by the configuration alone."""
    if not wanted.base_url:
        if wanted.provider not in _CHOSEN_LATER | _WITH_ADDRESS:
            yield Unworkable(
                "provider",
                f"the address of '{wanted.provider}' is not known here.",
                f"Set auxiliary.compression.base_url to its OpenAI-compatible endpoint, or use one of {known()}.",
            )
        return
    if wanted.provider in {"main", "anthropic"}:
        yield Unworkable(
            "provider",
            f"base_url is for OpenAI-compatible endpoints, but the provider is '{wanted.provider}'.",
            "Set the provider to 'auto', or remove base_url.",
        )
    if not wanted.model:
        yield Unworkable(
            "model",
            f"nothing says which model {wanted.base_url} shall use.",
            "Set auxiliary.compression.model to one that it serves.",
        )


def known() -> str:
    """Name the providers whose address is known."""
    return ", ".join(sorted(_WITH_ADDRESS))
