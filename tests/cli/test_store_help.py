"""The help of every command about the store has an example."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.fixtures.cli import Leporello

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "command",
    [
        *["backup", "demo", "describe", "expand", "gc", "grep", "verify"],
        *["sessions", "sessions list", "sessions show", "sessions export", "sessions delete", "import"],
    ],
)
def test_the_help_of_every_command_has_an_example(leporello: Leporello, command: str) -> None:
    done = leporello(*command.split(), "--help")
    assert done.code == 0
    assert re.search(rf"Examples?:\s+leporello {command}", done.out)
    assert command == "sessions" or "--store ADDRESS" in done.out
