"""Text that holds no known secret, as a type: what goes to a summariser, an index or a log must be of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Iterable


class _Searched:
    """What the redactor shows when it makes `Redacted` text; nothing else has one."""


_SEARCHED = _Searched()


class Redacted(str):
    """Text without known secrets; only the redactor makes it, so a plain string cannot pass for it by accident."""

    __slots__ = ()

    def __new__(cls, text: str, searched: _Searched) -> Self:  # noqa: ARG004 - asked for, so that others cannot
        """Make it; `Redacted(text)` alone fails, for a type checker and at run time."""
        return super().__new__(cls, text)

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what a copy is made of: a plain string, which is not taken to be clean."""
        return str, (str(self),)


def clean(text: str) -> Redacted:
    """Mark a text that the redactor has finished with; only this package may call it."""
    return text if isinstance(text, Redacted) else Redacted(text, _SEARCHED)


EMPTY = clean("")
"""An empty text, which holds no secret."""


def joined(separator: str, texts: Iterable[Redacted]) -> Redacted:
    """Join clean texts with a fixed one."""
    return clean(separator.join(texts))
