"""`leporello replay` from the outside: figures, a report, gates, and files that cannot be read."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from leporello.messages import Message, tool_result
from leporello.testing.coding_session import coding_session

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

FAST = ("--engines", "mask,compressor", "--window", "8000", "--jobs", "1")


@pytest.fixture
def session(tmp_path: Path) -> Path:
    file = tmp_path / "session.json"
    file.write_text(json.dumps(coding_session(12)), "utf-8")
    return file


def test_json_for_programs(leporello: Any, session: Path) -> None:
    done = leporello("replay", session, *FAST, "--json")
    assert done.code == 0
    assert list(done.json["engines"]) == ["mask", "compressor"]
    assert done.json["engines"]["compressor"]["needed"]["n"] > 0
    assert done.json["engines"]["compressor"]["needed"]["beside"]["mask"]["tokens"] > 0


def test_a_table_for_people(leporello: Any, session: Path) -> None:
    shown = leporello("replay", session, *FAST, "--engines", "none,compressor").out
    assert "compressor" in shown
    assert "needed later:" in shown
    assert "do not fit the window" in shown


def test_a_window_that_is_never_full_has_no_empty_table(leporello: Any, session: Path) -> None:
    shown = leporello("replay", session, "--window", "1000000", "--engines", "none,compressor").out
    assert "Needed later: no window was looked at, because no history fills half of it." in " ".join(shown.split())
    assert "together" not in shown


def test_the_table_has_intervals_over_several_conversations(leporello: Any, session: Path) -> None:
    share = r"\d\.\d\d"
    alone, three = leporello("replay", session, *FAST).out, leporello("replay", session, session, session, *FAST).out
    assert re.search(rf"compressor +│ +[\d,]+ │ +{share} │", alone)
    assert re.search(rf"compressor +│ +[\d,]+ │ +{share} \({share}–{share}\) │", three)


def test_the_table_tells_how_much_reading_again_was_unnecessary(leporello: Any, tmp_path: Path) -> None:
    """A file that was first read behind the last cut is not read again after one."""
    system, *rest = coding_session(12)
    again = {at for at, message in enumerate(rest) if str(message["content"]).endswith(" again.")}
    rest = [message for at, message in enumerate(rest) if not again & {at, at - 1}]
    said: Message = {"role": "assistant", "content": "TIDE_LIMIT is 4711."}
    late, early = tmp_path / "late.json", tmp_path / "early.json"
    late.write_text(json.dumps([system, *rest, *reading("t1"), *reading("t2"), said]), "utf-8")
    early.write_text(json.dumps([system, *reading("t1"), *rest, *reading("t2"), said]), "utf-8")
    fast = (*FAST, "--engines", "none,compressor", "--no-probes")
    assert leporello("replay", late, *fast, "--json").json["engines"]["none"]["reread"]["used"] == 0
    shown = leporello("replay", early, *fast).out
    assert re.search(r"none +│.* 1\.00 of [1-9] │", shown), shown
    assert re.search(r"compressor +│.* \d\.\d\d of [1-9] │", shown)


def reading(id_: str) -> list[Message]:
    """Return a call that reads a file, with its result."""
    function = {"name": "read_file", "arguments": '{"path": "src/tide.py"}'}
    asked: Message = {"role": "assistant", "content": None, "tool_calls": []}
    asked["tool_calls"] = [{"id": id_, "type": "function", "function": function}]
    return [{"role": "user", "content": "Look."}, asked, tool_result(id_, "TIDE_LIMIT = 4711")]


def test_a_gate_decides_the_exit_code(leporello: Any, session: Path) -> None:
    assert leporello("replay", session, *FAST, "--gate", "cost<=5*mask").code == 0
    failed = leporello("replay", session, *FAST, "--gate", "cost<=0.01*mask,lost=0")
    assert failed.code == 1
    assert "gate failed: cost<=0.01*mask: compressor has cost_usd" in failed.err
    assert leporello("replay", session, *FAST, "--gate", "nonsense").code == 2


def test_a_report_is_one_file_with_the_same_figures(leporello: Any, session: Path, tmp_path: Path) -> None:
    page = tmp_path / "out.html"
    done = leporello("replay", session, *FAST, "--json", "--report", page)
    text = page.read_text("utf-8")
    data = text.split('<script type="application/json" id="figures">')[1].split("</script>")[0]
    assert json.loads(data) == done.json
    assert "http://" not in text.split("<script")[0]
    assert "https://" not in text.split("<script")[0]


def test_joined_conversations(leporello: Any, session: Path) -> None:
    told = leporello("replay", session, session, session, *FAST, "--join", "20000", "--no-probes", "--json").json
    assert told["conversations"] == 2


def test_what_cannot_be_read_is_told(leporello: Any, session: Path, tmp_path: Path) -> None:
    missing = leporello("replay", tmp_path / "nowhere.json", *FAST)
    assert (missing.code, "cannot be read" in missing.err) == (2, True)
    foreign = tmp_path / "package.json"
    foreign.write_text('{"name": "left-pad"}', "utf-8")
    assert leporello("replay", foreign, *FAST).code == 2
    lines = tmp_path / "talk.jsonl"
    texts = [json.dumps(message) for message in coding_session(6)]
    lines.write_text("\n".join([*texts[:3], "{broken", *texts[3:]]), "utf-8")
    assert "line 4: not JSON" in leporello("replay", lines, *FAST).err


def test_an_engine_that_does_not_exist_is_told_before_anything_is_read(leporello: Any, tmp_path: Path) -> None:
    done = leporello("replay", tmp_path / "nowhere.json", "--engines", "nobody")
    assert done.code == 2
    assert "nobody" in done.err


def test_recorded_summaries_need_recorded_cuts(leporello: Any, session: Path) -> None:
    assert "--cuts recorded" in leporello("replay", session, "--engines", "recorded").err


def test_a_log_without_compactions_has_none_to_look_at(leporello: Any, session: Path) -> None:
    told = leporello("replay", session, *FAST, "--engines", "recorded", "--cuts", "recorded")
    assert (told.code, "no conversation that records a compaction" in told.err) == (2, True)
    assert "no log records a compaction" in leporello("replay", session, *FAST, "--cuts", "recorded").out


def test_where_no_window_is_looked_at_the_table_is_not_empty(leporello: Any, session: Path) -> None:
    shown = leporello("replay", session, *FAST, "--window", "200000", "--no-probes").out
    assert "no history fills half of it" in shown
    assert "present" not in shown


def test_a_report_that_cannot_be_written_is_told_before_anything_is_read(leporello: Any, tmp_path: Path) -> None:
    told = leporello("replay", tmp_path / "nothing.json", "--report", tmp_path / "nowhere" / "report.html")
    assert (told.code, "there is no folder" in told.err) == (2, True)


def test_an_unknown_baseline_is_told(leporello: Any, session: Path) -> None:
    done = leporello("replay", session, "--beside", "magic")
    assert done.code == 2
    assert "magic" in done.err


PLANTED = """
class Useless(Engine):
    def should_compress(self, prompt_tokens=None):
        return True
