"""What a summariser's provider needs when its address is not known here."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from leporello.config.keys import VARIABLES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leporello.config.model import AuxiliaryCompression

_WITH_ADDRESS = VARIABLES.keys() - {"custom"}
_CHOSEN_LATER = frozenset({"auto", "main"})


class Missing(NamedTuple):
    """A key of `auxiliary.compression`, what is wrong with it, and what to do."""

    key: str
    problem: str
    hint: str


def missing(wanted: AuxiliaryCompression) -> Iterator[Missing]:
    """Yield what a provider without a known address lacks; it can never be reached, whatever keys are set."""
    if wanted.provider in _CHOSEN_LATER | _WITH_ADDRESS:
        return
    if not wanted.base_url:
        yield Missing(
            "provider",
            f"the address of '{wanted.provider}' is not known here.",
            "Set auxiliary.compression.base_url to its OpenAI-compatible endpoint, or use one of "
            f"{', '.join(sorted(_WITH_ADDRESS))}.",
        )
    elif not wanted.model:
        yield no_model(wanted)


def no_model(wanted: AuxiliaryCompression) -> Missing:
    """Say that an endpoint has no model."""
    return Missing(
        "model",
        f"nothing says which model {wanted.base_url} shall use.",
        "Set auxiliary.compression.model to one that it serves.",
    )
