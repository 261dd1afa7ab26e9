"""Every block of every page runs as it is printed, from an empty folder, or says why it cannot."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.pages.page import PAGES, ROOT, blocks, odd
from tests.pages.reader import problems_of

if TYPE_CHECKING:
    from pathlib import Path

NEEDED = {
    "the network": 11,
    "a key": 3,
    "PostgreSQL": 3,
    "Hermes Agent": 2,
    "Codex": 1,
    "an agent": 1,
    "LangChain": 1,
    "the OpenAI Agents SDK": 1,
    "data": 2,
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
    "a language that nobody runs": "```ruby\nputs 1\n```",
    "a server that does not start": "```console\n$ leporello serve --demo --port nowhere\n```",
    "a server that says something else": "```console\n$ leporello serve --demo --port 0\nready\n```",
    "a route that nobody serves": (
        "```console\n$ leporello serve --demo --port 8765\n$ curl -s http://127.0.0.1:8765/v1/nothing\n```"
    ),
    "a chat that does not begin": "```console\n$ leporello chat --engine nothing\n```",
}


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
