"""The blocks of a page of the documentation: what is to be run, what is only shown, and what a block needs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
SHOWN = ("text", "markdown")
"""What is looked at, and not run."""

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_NEEDS = re.compile(r"<!-- needs (.+) -->\s*\Z")
_UNFENCED = re.compile(r"(?:\A|\n\n)(?: {4}|\t)\S")


@dataclass(frozen=True, kw_only=True)
class Block:
    """A block of a page; `needs` says why it cannot run everywhere, as a comment before it does."""

    line: int
    language: str
    text: str
    needs: str


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command of a block, and the lines that it is said to print."""

    text: str
    shown: tuple[str, ...] = ()


def blocks(text: str) -> Iterator[Block]:
    """Yield the blocks of a page from top to bottom."""
    for found in _FENCE.finditer(text):
        before = text[: found.start()]
        needs = _NEEDS.search(before)
        yield Block(line=before.count("\n") + 1, language=found[1], text=found[2], needs=needs[1] if needs else "")


def odd(text: str) -> list[str]:
    """Return what would be overlooked: comments that belong to no block, code that no fence encloses."""
    prose = _FENCE.sub("", text)
    marks = sum(bool(block.needs) for block in blocks(text))
    found = [f"`{mark}` stands before no block" for mark in re.findall(r"<!-- needs .*?-->", prose)[marks:]]
    found += ["a fence that does not end, or is indented"] * ("```" in prose)
    return found + ["code without a fence"] * bool(_UNFENCED.search(prose))


def commands(block: Block) -> list[Command]:
    """Return the commands of a block: behind a prompt in `console`, every line in `sh`."""
    found: list[Command] = []
    for line in block.text.replace("\\\n", "\\\0").splitlines():
        whole = line.replace("\\\0", "\\\n")
        if block.language == "sh":
            found.append(Command(text=whole))
        elif whole.startswith("$ "):
            found.append(Command(text=whole.removeprefix("$ ")))
        else:
            last = found.pop()
            found.append(Command(text=last.text, shown=(*last.shown, whole)))
    return [command for command in found if command.text.strip()]


def missing(shown: tuple[str, ...], printed: str) -> list[str]:
    """Return the shown lines that were not printed; … stands for anything."""
    lines = [line.rstrip() for line in printed.splitlines()]
    patterns = {line: re.compile(".*".join(map(re.escape, line.rstrip().split("…")))) for line in shown}
    return [line for line, pattern in patterns.items() if not any(map(pattern.fullmatch, lines))]
