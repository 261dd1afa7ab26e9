"""The page about prompt caching tells what the data tells."""

from __future__ import annotations

from pathlib import Path

from leporello.caching import rules_of

DOCS = Path(__file__).parents[2] / "docs"


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
