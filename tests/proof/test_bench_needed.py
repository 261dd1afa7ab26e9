"""The table of what is needed later tells planted failures from engines, and is measured once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from benchmarks import needed

from leporello import ContextCompressor
from leporello.messages import role_of
from leporello.proof.needed import Kept
from leporello.testing.coding_session import coding_session

if TYPE_CHECKING:
    from pathlib import Path

    from leporello.messages import Message

LOOKS = {"recorded": (60_000, "recorded"), "turn by turn": (16_000, "growth")}
SUMMARY = "The tide table of the harbour was worked on."


def record(number: int, role: str, content: Any, **fields: Any) -> dict[str, Any]:
    """Return a record as Claude Code writes it."""
    message = {"role": role, "content": content, "id": f"msg_{number}", "model": "claude-sonnet-5"}
    return {"type": role, "uuid": f"u{number}", "sessionId": "harbour", "message": message, **fields}


def records(messages: list[Message], compacted_at: int) -> list[dict[str, Any]]:
    """Return a session as a log with one compaction."""
    log: list[dict[str, Any]] = []
    for number, message in enumerate(messages):
        if number == compacted_at:
            log.append({"type": "system", "subtype": "compact_boundary", "uuid": "b", "compactMetadata": {}})
            log.append(record(-1, "user", SUMMARY, isCompactSummary=True))
        if role_of(message) == "tool":
            block = {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
            log.append(record(number, "user", [block]))
            continue
        blocks: list[dict[str, Any]] = [{"type": "text", "text": message["content"]}] if message.get("content") else []
        for call in message.get("tool_calls", ()):
            arguments = json.loads(call["function"]["arguments"])
            blocks.append({"type": "tool_use", "id": call["id"], "name": call["function"]["name"], "input": arguments})
        log.append(record(number, role_of(message), blocks))
    return log


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Return a log of a session that was compacted once."""
    messages = [message for message in coding_session(40) if role_of(message) != "system"]
    at = next(at for at, message in enumerate(messages) if at > 320 and role_of(message) == "user")
    path = tmp_path / "harbour.jsonl"
    path.write_text("\n".join(map(json.dumps, records(messages, at))), "utf-8")
    return path


def rows_of(path: Path) -> dict[str, dict[str, list[needed.Held]]]:
    measured = needed.Measured()
    measured.add(str(path), needed.looked_at(str(path)))
    return measured.rows([str(path)])


@pytest.mark.slow
def test_every_policy_is_in_the_table_and_planted_failures_are_told(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needed, "LOOKS", LOOKS)
    rows = rows_of(log)
    beside = {f"{engine}: {name}" for engine in ("lcm", "compressor") for name in needed.BESIDE}
    assert rows["turn by turn"].keys() == {"lcm", "compressor", needed.EMPTY} | beside
    assert rows["recorded"].keys() == {"recorded", "lcm", "compressor", needed.EMPTY} | beside
    for found in rows.values():
        assert len({held.kept.n for (held,) in found.values()}) == 1
    assert needed.unnoticed({"turn by turn": rows["turn by turn"]}) == []
    assert "| – names+shuffled words | 1 |" in needed.table(rows["turn by turn"])


@pytest.mark.slow
def test_planted_summaries_that_are_not_empty_are_reported(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needed, "LOOKS", {"turn by turn": LOOKS["turn by turn"]})
    monkeypatch.setattr(needed, "BESIDE", ("mask",))
    monkeypatch.setattr(needed, "EmptySummaries", ContextCompressor)
    assert needed.unnoticed(rows_of(log)) == [
        "turn by turn: a planted failure is as good as compressor: compressor, summaries empty"
    ]


def held(present: int, in_context: int, together: int) -> needed.Held:
    kept = Kept(n=100, present=present, in_context=in_context, pairs=100, together=together)
    return needed.Held(cuts=1, tokens=1_000, kept=kept)


def test_what_is_below_in_one_share_is_told() -> None:
    listed = {"lcm": [held(90, 90, 60)] * 3, "lcm: names": [held(99, 80, 4)] * 3}
    assert needed.unnoticed({"look": listed}) == []


@pytest.mark.parametrize("other", [[held(90, 90, 60)] * 3, [held(91, 92, 63), held(90, 89, 59), held(90, 91, 60)]])
def test_planted_a_list_that_is_as_good_is_reported(other: list[needed.Held]) -> None:
    """What is below in one conversation and above in another is as good."""
    alike = {"lcm": [held(90, 90, 60)] * 3, "lcm: names": other}
    assert needed.unnoticed({"look": alike}) == ["look: a planted failure is as good as lcm: names"]


def test_a_share_has_its_interval_over_conversations() -> None:
    row = needed.table({"lcm": [held(90, 80, 70), held(70, 60, 50)]}).splitlines()[-1]
    assert row.startswith("| lcm | 2 | 2 | 1,000 | 0.800 (0.700 – 0.900) | 0.700 (0.600 – 0.800) |")


def kept_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, code: str) -> list[str]:
    """Measure two files, then again with this code; return what was measured the second time."""
    files = [tmp_path / name for name in ("a.jsonl", "b.jsonl")]
    for file in files:
        file.write_text(file.name, "utf-8")
    looked: list[str] = []

    def looked_at(source: str) -> list[dict[str, Any]]:
        looked.append(source)
        return []

    keep = tmp_path / "new" / "kept"
    for version in ("1", code):
        monkeypatch.setattr(needed, "_code", lambda version=version: version)
        measured = needed.Measured(keep)
        looked.clear()
        for source in needed.sources_of(tmp_path):
            if source not in measured:
                measured.add(source, looked_at(source))
    return looked


def test_what_was_measured_is_not_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kept_twice(tmp_path, monkeypatch, code="1") == []


def test_what_other_code_measured_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(kept_twice(tmp_path, monkeypatch, code="2")) == 2


def test_no_file_is_begun_when_the_time_is_up(log: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert needed.main(["--data", str(log), "--minutes", "0"]) == 0
    assert "1 of 1 files are not measured yet" in capsys.readouterr().out


def test_a_file_that_cannot_be_read_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "broken.jsonl"
    path.write_text("no log\n", "utf-8")
    assert needed.looked_at(str(path)) == []
    assert "broken.jsonl" in capsys.readouterr().err
