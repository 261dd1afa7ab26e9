"""What the README shows is what you get: its summary, its demonstration; its links lead somewhere."""

from __future__ import annotations

import re
import time
from itertools import count
from pathlib import Path

import pytest
from click.testing import CliRunner

from leporello import ContextCompressor
from leporello.cli.demo import command as demo
from leporello.summary.placement import strip_summary
from leporello.testing.demo_conversation import demo_conversation

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def test_its_summary_is_the_one_you_get() -> None:
    engine = ContextCompressor(200_000)
    window = engine.compress(demo_conversation().messages)
    summary = strip_summary(window, window).previous.splitlines()
    (shown,) = blocks("markdown")
    missing = [line for line in shown.splitlines() if line and line not in summary]
    assert not missing


@pytest.mark.slow
def test_its_demonstration_is_the_one_you_get() -> None:
    screen = _words(CliRunner().invoke(demo, ["--fast"]).output)
    (shown,) = blocks("text")
    assert [line for line in shown.splitlines() if _words(line) not in screen] == []


@pytest.mark.slow
def test_its_figures_do_not_depend_on_the_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock goes on by minutes while the demonstration runs, as on a slow machine."""
    clock = count(time.time(), 20.0)
    monkeypatch.setattr(time, "time", lambda: next(clock))
    screen = _words(CliRunner().invoke(demo, ["--fast"]).output)
    (shown,) = blocks("text")
    assert [line for line in shown.splitlines() if _words(line) not in screen] == []


def _words(text: str) -> str:
    """Return what a screen says: without frames, widths and times."""
    return " ".join(re.sub(r"\d+ ms|[^\w→.,:?-]", " ", text).split())


def test_the_chinese_one_shows_the_same_code() -> None:
    shown = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
    code = shown.findall((ROOT / "README.zh-CN.md").read_text(encoding="utf-8"))
    assert len(code) >= 8
    assert [block for block in code if block not in README] == []


@pytest.mark.parametrize(
    "page", ["README.md", "README.zh-CN.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"]
)
def test_its_links_lead_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", text)
    assert [link for link in links if not (ROOT / link).exists()] == []
