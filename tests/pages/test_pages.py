"""Every block of every page runs as it is printed, from an empty folder, or says why it cannot."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

import click
import pytest
from tests.pages.page import PAGES, ROOT, blocks, odd
from tests.pages.reader import problems_of

from leporello.cli.main import commands

if TYPE_CHECKING:
    from pathlib import Path

NEEDED = {
    "the network": 15,
    "a key": 3,
    "PostgreSQL": 3,
    "Hermes Agent": 2,
    "Codex": 1,
    "an agent": 1,
    "LangChain": 1,
    "the OpenAI Agents SDK": 1,
    "the Claude Agent SDK": 1,
    "LiteLLM": 1,
    "Pydantic AI": 1,
    "data": 3,
}
"""What is printed and not run: a page that gets one more changes this."""
DEFECTS = {
    "a command that fails": "```console\n$ leporello verify nobody\n```",
    "a line that is not printed": "```console\n$ echo one two\none … three\n```",
    "a script whose second command fails": "```sh\necho one\nls nothing\n```",
    "a name that nothing defines": "```python\nprint(client)\n```",
    "a warning": "```python\nimport warnings\n\nwarnings.warn('old')\n```",
    "a setting that there is not": "```yaml\ncontext:\n  engines: lcm\n```",
    "half of an object": '```json\n{"id": \n```',
    "a table that does not end": "```toml\n[project.entry-points\n```",
    "a language that nobody runs": "```ruby\nputs 1\n```",
    "a server that does not start": "```console\n$ leporello serve --demo --port nowhere\n```",
    "a server that says something else": "```console\n$ leporello serve --demo --port 0\nready\n```",
    "a route that nobody serves": (
        "```console\n$ leporello serve --demo --port 8765\n$ curl -s http://127.0.0.1:8765/v1/nothing\n```"
    ),
    "a chat that does not begin": "```console\n$ leporello chat --engine nothing\n```",
}


def unknown(text: str) -> list[str]:
    """Return the commands within the lines of a page that there are not, or that lack an option."""
    named = re.findall(r"`(leporello [a-z][^`\n]*)`", text)
    return [command for command in named if _unknown(command.split()[1:])]


def _unknown(words: list[str]) -> bool:
    command: click.Command | None = commands
    context = click.Context(commands)
    options: set[str] = set()
    for word in words:
        if isinstance(command, click.Group) and not word.startswith("-"):
            command = command.get_command(context, word)
            if command is None:
                return True
        options |= {name for option in command.get_params(context) for name in option.opts} if command else set()
    given = words[: words.index("--")] if "--" in words else words
    return not {word.partition("=")[0] for word in given if word.startswith("--")} <= options


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_a_page_runs_as_printed(page: Path, tmp_path: Path) -> None:
    assert problems_of(page, tmp_path / "reader") == []


def test_what_is_not_run_is_counted() -> None:
    needed = Counter(block.needs for page in PAGES for block in blocks(page.read_text(encoding="utf-8")))
    del needed[""]
    assert needed == NEEDED


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.zh-CN.md", ROOT / "SECURITY.md"], ids=page_id)
def test_a_command_within_a_line_is_one_that_there_is(page: Path) -> None:
    assert unknown(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("command", ["leporello chatter", "leporello grep x --nowhere", "leporello sessions ls"])
def test_planted_a_command_that_there_is_not(command: str) -> None:
    assert unknown(f"Type `{command}` or `leporello grep x --limit 3`.") == [command]


@pytest.mark.slow
def test_planted_every_defect_of_a_page_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("\n\n".join(f"{what}:\n\n{block}" for what, block in DEFECTS.items()), encoding="utf-8")
    starts = [block.line for block in blocks(page.read_text(encoding="utf-8"))]
    found = problems_of(page, tmp_path / "reader")
    assert len(starts) == len(DEFECTS)
    missed = [what for what, line in zip(DEFECTS, starts, strict=True) if f"line {line}: " not in " ".join(found)]
    assert missed == []


@pytest.mark.slow
def test_planted_what_is_marked_is_not_run(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "<!-- needs a key -->\n```console\n$ exit 1\n```\n\n```console\n$ X=1\n$ export Y=2\n$ echo $Y\n2\n```\n"
    )
    assert problems_of(page, tmp_path / "reader") == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("<!-- needs a key -->\n\nSome words.\n\n```python\nx = 1\n```\n", "stands before no block"),
        ("Run it:\n\n    leporello demo\n", "code without a fence"),
        ("```python\nx = 1\n", "a fence that does not end"),
        ("- a list:\n\n  ```python\n  x = 1\n  ```\n", "or is indented"),
    ],
)
def test_planted_what_would_be_overlooked_is_named(text: str, problem: str) -> None:
    assert problem in " ".join(odd(text))
    assert odd("Words.\n\n<!-- needs a key -->\n```sh\nls\n```\n") == []
