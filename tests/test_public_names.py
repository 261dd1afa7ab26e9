"""The public surface: what `leporello` exports, and what importing it costs."""

from __future__ import annotations

import subprocess
import sys

import pytest

import leporello

STANDARD = frozenset(sys.stdlib_module_names)


def modules_after(statement: str) -> set[str]:
    """Run a statement in a fresh, isolated interpreter and return the names of the packages it loaded."""
    script = f"import sys; before = set(sys.modules); {statement}; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return {name.partition(".")[0] for name in done.stdout.split()}


def test_every_public_name_exists() -> None:
    assert [name for name in leporello.__all__ if getattr(leporello, name, None) is None] == []


def test_all_is_sorted_and_complete() -> None:
    assert sorted(leporello.__all__) == leporello.__all__
    assert set(leporello._HOMES) | {"__version__"} == set(leporello.__all__)
    assert set(leporello.__all__) <= set(dir(leporello))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Leporelo'"):
        _ = leporello.Leporelo


@pytest.mark.parametrize(
    "statement", ["import leporello", "from leporello import ContextEngine", "import leporello.messages"]
)
def test_importing_loads_no_third_party_module(statement: str) -> None:
    assert modules_after(statement) - STANDARD == {"leporello"}


def test_the_check_can_fail() -> None:
    assert "pydantic" in modules_after("from leporello import Config")
