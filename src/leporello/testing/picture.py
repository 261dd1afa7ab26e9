"""A picture of a value, to see later whether anything in it was changed; deep and circular values too."""

from __future__ import annotations

from typing import Any


def picture(value: Any) -> list[Any]:
    """Take a picture: every container with its size, every leaf as it is, in one flat list."""
    flat: list[Any] = []
    seen: set[int] = set()
    stack = [value]
    while stack:
        item = stack.pop()
        if not isinstance(item, (dict, list, tuple)):
            flat.append(item)
            continue
        flat.append((type(item), id(item), len(item)))
        if id(item) not in seen:
            seen.add(id(item))
            stack.extend([*item.keys(), *item.values()] if isinstance(item, dict) else item)
    return flat


def same_picture(before: list[Any], after: list[Any]) -> bool:
    """Tell whether two pictures of one value show the same."""
    return len(before) == len(after) and all(a is b or a == b for a, b in zip(before, after, strict=True))
