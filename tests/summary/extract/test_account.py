"""A summary is an account of the work: what was found and done, without what was only announced, and nothing twice."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from leporello.messages import tool_calls_of
from leporello.redact import ABOUT, PRINTED, redact_messages
from leporello.summary.artifacts import call_lines, files, sayings, values
from leporello.summary.artifacts.call_lines import marks_of
from leporello.summary.artifacts.reading import read_turns
from leporello.summary.extract import (
    context,
    extract_summary,
    progress,
    salient_names,
    story,
    summary as summary_module,
    wording,
)
from leporello.summary.extract.salient_names import Names
from leporello.summary.template import Sections, parse
from leporello.testing.secrets import leaks, pieces

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

    def test_files_stand_with_the_request_that_they_were_changed_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        first = [user(ASKED), *used("", "write_file", {"path": "src/reader.py", "text": "x"}, "ok"), assistant(FOUND)]
        edit = used("", "edit_file", {"path": "src/export.py", "new": "y"}, "ok", 2)
        lost = used("", "edit_file", {"path": "src/lost.py", "new": "y"}, "Error: no such file", 3)
        second = [user("Now the export, please."), *edit, *lost, *edit, assistant("The export writes UTF-8 now.")]
        done = (
            "changed reader.py",
            f"“{ASKED}” → {FOUND}",
            "changed export.py 2×",
            "“Now the export, please.” → The export writes UTF-8 now.",
        )
        assert told([*first, *second]).done == done
        monkeypatch.setattr(progress, "CHANGES", frozenset())  # defect: no change counts
        assert told([*first, *second]).done == (done[1], done[3])

    def test_what_came_back_for_a_task_that_was_handed_over(self, monkeypatch: pytest.MonkeyPatch) -> None:
        arguments = {"description": "Find the reader", "prompt": "Look for what decodes manifests. " * 20}
        report = "The reader decodes with UTF-8 in decode_row(). Nothing else reads manifests."
        messages = [user(ASKED), *used("", "Task", arguments, report)]
        assert told(messages).done == (f"`Task(Find the reader)` → {report}",)
        begun = [user(ASKED), *used("", "Task", arguments, "Async agent launched successfully. agentId: ae1b1c5")]
        assert told(begun).done == ("`Task(Find the reader)`: Async agent launched successfully. agentId: ae1b1c5",)
        failed = [user(ASKED), *used("", "Task", arguments, "Error: no agent answered")]
        assert told(failed).blocked == ("`Task(Find the reader)`: failed: Error: no agent answered",)
        monkeypatch.setattr(story, "is_delegated", lambda _: False)  # defect
        assert told(messages).done == ("`Task(Find the reader)`: ok",)

    def test_the_open_request_of_an_earlier_summary_stands_before_its_answer(self) -> None:
        earlier = extract_summary(redact_messages([user(ASKED), *LOOK]), budget_tokens=2_000)
        after = [*READ, assistant(FOUND)]
        assert told(after, previous=earlier).done[-1] == f"“{ASKED}” → {FOUND}"
        answered = extract_summary(
            redact_messages([user(ASKED), *LOOK, assistant("It is fixed.")]), budget_tokens=2_000
        )
        assert told(after, previous=answered).done[-1] == f"the assistant said: {FOUND}"

    def test_a_request_that_was_answered_gets_no_answers_to_others(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The request of the third stretch stays in the window, so only what was done for it is summed up."""

        def last_done() -> str:
            summary = ""
            for messages in ([user(ASKED), *LOOK], [*READ, assistant("It is fixed.")], [assistant(FOUND)]):
                summary = extract_summary(redact_messages(messages), budget_tokens=2_000, previous=summary)
            return parse(summary).done[-1]

        assert last_done() == f"the assistant said: {FOUND}"
        monkeypatch.setattr(summary_module, "answered", lambda _: None)  # defect: it stays open
        assert last_done() == f"“{ASKED}” → {FOUND}"

    def test_an_output_whose_call_is_elsewhere_says_which_call_it_was(self) -> None:
        call, result = used(
            "", "shell", {"command": "cd /src && gh pr diff 2 2>&1", "timeout": 60_000}, "+ a line\n" * 90
        )
        marks = marks_of(tool_calls_of(call)[0])
        assert told([{**result, **marks}]).done == ("read what came of `gh pr diff 2`",)
        assert told([result]).done == ()

    def test_no_half_of_a_secret_stands_in_the_line_of_a_call(self, monkeypatch: pytest.MonkeyPatch) -> None:
        secret = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" * 2
        for filler in range(100, 160, 5):
            call, _ = used("", "shell", {"command": f"echo {'x' * filler} {secret}"}, "ok")
            assert not set(leaks(pieces([secret]), str(marks_of(tool_calls_of(call)[0]))))
        monkeypatch.setattr(call_lines, "redact_value", lambda value: value)  # defect
        call, _ = used("", "shell", {"command": f"echo {'x' * 120} {secret}"}, "ok")
        assert set(leaks(pieces([secret]), str(marks_of(tool_calls_of(call)[0]))))

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
            "Great catch! Let me add tests for both readers.",
            "让我看看这个文件。",
        ],
    )
    def test_several_announcements_are_no_answer(self, said: str) -> None:
        assert wording.announces(said)
        assert not wording.announces(f"The reader assumes UTF-8. {said}")

    def test_an_exclamation_alone_announces_nothing(self) -> None:
        assert not wording.announces("Great catch!")

    def test_a_long_text_is_read_in_linear_time(self) -> None:
        assert not wording.announces("let me: " * 20_000 + "\nx")

    def test_what_only_leads_to_an_answer_is_left_out_of_it(self, monkeypatch: pytest.MonkeyPatch) -> None:
        said = "Let me explain it step by step. The reader guesses the encoding of every line."
        assert wording.gist(said, 80) == "The reader guesses the encoding of every line."
        assert wording.gist("Let me explain it.", 80) == "Let me explain it."
        decided = "I'll use a factory instead of a literal."
        assert wording.gist(f"{decided} Next, I'll fix the test.", 80) == decided
        monkeypatch.setattr(wording, "_LET_ME", NOTHING)  # defect
        assert wording.gist(said, 80).startswith("Let me explain")


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

    def test_what_remains_in_an_explanation_is_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        said = "The remaining readers are asked in their order. Remaining work: the export."
        messages = [user(ASKED), assistant(said)]
        assert told(messages).next_steps == ("the assistant planned: Remaining work: the export.",)
        monkeypatch.setattr(progress, "_PLAN", re.compile(r"remaining", re.IGNORECASE))  # defect
        assert "the assistant planned: The remaining readers are asked in their order." in told(messages).next_steps

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

    def test_which_line_to_look_at_is_none(self, monkeypatch: pytest.MonkeyPatch) -> None:
        messages = [user("The reader at line 219 and column 40 has a limit of 4711 rows.")]
        assert "limit of 4711 rows" in str(told(messages).critical)
        assert "219" not in str(told(messages).critical)
        monkeypatch.setattr(values, "_PLACES", frozenset())  # defect
        assert "line 219" in str(told(messages).critical)

    def test_an_exit_code_says_nothing_beside_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        ran = [
            *used("", "shell", {"command": "make check"}, "Exit code 1"),
            *used("", "shell", {"command": "make all"}, "Exit code 2\nfatal: no rule for tide.c", 2),
        ]
        assert told([user(ASKED), *ran]).critical == ("fatal: no rule for tide.c",)
        assert told([user(ASKED), *ran[:2]]).critical == ("error: Exit code 1",)
        monkeypatch.setattr(context, "telling_errors", set)  # defect
        assert "error: Exit code 1" in told([user(ASKED), *ran]).critical

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
        marks = marks_of(tool_calls_of(called)[0])
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

    def test_are_no_halves_and_have_no_written_line_break_before_them(self, monkeypatch: pytest.MonkeyPatch) -> None:
        quoted = r'fmt.Println("done\nEntireSession\tbaseHead") in C:\table_of\new_names'
        assert salient_names.names_in(quoted.partition(" in ")[0]) == {"fmt.Println", "EntireSession", "baseHead"}
        assert {"table_of", "new_names"} <= salient_names.names_in(quoted.partition(" in ")[2])
        monkeypatch.setattr(salient_names, "_LONGEST_LISTING", 100)
        messages = [user("Look."), *used("", "list_all", {}, "someName " * 10 + "TestCheckpoint")]
        assert "TestC" not in str(told(messages))
        monkeypatch.setattr(salient_names, "_shortened", lambda text, length: text[:length])  # defect
        assert "TestCheckp" in str(told(messages))

    def test_beside_a_path_words_come_before_other_paths(self) -> None:
        listed = "src/a_test.go\nsrc/b_test.go\nsrc/c_test.go src/d_test.go src/e_test.go src/f_test.go"
        names = Names(
            list(read_turns(redact_messages([user(f"{listed}\nsrc/a_test.go tests the berths, src/b_test.go not")])))
        )
        assert not any("/" in word for word in names.beside("src/a_test.go"))
        assert sum("/" in word for word in names.beside("src/d_test.go")) == 1

    def test_what_a_tool_says_about_a_file_that_it_changed_tells_nothing_of_it(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        said = "The file /w/src/reader.py has been updated successfully."
        messages = [user("Go on."), *used("", "edit_file", {"path": "/w/src/reader.py", "new": "x"}, said)]
        assert told(messages).files == ("/w/src/reader.py — written",)
        monkeypatch.setattr(salient_names, "_without_acknowledgement", lambda text, _: text)  # defect
        assert told(messages).files == ("/w/src/reader.py — about updated successfully, written",)


class TestFiles:
    def test_a_part_of_an_output_says_which_file_was_read(self) -> None:
        part = {"role": "tool", "tool_call_id": "c9", "content": "plain words\n" * 90, ABOUT: "src/reader.py"}
        assert told([part]).done == ("read a part of reader.py",)

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


def test_no_half_of_bold_type_or_code_is_left_of_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = "- [ ] **Never** touch `migrations/`.\n* `pending` must not be skipped.\n> **Always use tabs. Then** go on."
    rules = ("**Never** touch `migrations/`.", "`pending` must not be skipped.", "Always use tabs.")
    assert told([user(asked)]).constraints == rules
    monkeypatch.setattr(sayings, "_PAIRED", ())  # defect
    assert told([user(asked)]).constraints[2] == "**Always use tabs."


@pytest.mark.parametrize(
    "kind", ["1F3FB", "RFC3339", "SHA-256", "L584-L601", "39b1652906f56f759ab7c42f774d7a34f487bd16"]
)
def test_what_only_stood_in_an_output_without_a_name_is_no_value(kind: str) -> None:
    messages = [user("Look."), *used("", "shell", {"command": "x"}, f"printed {kind} there")]
    assert not any(line.startswith(("ids:", "hashes:")) for line in told(messages).critical)
    assert kind in str(told([user(f"It is {kind}, as the log says.")]).critical)
