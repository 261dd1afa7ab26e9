"""A picture shows every change, in deep and circular values too."""

from __future__ import annotations

from typing import Any

import pytest

from leporello.testing.picture import picture, same_picture


def deep() -> list[Any]:
    value: list[Any] = []
    for _ in range(100_000):
        value = [value]
    return value


def circular() -> dict[str, Any]:
    value: dict[str, Any] = {"a": [1]}
    value["self"] = value
    return value


@pytest.mark.parametrize("value", [deep(), circular(), {"x": float("nan")}, [1, "a", None, {"b": (2,)}]])
def test_an_untouched_value_shows_the_same(value: Any) -> None:
    assert same_picture(picture(value), picture(value))


def test_a_change_is_seen() -> None:
    value = circular()
    before = picture(value)
    value["a"][0] = 2
    assert not same_picture(before, picture(value))


def test_a_container_put_in_place_of_another_is_seen() -> None:
    value = {"a": [1]}
    before = picture(value)
    value["a"] = [1]
    assert not same_picture(before, picture(value))
