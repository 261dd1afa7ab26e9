"""The report in a real browser: it needs nothing else, draws every plot, and reads in light and dark."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

import pytest
from playwright.sync_api import sync_playwright

from leporello.proof import Figures, ReplaySettings, replay_all
from leporello.proof.charts import Line, lines, short
from leporello.proof.report import page
from leporello.testing.coding_session import coding_session
from leporello.transcripts import Transcript

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Page

pytestmark = pytest.mark.slow

ENGINES = ["none", "mask", "compressor", "lcm"]


@pytest.fixture(scope="module")
def figures() -> Figures:
    sessions = [
        Transcript(name=f"harbour <{seed}>", format="openai", messages=coding_session(20, seed=seed)) for seed in (1, 2)
    ]
    return replay_all(sessions, ENGINES, ReplaySettings(model="claude-sonnet-5", window=10_000))


@pytest.fixture(scope="module")
def file(figures: Figures, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    path.write_text(page(figures), "utf-8")
    return path


@pytest.fixture(scope="module", params=["light", "dark"])
def opened(request: Any, file: Path) -> Iterator[tuple[Page, list[str]]]:
    """Open the page with no network, and take down what it asks for and complains about."""
    chromium = shutil.which("chromium")
    assert chromium, "make installs it: apt-get install chromium"
    heard: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        context = browser.new_context(
            color_scheme=request.param, offline=True, viewport={"width": 1_100, "height": 900}
        )
        shown = context.new_page()
        shown.on("console", lambda message: heard.append(message.text))
        shown.on("pageerror", lambda error: heard.append(str(error)))
        shown.on("request", lambda asked: heard.append(asked.url) if asked.url != file.as_uri() else None)
        shown.goto(file.as_uri())
        yield shown, heard
        browser.close()


def test_it_asks_for_nothing_and_complains_of_nothing(opened: tuple[Page, list[str]]) -> None:
    assert opened[1] == []


def test_every_plot_is_drawn(opened: tuple[Page, list[str]]) -> None:
    shown, _ = opened
    charts = shown.locator("figure svg")
    assert charts.count() == 3 + 4  # window, cost, needed, and a chart for each kind of probe
    for number in range(charts.count()):
        box = charts.nth(number).bounding_box()
        assert box is not None
        assert box["width"] > 500
        assert box["height"] > 40
    assert shown.locator("polyline").count() == len(ENGINES)
    assert shown.locator("circle").count() > 0


def test_nothing_is_wider_than_the_page(opened: tuple[Page, list[str]]) -> None:
    shown, _ = opened
    assert shown.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    clipped = """() => [...document.querySelectorAll('svg')].flatMap(svg => [...svg.querySelectorAll('text')]
        .filter(text => text.getBBox().x + text.getBBox().width > svg.viewBox.baseVal.width + 1)
        .map(text => text.textContent))"""
    assert shown.evaluate(clipped) == []


def test_text_stands_out_from_its_ground(opened: tuple[Page, list[str]]) -> None:
    shown, _ = opened
    ground, ink = (shown.evaluate(f"getComputedStyle(document.body).{name}") for name in ("backgroundColor", "color"))
    assert contrast(ground, ink) > 7


def test_names_are_text_and_not_markup(opened: tuple[Page, list[str]]) -> None:
    shown, _ = opened
    assert "harbour <1>" in shown.inner_text("main")


def test_what_was_found_is_told_in_words(opened: tuple[Page, list[str]], figures: Figures) -> None:
    findings = [finding for engine in figures.as_dict()["engines"].values() for finding in engine["findings"]]
    text = opened[0].text_content("main") or ""
    assert any(": lost: " in finding for finding in findings)
    assert all(finding in text for finding in findings)
    assert "lost: what nobody wrote" not in text


def contrast(one: str, other: str) -> float:
    """Return how much two colours differ, by the rule of the Web Content Accessibility Guidelines."""

    def light(colour: str) -> float:
        channels = [int(part) / 255 for part in colour[4:-1].split(",")]
        linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    bright, dark = sorted((light(one), light(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def test_a_chart_of_nothing_is_still_a_chart() -> None:
    assert lines([Line(name="none", points=[])], x_label="messages", y_label="tokens").startswith("<svg")
    assert [short(number) for number in (950, 1_500, 2_000_000)] == ["950", "1.5K", "2M"]
