"""The pages about prompt caching run, and tell what the data tells."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from leporello.caching import rules_of

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def run(page: str) -> None:
    code = "\n".join(BLOCK.findall(page))
    exec(compile(code, "page", "exec"), {})  # noqa: S102 - our own pages


@pytest.mark.slow
@pytest.mark.parametrize("page", ["prompt-caching.md", "test-with-the-model-server.md"])
def test_the_examples_run(page: str) -> None:
    run((DOCS / "how-to" / page).read_text("utf-8"))


def test_an_example_that_does_not_run_is_caught() -> None:
    page = (DOCS / "how-to" / "prompt-caching.md").read_text("utf-8")
    with pytest.raises(AssertionError):
        run(page.replace('"grew"', '"shrank"'))


def test_the_table_of_providers_is_the_data() -> None:
    page = (DOCS / "explanation" / "caching.md").read_text("utf-8")
    claude, older, newer = (rules_of(name) for name in ("claude-sonnet-5", "gpt-5.5", "gpt-5.6"))
    smallest = {rules_of(f"claude-{name}").minimum for name in ("opus-5", "sonnet-5", "haiku-4-5")}
    assert f"up to {claude.lookback} blocks back" in page
    assert sorted(smallest) == [512, 1_024, 4_096]
    assert "512, 1,024 or 4,096 tokens" in page
    assert dict(claude.lifetimes) == {"5m": 300, "1h": 3_600}
    assert (older.step, older.minimum, newer.minimum) == (128, 1_024, 1_024)
    assert newer.lifetime("") == 30 * 60
