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


def test_every_line_of_many_is_seen(opened: tuple[Page, list[str]]) -> None:
    """There are fewer colours than lines; a line without a colour is not drawn at all."""
    many = lines([Line(name=str(n), points=[(0, n), (9, n)]) for n in range(20)], x_label="x", y_label="y")
    shown, _ = opened
    strokes = shown.evaluate(
        """svg => { const box = document.createElement('div'); box.innerHTML = svg; document.body.append(box);
        const found = [...box.querySelectorAll('polyline')].map(line => {
            const style = getComputedStyle(line); return style.stroke + style.strokeDasharray; });
        box.remove(); return found }""",
        many,
    )
    assert len(strokes) == 20
    assert not any(stroke.startswith("none") for stroke in strokes)
    assert len(set(strokes)) == 16


def test_it_says_what_the_dollars_rest_on(opened: tuple[Page, list[str]]) -> None:
    text = opened[0].inner_text("#assumed + ul")
    for told in ("input $2,", "genai-prices", "Anthropic's prompt caching page", "from 1,024 tokens", "no bill"):
        assert told in text
    assert "is not priced" in text


def test_the_bars_are_as_long_as_what_was_paid(opened: tuple[Page, list[str]], figures: Figures) -> None:
    """The parts of each bar are the dollars by kind, and the longest bar is the dearest policy."""
    engines = figures.as_dict()["engines"]
    for one in engines.values():
        assert sum(one["dollars"].values()) == pytest.approx(one["cost_usd"], abs=1e-5)
    widths = opened[0].evaluate(
        """() => [...document.querySelector('svg[aria-label="cost by engine"]').querySelectorAll('rect')].map(
        rect => [rect.textContent.split(':')[0], rect.width.baseVal.value])"""
    )
    length = {name: sum(wide for of, wide in widths if of == name) for name in engines}
    dearest = max(engines, key=lambda name: engines[name]["cost_usd"])
    for name, one in engines.items():
        assert length[name] / length[dearest] == pytest.approx(one["cost_usd"] / engines[dearest]["cost_usd"], abs=0.01)


def test_conversations_without_times_are_told() -> None:
    session = coding_session(3)
    bare: list[Any] = [{key: value for key, value in message.items() if key != "timestamp"} for message in session]
    timeless = Transcript(name="timeless", format="openai", messages=bare)
    timed = Transcript(name="timed", format="openai", messages=session)
    settings = ReplaySettings(model="claude-sonnet-5", window=10_000, probes=False)
    assert "1 of 2 conversations record no times" in page(replay_all([timeless, timed], ["none"], settings))
    assert "record no times" not in page(replay_all([timed], ["none"], settings))


def test_a_page_about_an_unknown_model_has_no_dollars() -> None:
    session = Transcript(name="one", format="openai", messages=coding_session(3))
    told = page(replay_all([session], ["none", "lcm"], ReplaySettings(model="my-own", window=10_000, probes=False)))
    assert "not known, so there are no dollars" in told
    assert "no rules are known for this model" in told


def test_a_chart_of_nothing_is_still_a_chart() -> None:
    assert lines([Line(name="none", points=[])], x_label="messages", y_label="tokens").startswith("<svg")
    assert [short(number) for number in (950, 1_500, 2_000_000)] == ["950", "1.5K", "2M"]
