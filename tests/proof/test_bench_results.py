"""A run of the benchmarks becomes dated files, and the page in the docs is made from one."""

from __future__ import annotations

import json
import re
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from benchmarks import __main__ as command
from benchmarks.results import PUBLISHED, Result, markdown, publish, write

if TYPE_CHECKING:
    from pathlib import Path


TABLE = "| a | b |\n|---|---|\n| 1 | 2 |"
RESULTS = {
    "speed": Result(shows="how fast", printed="0.4 ms\n", met=True, seconds=2.0, load=7.25),
    "cost": Result(shows="what it costs", printed=f"{TABLE}\n", met=False, seconds=3.0),
}


def test_a_run_is_written_as_json_and_as_a_page(tmp_path: Path) -> None:
    data, page = write(RESULTS, tmp_path)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d-\d{6}\.json", data.name)
    told = json.loads(data.read_text("utf-8"))
    assert told["benchmarks"]["speed"]["printed"] == "0.4 ms\n"
    assert page.read_text("utf-8") == markdown(told)


def test_the_page_says_which_bars_were_missed_and_keeps_tables(tmp_path: Path) -> None:
    page = write(RESULTS, tmp_path)[1].read_text("utf-8")
    assert "| cost | what it costs | missed | 3 | not noted |" in page
    assert "| speed | how fast | met | 2 | 7.2 |" in page
    assert f"\n{TABLE}\n" in page
    assert "```text\n0.4 ms\n```" in page


def test_the_page_tells_its_caveats(tmp_path: Path) -> None:
    page = write(RESULTS, tmp_path)[1].read_text("utf-8")
    assert "simulated" in page
    assert "not the accuracy of answers" in page


def test_a_run_of_some_benchmarks_leaves_the_others_as_they_were(tmp_path: Path) -> None:
    published = tmp_path / "published.json"
    earlier = {"date": "2026-01-02T03:04:05", "machine": {}, "benchmarks": {}}
    earlier["benchmarks"] = {name: {**vars(RESULTS[name]), "printed": "told earlier"} for name in RESULTS}
    published.write_text(json.dumps(earlier), "utf-8")
    publish(write({"cost": RESULTS["cost"]}, tmp_path)[0], published)
    page = markdown(json.loads(published.read_text("utf-8")))
    assert "| speed | how fast | met | 2 | 7.2 | 2026-01-02 |" in page
    assert "| cost | what it costs | missed | 3 | not noted |" in page
    assert page.count("told earlier") == 1
    publish(write(RESULTS, tmp_path)[0], tmp_path / "first.json")
    assert (tmp_path / "first.json").exists()


def test_what_is_published_is_a_run() -> None:
    told = json.loads(PUBLISHED.read_text("utf-8"))
    assert told["benchmarks"]
    assert told["machine"]["python"]


def test_a_benchmark_that_breaks_down_does_not_take_the_others_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    broken = SimpleNamespace(main=lambda _: 1 // 0)
    monkeypatch.setattr(command, "import_module", lambda _: broken)
    result = command.run("messages", None)
    assert not result.met
    assert "ZeroDivisionError" in result.printed


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(command.BENCHMARKS))
def test_every_benchmark_takes_what_it_is_called_with(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    benchmark = command.BENCHMARKS[name]
    options = ["--data", "somewhere"] if benchmark.data is not None else []
    options += ["--encoder", "somewhere"] if benchmark.takes_encoder else []
    with pytest.raises(SystemExit) as ended:
        import_module(f"benchmarks.{benchmark.module or name}").main([*options, *benchmark.options, "--help"])
    assert ended.value.code == 0
    assert capsys.readouterr().out
