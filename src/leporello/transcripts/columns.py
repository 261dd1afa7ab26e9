"""Values of database columns: JSON that may be broken, and the columns that a version of a program has."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


def selected(wanted: Iterable[str], present: set[str]) -> str:
    """Return the list of a SELECT: the columns, and NULL for those that this version of the program did not have."""
    return ", ".join(name if name in present else f"NULL AS {name}" for name in wanted)


def parsed(text: Any, kind: type) -> Any:
    """Return the JSON value in a column, an empty one when it is missing, broken or of another kind."""
    if not isinstance(text, str):
        return kind()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return kind()
    return value if isinstance(value, kind) else kind()
