"""A summary is an account of the work: what was found and done, without what was only announced, and nothing twice."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from leporello.messages import tool_calls_of
from leporello.redact import ABOUT, PRINTED, redact_messages
from leporello.summary.artifacts import files, values
from leporello.summary.artifacts.reading import read_turns
from leporello.summary.extract import context, extract_summary, progress, salient_names, story, wording
from leporello.summary.extract.salient_names import Names
from leporello.summary.template import Sections, parse

Messages = list[dict[str, Any]]
ASKED = "The nightly import crashes. Find out why and fix it."
FOUND = "The manifests come as Windows-1252; the reader assumes UTF-8."
NOTHING = re.compile(r"((?!))")


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def used(text: str, tool: str, arguments: dict[str, Any], output: str, number: int = 1) -> Messages:
    """Return a call beside a text, and its result."""
    function = {"name": tool, "arguments": json.dumps(arguments)}
    call = {"id": f"c{number}", "type": "function", "function": function}
    return [
        {"role": "assistant", "content": text, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": output},
    ]


def told(messages: Messages, **options: Any) -> Sections:
    return parse(extract_summary(redact_messages(messages), budget_tokens=2_000, **options))


LOOK = used(
    "Let me look at the code first.", "search_files", {"pattern": "decode", "path": "src"}, "src/reader.py:3: x"
)
READ = used("Now let me read src/reader.py.", "read_file", {"path": "src/reader.py", "offset": 120}, "import csv", 2)


class TestWhatWasDone:
    def test_what_was_only_announced_is_no_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        messages = [user(ASKED), *used(FOUND, "read_file", {"path": "src/reader.py"}, "x"), *LOOK]
        assert told(messages).done == (f"“{ASKED}” → {FOUND}",)
        monkeypatch.setattr(story, "announces", lambda _: False)  # defect
        assert told(messages).done == (f"“{ASKED}” → Let me look at the code first.",)

    def test_what_was_looked_at_where_there_is_nothing_else(self) -> None:
        assert told([user(ASKED), *LOOK, *READ]).done == ("read reader.py; searched for `decode`",)
        assert told([user(ASKED), *LOOK, *READ, assistant(FOUND)]).done == (f"“{ASKED}” → {FOUND}",)

    def test_an_answer_to_an_earlier_request(self, monkeypatch: pytest.MonkeyPatch) -> None:
        messages = [*LOOK, assistant(FOUND), user("Thanks. Now the export.")]
        assert told(messages).done == (f"the assistant said: {FOUND}",)
        monkeypatch.setattr(progress, "is_trivial", lambda request: not request)  # defect: only with its request
        assert FOUND not in str(told(messages).done)

    @pytest.mark.parametrize(
        ("said", "gist"),
        [
            ("Great catch! You are right, both files exist.", "You are right, both files exist."),
            ("Perfect approach! The id stays stable.", "The id stays stable."),
            ("Great, the tests pass.", "the tests pass."),
            ("Good catch - you're right.", "you're right."),
            ("Both tests pass now. Next, I'll fix the third one.", "Both tests pass now."),
            ("Good tests need data of their own.", "Good tests need data of their own."),
            ("Two kinds of issues: 1. errors 2. names of files.", "Two kinds of issues: 1. errors 2. names of files."),
        ],
    )
    def test_a_sentence_stays_whole(self, said: str, gist: str) -> None:
        assert wording.gist(said, 80) == gist

    def test_the_check_of_sentences_finds_half_of_one(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(wording, "_FILLER", re.compile(r"^great\s+", re.IGNORECASE))
        assert wording.gist("Great catch! You are right.", 80) == "catch! You are right."

    def test_where_whole_sentences_say_little_the_next_one_is_cut(self, monkeypatch: pytest.MonkeyPatch) -> None:
        said = (
            "Yes, it works. " + "The limit is read twice, once at the start and once more when a port is opened. " * 3
        )
        assert wording.gist(said, 80).startswith("Yes, it works. The limit is read twice")
        monkeypatch.setattr(wording, "_ENOUGH", 0.0)  # defect
        assert wording.gist(said, 80) == "Yes, it works."

    @pytest.mark.parametrize(
        "said",
        [
            "Good. I have enough context now. Let me start.\n\nFirst, let me add `open_port()` to the settings:",
            "Now create the template for reviews:",
            "让我看看这个文件。",
        ],
    )
    def test_several_announcements_are_no_answer(self, said: str) -> None:
        assert wording.announces(said)
        assert not wording.announces(f"The reader assumes UTF-8. {said}")

    def test_a_long_text_is_read_in_linear_time(self) -> None:
        assert not wording.announces("let me: " * 20_000 + "\nx")


class TestNextSteps:
    def test_what_was_done_at_once_is_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        messages = [user(ASKED), *used(f"{FOUND} Let me fix it.", "edit_file", {"path": "a.py"}, "ok")]
        assert "planned" not in str(told(messages).next_steps)
        monkeypatch.setattr(progress, "announces", lambda _: False)  # defect
        assert "the assistant planned: Let me fix it." in told(messages).next_steps

    def test_what_has_no_result_yet_is_one(self) -> None:
        call, _ = used("Let me fix it.", "edit_file", {"path": "a.py"}, "ok")
        assert "the assistant planned: Let me fix it." in told([user(ASKED), call]).next_steps

    def test_what_comes_after_is_one(self) -> None:
        said = "Let me fix the reader. After that we need to import the month again."
        steps = told([user(ASKED), *used(said, "edit_file", {"path": "a.py"}, "ok")]).next_steps
        assert steps[0] == "the assistant planned: After that we need to import the month again."

    def test_the_latest_instruction_is_not_quoted_twice(self) -> None:
        summary = extract_summary(redact_messages([user(ASKED)]), budget_tokens=2_000)
        assert summary.count(ASKED) == 1
        assert parse(summary).next_steps == ("the latest instruction of these turns was not answered yet",)
        begun = told([user(ASKED), *LOOK]).next_steps
        assert begun == ("the latest instruction of these turns was begun, but not answered yet",)


class TestValues:
    def test_stand_once(self, monkeypatch: pytest.MonkeyPatch) -> None:
        id_ = "2026-01-23-0894f314-9e93-46b1-a598-06bada65ed55"
        output = f"session_id: {id_}\nlatest: {id_}\nit is 0894f314-9e93-46b1-a598-06bada65ed55 again"
        messages = [user("Which session?"), *used("", "status", {"verbose": True}, output)]
        assert str(told(messages).critical).count("06bada65ed55") == 1
        monkeypatch.setattr(context, "_told_once", list)  # defect
        assert str(told(messages).critical).count("06bada65ed55") > 1

    def test_a_line_beside_a_hit_of_grep_is_no_id(self) -> None:
        hits = "src/phase_test.go-577-\tassert(x)\nsrc/phase_test.go-578-\tassert(y)"
        assert "577" not in str(told([user("Look."), *used("", "grep", {"pattern": "assert"}, hits)]))

    def test_which_part_of_a_file_was_read_is_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert "120" not in str(told([user("Look."), *READ]))
        monkeypatch.setattr(files, "_LOOKS", frozenset())  # defect
        assert "offset: 120" in told([user("Look."), *READ]).critical

    def test_how_long_a_program_took_is_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        output = "duration_ms: 312338\ntotal_tokens: 73303\nmax_tokens: 4096"
        messages = [user("Plan it."), *used("", "delegate", {"task": "plan"}, output)]
        assert told(messages).critical == ("max_tokens: 4096",)
        monkeypatch.setattr(values, "_OF_THE_RUN", NOTHING)  # defect
        values._name_at_end.cache_clear()
        assert "duration_ms: 312338" in told(messages).critical
        values._name_at_end.cache_clear()

    def test_a_number_that_only_stood_in_an_output_says_nothing(self) -> None:
        assert "9444785" not in str(told([user("Look."), *used("", "shell", {"command": "x"}, "took 9444785 steps")]))
        assert "9444785" in str(told([user("Look at 9444785, please.")]).critical)


class TestNames:
    def test_of_a_list_behind_the_summary_do_not_stand_in_it(self) -> None:
        read = used("", "read_file", {"path": "src/reader.py"}, "def decode_row(row): pass")
        edit = used("", "edit_file", {"path": "src/reader.py", "new": "decode_line(row)"}, "ok", 2)
        messages = [user("half_even is wrong in the ledger."), *read, *edit]
        alone, listed = told(messages), told(messages, names_listed=True)
        assert "half_even" in str(alone.critical)
        assert "decode_row" in str(alone.files)
        assert "half_even" not in str(listed.critical)
        assert listed.files == ("src/reader.py — decode_line, written, read",)

    def test_that_a_program_printed_are_none_when_its_call_is_elsewhere(self) -> None:
        output = "\n".join(f"tests/test_a.py::test_row_{n:02} PASSED" for n in range(30))
        (called, result), asked = used("", "shell", {"command": "pytest -v tests/test_a.py"}, output), user("Test it.")
        assert "test_row" not in str(told([asked, called, result]))
        marks = files.marks_of(tool_calls_of(called)[0])
        assert marks[PRINTED]
        assert "test_row" not in str(told([asked, {**result, **marks}]))
        del marks[PRINTED]  # defect
        assert "test_row" in str(told([asked, {**result, **marks}]))

    def test_more_of_one_kind_is_a_word(self) -> None:
        assert "UUIDs" not in str(told([user("Compare the UUIDs and the HEADs of both branches.")]).critical)

    def test_say_nothing_with_their_own_words(self) -> None:
        names = Names(list(read_turns(redact_messages([user("Run ~/tasks/lint/gofmt, lint and gofmt again.")]))))
        assert names.beside("~/tasks/lint/gofmt") == []

    def test_of_a_patch_are_those_of_the_file(self, monkeypatch: pytest.MonkeyPatch) -> None:
        patch = (
            "diff --git a/src/app/bill.py b/src/app/bill.py\nindex 7012e98b..8f6e8f5e 100644\n--- a/src/app/bill.py\n"
        )
        patch += "+++ b/src/app/bill.py\n@@ -1 +1 @@\n-total = sum_rows(rows)\n+total = add_rows(rows)"
        messages = [user("What changed?"), *used("", "shell", {"command": "git diff"}, patch)]
        names = Names(list(read_turns(redact_messages(messages))))
        assert set(names.ranked()) == {"src/app/bill.py", "sum_rows", "add_rows"}
        assert names.home("add_rows") == "src/app/bill.py"
        monkeypatch.setattr(salient_names, "_PATCH_HEADER", NOTHING)  # defect
        names = Names(list(read_turns(redact_messages(messages))))
        assert {"a/src/app/bill.py", "7012e98b..8f6e8f5e"} <= set(names.ranked())


class TestFiles:
    def test_a_part_of_an_output_says_which_file_was_read(self) -> None:
        part = {"role": "tool", "tool_call_id": "c9", "content": "plain words\n" * 90, ABOUT: "src/reader.py"}
        assert told([part]).done == ("read a part of src/reader.py",)

    def test_stand_once_however_they_were_named(self) -> None:
        files_ = told([user("Look at src/app/reader.py, I mean reader.py and app/reader.py.")]).files
        assert [line.split(" ")[0] for line in files_] == ["src/app/reader.py"]

    def test_a_line_beside_a_hit_of_grep_is_in_its_file(self, monkeypatch: pytest.MonkeyPatch) -> None:
        hits = "src/phase_test.go-577-// loads the phase\nsrc/phase_test.go-578-func TestPhase(t)"
        messages = [user("Look."), *used("", "grep", {"pattern": "phase"}, hits)]
        assert [line.split(" ")[0] for line in told(messages).files] == ["src/phase_test.go"]
        found = salient_names.names_in("src/phase_test.go-578-func")
        monkeypatch.setattr(salient_names, "GREP_LINE", NOTHING)  # defect
        assert found == {"src/phase_test.go"} != salient_names.names_in("src/phase_test.go-578-func")


@pytest.mark.parametrize(
    "kind", ["1F3FB", "RFC3339", "SHA-256", "L584-L601", "39b1652906f56f759ab7c42f774d7a34f487bd16"]
)
def test_what_only_stood_in_an_output_without_a_name_is_no_value(kind: str) -> None:
    messages = [user("Look."), *used("", "shell", {"command": "x"}, f"printed {kind} there")]
    assert not any(line.startswith(("ids:", "hashes:")) for line in told(messages).critical)
    assert kind in str(told([user(f"It is {kind}, as the log says.")]).critical)
