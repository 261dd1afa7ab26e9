"""The names that a summary keeps: those that were used, under their files or beside their words."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from leporello.redact import ABOUT, redact_messages
from leporello.summary.artifacts.files import is_path
from leporello.summary.artifacts.reading import read_turns
from leporello.summary.extract import salient_names
from leporello.summary.extract.salient_names import MOST_PER_FILE, Names
from leporello.summary.extract.summary import extract_summary
from leporello.summary.template import parse

if TYPE_CHECKING:
    from collections.abc import Callable

Message = dict[str, Any]
MANY = 10_000


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def used(tool: str, arguments: dict[str, Any], output: str, call_id: str = "c1") -> list[Message]:
    function = {"name": tool, "arguments": json.dumps(arguments)}
    call = {"id": call_id, "type": "function", "function": function}
    return [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": call_id, "content": output},
    ]


def found(messages: list[Message]) -> Names:
    return Names(list(read_turns(redact_messages(messages))))


def others(messages: list[Message]) -> list[str]:
    return found(messages).under([], MANY)[1]


def told(messages: list[Message], budget: int = 2_000) -> str:
    return extract_summary(redact_messages(messages), budget_tokens=budget)


READ = "\n".join(f"def helper_{n:02}(row): return row_{n:02}" for n in range(60))
EDIT = {"file_path": "/srv/app/billing.py", "old_string": "total = sum_rows(rows)", "new_string": "total = addUp(rows)"}


class TestSalience:
    def test_what_was_said_comes_before_what_was_only_read(self) -> None:
        ranked = others([*used("shell", {"command": "cat x"}, READ), assistant("Then close_month failed.")])
        assert ranked[0] == "close_month"
        assert {"helper_00", "row_00"} <= set(ranked)

    def test_what_is_read_often_does_not_count_like_what_is_said(self, monkeypatch: pytest.MonkeyPatch) -> None:
        messages = [user("fix close_month"), *used("shell", {"command": "x"}, "open_month\n" * 300)]
        assert others(messages)[0] == "close_month"
        monkeypatch.setattr(salient_names, "_READ", 1.0)  # defect: an output counts like a person
        assert others(messages)[0] == "open_month"

    def test_what_was_said_last_comes_first(self) -> None:
        said = [assistant(f"look at step_{n:02}") for n in range(10)]
        assert others(said) == [f"step_{n:02}" for n in reversed(range(10))]

    def test_what_was_said_often_comes_first(self) -> None:
        said = [assistant("close_month"), user("close_month"), user("close_month"), assistant("open_month")]
        assert others(said)[0] == "close_month"


class TestWhatIsAName:
    @pytest.mark.parametrize(
        "name",
        [
            "close_month",
            "closeMonth",
            "HTTPServer",
            "LEDGER_LIMIT",
            "json.loads",
            "INV-20931",
            "v2.14.1",
            "4711",
            "a3b2c4d5",
            "ops@example.org",
            "cmd/shop/ledger_test",
        ],
    )
    def test_names(self, name: str) -> None:
        assert others([user(f"look at `{name}`, please.")]) == [name]

    @pytest.mark.parametrize(
        "word",
        ["month", "Month", "2.308s", "0x14000cf60", "12px", "3rd", "8-minute", "2026-02-07T11", "don't", "well-known"],
    )
    def test_words(self, word: str) -> None:
        assert others([user(f"look at {word}, please.")]) == []

    def test_a_line_beside_a_hit_of_grep_is_its_file(self, monkeypatch: pytest.MonkeyPatch) -> None:
        hit = "src/app/billing.go-12-\ttotal := sumRows(rows)"
        assert salient_names.names_in(hit) == {"src/app/billing.go", "sumRows"}
        monkeypatch.setattr(salient_names, "GREP_LINE", re.compile("($^)"))  # defect: it takes the number along
        assert "src/app/billing.go" not in salient_names.names_in(hit)

    def test_a_picture_on_a_page_is_none(self) -> None:
        assert salient_names.names_in("![badge](https://example.org/assets/badge-dark.svg)") == set()
        assert salient_names.names_in("see https://example.org/assets/page") == {"https://example.org/assets/page"}

    def test_the_keys_of_arguments_and_the_tool_are_none(self) -> None:
        names, loose = found(used("edit_file", EDIT, "ok")).under(["/srv/app/billing.py"], MANY)
        assert names == {"/srv/app/billing.py": ["addUp", "sum_rows"]}
        assert loose == []


class TestFiles:
    def test_a_name_stands_under_the_file_that_it_was_used_with(self) -> None:
        text = told([user("add it up"), *used("edit_file", EDIT, "ok")])
        assert "- /srv/app/billing.py — addUp, sum_rows, written" in text.splitlines()

    def test_the_same_file_by_a_shorter_name(self) -> None:
        messages = [*used("edit_file", EDIT, "ok"), assistant("In app/billing.py, addUp calls close_month.")]
        names, _ = found(messages).under(["/srv/app/billing.py"], MANY)
        assert names["/srv/app/billing.py"] == ["addUp", "close_month", "sum_rows"]

    def test_a_patch_names_the_file_of_its_lines(self) -> None:
        patch = "+++ b/app/billing.py\n+total = addUp(rows)\n+++ b/app/ledger.py\n+closeMonth(total)"
        names, _ = found(used("shell", {"command": "git diff"}, patch)).under(["app/billing.py", "app/ledger.py"], MANY)
        assert names == {"app/billing.py": ["addUp"], "app/ledger.py": ["closeMonth"]}

    def test_the_names_of_a_file_are_limited(self) -> None:
        names, loose = found(used("read_file", {"path": "a.py"}, READ)).under(["a.py"], MANY)
        assert len(names["a.py"]) == MOST_PER_FILE
        assert loose == []

    def test_a_path_out_of_a_listing_is_left_out(self) -> None:
        listing = "\n".join(f"src/part_{n}.py" for n in range(40))
        text = told([user("what is there? see src/part_7.py"), *used("glob", {"pattern": "**"}, listing)])
        assert parse(text).files == ("src/part_7.py",)


class TestWords:
    def test_stand_beside_a_name_without_a_file(self) -> None:
        text = told([user("The ledger rounds badly: half_even is wrong.")])
        assert "- half_even (badly, wrong, rounds)" in text.splitlines()

    def test_stand_beside_it_nearest_first(self, monkeypatch: pytest.MonkeyPatch) -> None:
        names = found([user("Although it was a dry day, berth B-17 was assigned twice yesterday.")])
        assert names.beside("B-17") == ["berth", "assigned", "twice"]
        monkeypatch.setattr(Names, "_distances", lambda *_: {})  # defect: by the alphabet
        assert names.beside("B-17") == ["although", "assigned", "berth"]

    def test_the_name_of_the_tool_is_the_last_choice(self) -> None:
        names = found(used("deploy_site", {"target": "edge_node"}, "ok"))
        assert names.beside("edge_node") == ["deploy", "site"]
        names = found(used("deploy_site", {"target": "edge_node of Lisbon, behind glass"}, "ok"))
        assert names.beside("edge_node") == ["lisbon", "behind", "glass"]

    def test_are_other_names_where_there_are_no_words(self) -> None:
        assert found([user("is_ancestor(main_commit)")]).beside("is_ancestor") == ["main_commit"]

    def test_what_has_no_words_is_left_out(self) -> None:
        assert "half_even" not in str(parse(told([user("Go on."), assistant("half_even")])).critical)

    def test_nothing_is_told_twice(self) -> None:
        text = told([user("Ship order-7f3a-2291 with error handling on port 8443.")])
        critical = "\n".join(parse(text).critical)
        assert critical.count("order-7f3a-2291") == 1
        assert critical.count("8443") == 1


def test_a_file_that_was_worked_on_stays_beside_another_of_that_name() -> None:
    work = [*used("write_file", {"path": "README.md", "content": "x"}, "ok", "c1")]
    work += used("read_file", {"path": "docs/README.md"}, "y", "c2")
    assert [line.split(" ")[0] for line in parse(told([user("Go on."), *work])).files] == [
        "docs/README.md",
        "README.md",
    ]


def test_names_of_a_very_long_line_have_their_words() -> None:
    line = (
        "The retry loop calls load_config first. "
        + "And so on it goes for a while. " * 90
        + "RetryPolicy waits longer."
    )
    assert len(line) > 2_500
    assert set(others([user(line)])) == {"load_config", "RetryPolicy"}


@pytest.mark.parametrize(
    "pasted", ["0123456789abcdef" * 2_500, "\n".join(f"{n:064x}"[::-1] for n in range(1, 601))], ids=["blob", "sums"]
)
def test_pasted_data_pushes_no_name_out(pasted: str) -> None:
    names = others([user("Raise max_retries in load_config."), user(pasted)])
    assert set(names[:2]) == {"max_retries", "load_config"}


def test_a_name_for_which_there_is_no_room_in_its_file_takes_no_place() -> None:
    code = "\n".join(f"value_{n} = compute_{n}()" for n in range(200))
    messages = [*used("write_file", {"path": "a.py", "content": code}, "ok"), user("Mind the important_setting there.")]
    assert "important_setting" in told(messages, budget=2_000)


def test_a_program_is_nobody_who_says_something() -> None:
    notice = "This session is being continued from a previous conversation: ghost_function ran."
    assert others([user(notice), user("Look at load_config.")])[0] == "load_config"


def test_a_patch_ends_where_prose_begins() -> None:
    patch = "+++ b/src/a.py\n+def foo_one():\n\nApart from that, deploy_cluster failed badly."
    names, loose = found([user(patch)]).under(["src/a.py"], MANY)
    assert (names, loose) == ({"src/a.py": ["foo_one"]}, ["deploy_cluster"])


@pytest.mark.parametrize(
    "line", [" ".join(f"a/{n}.py" for n in range(7_000)), " ".join(f"id_{n}" for n in range(9_000))]
)
def test_a_line_of_many_names_takes_no_long(line: str) -> None:
    names = found([user(line[:40_000])])
    assert sum(map(len, names._files.values())) <= 8_000
    assert sum(map(len, names._beside.values())) <= 8_000


@pytest.mark.slow
def test_the_order_of_sets_does_not_matter() -> None:
    program = (
        "from leporello.redact import redact_messages; from leporello.summary.extract import extract_summary;"
        "print(extract_summary(redact_messages([{'role': 'user', 'content':"
        " 'zz_load zz_load_extra zz_load_extra_more zz_load_extra_more_stuff plain words here'}]), budget_tokens=500))"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", program], env={"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2", "3", "4")
    }
    assert len(runs) == 1


class TestUpdates:
    def test_the_newest_names_of_a_file_stay(self) -> None:
        many = " ".join(f"old_function_name_{n}()" for n in range(20))
        first = told([user("Go on."), *used("edit_file", {"path": "src/a.py", "new_string": many}, "ok")])
        edit = used("edit_file", {"path": "src/a.py", "new_string": "brand_new_helper()"}, "ok", "c2")
        again = extract_summary(redact_messages([user("And now?"), *edit]), budget_tokens=2_000, previous=first)
        assert "brand_new_helper" in parse(again).files[0]

    def test_a_name_has_one_line(self) -> None:
        text = ""
        for number in range(8):
            said = [
                user(f"Raise max_retries because of reason{chr(97 + number)}long and other{chr(97 + number)}thing.")
            ]
            text = extract_summary(redact_messages(said), budget_tokens=2_000, previous=text)
        lines = [line for line in parse(text).critical if line.startswith("max_retries")]
        assert len(lines) == 1
        assert lines[0].count(",") == 2


def test_a_small_budget_keeps_files_rather_than_names() -> None:
    messages = [m for n in range(12) for m in used("read_file", {"path": f"src/part_{n}.py"}, READ, f"c{n}")]
    text = told([user("Read them all."), *messages], budget=200)
    assert sum(f"src/part_{n}.py" in text for n in range(12)) >= 10


def shuffled(self: Names, name: str) -> list[str]:
    """Defect: words that stood beside other names."""
    return sorted({word for other in self._beside if other != name for word in self._beside[other]})[:3]


def test_the_check_of_words_rejects_others(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = [
        user("The ledger rounds badly: half_even is wrong."),
        assistant("Parking tickets need tax_free amounts."),
    ]

    def check(told: Callable[[list[Message]], str]) -> None:
        assert "- half_even (badly, wrong, rounds)" in told(messages).splitlines()

    check(told)
    monkeypatch.setattr(Names, "beside", shuffled)
    with pytest.raises(AssertionError):
        check(told)


class TestWhereThereIsNoRoom:
    def test_a_name_whose_file_is_full_stands_with_another_file(self) -> None:
        many = "\n".join(f"def helper_{n:03}(row): pass" for n in range(MOST_PER_FILE + 5))
        messages = [*used("read_file", {"path": "a.py"}, many), *used("read_file", {"path": "b.py"}, many, "c2")]
        names, _ = found(messages).under(["a.py", "b.py"], MANY)
        assert {*names["a.py"], *names["b.py"]} == {f"helper_{n:03}" for n in range(MOST_PER_FILE + 5)}

    def test_what_was_only_read_can_be_left_out(self) -> None:
        messages = [user("See close_month and open_month."), *used("read_file", {"path": "a.py"}, READ)]
        names, loose = found(messages).under(["a.py"], MANY, read=False)
        assert sorted(loose) == ["close_month", "open_month"]
        assert not names.get("a.py")


def test_a_file_that_was_only_named_stands_beside_words() -> None:
    text = told([user("The exporter writes ledger.json badly.")])
    assert parse(text).files == ("ledger.json (badly, writes, exporter)",)


def test_what_happened_to_a_file_replaces_the_words_beside_it() -> None:
    named = told([user("The exporter writes ledger.json badly.")])
    edit = used("write_file", {"path": "ledger.json", "content": "{}"}, "ok")
    again = extract_summary(redact_messages([user("Mend it."), *edit]), budget_tokens=2_000, previous=named)
    assert parse(again).files == ("ledger.json — written",)


def test_what_stands_often_in_an_output_comes_before_what_stands_there_once() -> None:
    text = "a_rare(row)\n" + "often_used(row)\n" * 9
    names, _ = found(used("read_file", {"path": "a.py"}, text)).under(["a.py"], MANY)
    assert names["a.py"] == ["often_used", "a_rare"]


def test_a_result_apart_from_its_call_stands_under_its_file() -> None:
    result = {"role": "tool", "tool_call_id": "c9", "content": READ, ABOUT: "src/billing.py"}
    (line,) = parse(told([result])).files
    assert line.startswith("src/billing.py — helper_")
    assert "read" not in line.split(", ")


def test_a_patch_in_prose_names_its_file_once() -> None:
    text = told([user("Apply this:\ndiff --git a/src/app.py b/src/app.py\n--- a/src/app.py\n+++ b/src/app.py\n+x = 1")])
    assert [line.split()[0] for line in parse(text).files] == ["src/app.py"]


def test_of_what_a_program_printed_a_name_that_stands_there_once_is_left_out() -> None:
    log = "test_one PASSED\ntest_two PASSED\ntest_bad FAILED\nassertion in test_bad"
    names, loose = found(used("terminal", {"command": "pytest tests/test_app.py"}, log)).under(
        ["tests/test_app.py"], MANY
    )
    assert names["tests/test_app.py"] == ["test_bad"]
    assert loose == []


@pytest.mark.parametrize("said", ["(in src/app.py)", "[src/app.py]", "(src/app.py).", "src/app.py"])
def test_a_bracket_behind_a_file_is_no_part_of_it(said: str) -> None:
    assert [line.split()[0] for line in parse(told([user(f"Look here {said} please")])).files] == ["src/app.py"]


def test_a_bracket_inside_a_file_is_a_part_of_it() -> None:
    assert [line.split()[0] for line in parse(told([user("Look at app/(shop)/[id].tsx please")])).files] == [
        "app/(shop)/[id].tsx"
    ]


def test_hashes_that_were_only_read_stand_behind_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    def order() -> list[str]:
        log = "0f3cc3a fix\n0f3cc3a again\n0f3cc3a more\nrelease_slot(row)\n"
        names, _ = found(used("read_file", {"path": "a.py"}, log)).under(["a.py"], MANY)
        return names["a.py"]

    assert order() == ["release_slot", "0f3cc3a"]
    monkeypatch.setattr(Names, "_rank", lambda self, name: (-self._read.get(name, 0.0), name))
    assert order() == ["0f3cc3a", "release_slot"], "the planted defect"


def test_the_words_of_a_longer_name_are_not_those_of_the_name_inside_it() -> None:
    lines = ["tide = paths.MetadataDirOf(ledger, session)"] * 4 + ["crane lifts MetadataDir gently"]
    names = found(used("read_file", {"path": "src/quay.go"}, "\n".join(lines)))
    assert names.in_line_of("src/quay.go", ["MetadataDir"]) == ["MetadataDir (crane gently)"]


def test_the_check_of_longer_names_rejects_a_search_for_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(salient_names, "_place", str.find)
    with pytest.raises(AssertionError):
        test_the_words_of_a_longer_name_are_not_those_of_the_name_inside_it()


def test_a_file_is_read_to_its_end() -> None:
    text = "plain words of a file\n" * 6_000 + "def weigh_berths(rows):"
    assert len(text) > 100_000
    assert "weigh_berths" in found(used("read_file", {"path": "src/quay.py"}, text)).ranked()


def test_planted_a_reader_that_stops_early_misses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(salient_names, "_LONGEST", 40_000)
    with pytest.raises(AssertionError):
        test_a_file_is_read_to_its_end()


@pytest.mark.parametrize(("said", "is_file"), [("s.repo.Log", False), ("repo.Log", False), ("repo.log", True)])
def test_a_method_is_no_file(said: str, is_file: bool) -> None:
    assert is_path(said) is is_file
