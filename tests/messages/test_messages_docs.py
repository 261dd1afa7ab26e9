"""The reference page of the room: its table is the code's, its examples run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from leporello import messages
from leporello.messages import FIXED_TEXTS, RULES, codes

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "messages.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def table() -> list[str]:
    return [f"| `{rule.code}` | {', '.join(rule.dialects)} | {rule.meaning} |" for rule in RULES.values()]


def test_the_table_of_codes_is_the_one_of_the_code() -> None:
    documented = re.search(r"\| code \| refused by \| meaning \|\n\|---\|---\|---\|\n((?:\|.*\n)+)", PAGE)
    assert documented
    assert documented[1].splitlines() == table()


def test_every_constant_is_in_the_table() -> None:
    constants = {value for name, value in vars(codes).items() if name.isupper() and isinstance(value, str)}
    assert constants == set(RULES)


@pytest.mark.parametrize("example", EXAMPLES)
def test_each_example_runs(example: str) -> None:
    exec(compile(example, "docs/reference/messages.md", "exec"), {})  # noqa: S102 - our own page


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 5


def test_all_names_of_the_room_exist() -> None:
    assert all(hasattr(messages, name) for name in messages.__all__)


def test_every_fixed_text_has_a_public_name() -> None:
    public = {getattr(messages, name) for name in messages.__all__ if isinstance(getattr(messages, name), str)}
    assert public == FIXED_TEXTS
