"""Templates with everything escaped, and what they may call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from leporello.messages.visible import one_line, visible
from leporello.view import text

if TYPE_CHECKING:
    from leporello.store import ConversationInfo

LABELS: Final = {
    "system": "System prompt",
    "tools": "Tools",
    "summary": "Summaries",
    "masked": "Masked zone",
    "tail": "Tail, word for word",
    "free": "Free",
    "cached": "Read from the cache",
    "written": "Written to the cache",
    "fresh": "Fresh",
    "spent": "Spent",
    "saved": "Saved by folding",
}
"""What the parts of a window and the charges are called."""


def address(page: str, /, **query: Any) -> str:
    """Return the address of a page; what is None or "" is left out of it."""
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return (f"/view/{page}" if page else "/view") + (f"?{urlencode(given)}" if given else "")


class Here:
    """Addresses of pages about one conversation; the owner is named where a viewer sees those of several."""

    def __init__(self, info: ConversationInfo, *, named: bool) -> None:
        self._fixed = {"c": info.key, "owner": info.owner if named else None}

    def __call__(self, page: str, /, **query: Any) -> str:
        """Return the address of a page."""
        return address(page, **self._fixed, **query)


def environment() -> Environment:
    """Return the templates."""
    made = Environment(
        loader=PackageLoader("leporello.view"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals.update(address=address, labels=LABELS, piece_length=text.PIECE)
    made.filters.update(
        number=text.number,
        short=text.short,
        dollars=text.dollars,
        percent=text.percent,
        when=text.when,
        day=text.day,
        machine_time=text.machine_time,
        clean=text.clean,
        visible=visible,
        one_line=one_line,
        brief=text.brief,
        preview=text.preview,
        path_end=text.path_end,
        prose=text.prose,
        tool_names=text.tool_names,
    )
    return made