"""


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_what_a_plugin_is_warned_of_is_told_once(plugins: Any, session: Path, jobs: str) -> None:
    """Also by the processes that replay, which print past the command."""
    plugins.engine("useless", PLANTED, engine_name="otherwise")
    options = [*FAST, "--engines", "useless", "--no-probes", "--jobs", jobs]
    command = [sys.executable, "-m", "leporello", "replay", str(session), str(session), *options]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    warned = "its engine calls itself 'otherwise'; the folder's name counts"
    assert [line.endswith(warned) for line in told.splitlines()] == [True]


def test_of_each_kind_of_finding_one_is_shown(leporello: Any, plugins: Any, session: Path) -> None:
    plugins.engine("useless", PLANTED, engine_name="useless")
    arguments = ("replay", session, session, session, *FAST, "--engines", "useless", "--no-probes")
    shown = [line for line in leporello(*arguments).out.splitlines() if line.startswith("useless: ")]
    every = leporello(*arguments, "--json").json["engines"]["useless"]["findings"]
    kinds = {finding.split(": ")[1] for finding in every}
    assert "replaced" in kinds
    assert len(every) == 3 * len(kinds)
    assert len(shown) == len(kinds)
    assert all("(and 2 more findings '" in line for line in shown)


def test_a_model_without_a_price_is_told(leporello: Any, session: Path) -> None:
    arguments = ("replay", session, *FAST, "--engines", "none", "--no-probes")
    assert "The price of nobodys-model is not known" in leporello(*arguments, "--model", "nobodys-model").out
    assert "is not known" not in leporello(*arguments).out
