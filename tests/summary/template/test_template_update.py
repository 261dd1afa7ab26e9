"""An update is no concatenation, and a summary fits its budget by losing what matters least."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings, strategies as st

from leporello.summary.template import NAMES, Sections, budget, cut, merge, render, split_file_line, trim
from leporello.tokens import count_text

if TYPE_CHECKING:
    from collections.abc import Callable

OLD = Sections(
    goal=("Build an importer",),
    constraints=("Never use pandas",),
    done=("wrote reader.py",),
    in_progress=("writing parser.py",),
    blocked=("tests of parser.py fail",),
    decisions=("csv instead of pandas",),
    files=("reader.py — the CSV reader, written 2×", "old.py — read"),
    next_steps=("write parser.py",),
    critical=("port: 8080", "error: KeyError: 'id' (2×)"),
)


def test_work_in_progress_that_is_done_moves() -> None:
    new = merge(OLD, Sections(done=("finished writing parser.py",), in_progress=("writing the docs",)))
    assert new.in_progress == ("writing the docs",)
    assert new.done == ("wrote reader.py", "finished writing parser.py")


def test_work_in_progress_makes_way_for_newer_work() -> None:
    assert "writing parser.py" in merge(OLD, Sections(in_progress=("deploying",))).done


def test_work_in_progress_stays_while_nothing_newer_is_known() -> None:
    assert merge(OLD, Sections(decisions=("x",))).in_progress == OLD.in_progress


def test_newer_steps_replace_older_ones() -> None:
    assert merge(OLD, Sections(next_steps=("deploy",))).next_steps == ("deploy",)
    assert merge(OLD, Sections()).next_steps == OLD.next_steps


def test_what_is_no_longer_blocked_goes() -> None:
    assert merge(OLD, Sections(done=("the tests of parser.py no longer fail",))).blocked == ()


def test_files_keep_their_description_and_add_up_what_happened() -> None:
    merged = merge(OLD, Sections(files=("reader.py — written, read",)))
    assert merged.files == ("old.py — read", "reader.py — the CSV reader, written 3×, read")


def test_counts_of_repeated_errors_add_up() -> None:
    assert "error: KeyError: 'id' (5×)" in merge(OLD, Sections(critical=("error: KeyError: 'id' (3×)",))).critical


def test_a_line_that_comes_up_again_is_recent() -> None:
    assert merge(OLD, Sections(critical=("port: 8080",))).critical[-1] == "port: 8080"


WORDS = st.lists(
    st.sampled_from(["alpha", "beta.py", "must", "error", "42", "数据", "x/y.py"]), min_size=1, max_size=12
).map(" ".join)
SECTIONS = st.builds(Sections, **{name: st.lists(WORDS, max_size=25, unique=True).map(tuple) for name in NAMES})


def assert_fits(shorten: Callable[[Sections, int], Sections], sections: Sections, budget: int) -> None:
    """Reject a way of shortening that exceeds the budget or drops lines without saying so."""
    result = shorten(sections, budget)
    assert count_text(render(result)) <= budget
    before = sum(len(getattr(sections, name)) for name in NAMES)
    after = sum(len(getattr(result, name)) for name in NAMES)
    if result != Sections() and after < before:
        assert "left out)" in result.critical[-1]


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(SECTIONS, st.integers(40, 2_000))
def test_a_shortened_summary_fits_and_says_what_is_missing(sections: Sections, budget: int) -> None:
    assert_fits(trim, sections, budget)


MANY = Sections(
    goal=("first goal", "latest goal"),
    constraints=("never do it",),
    done=tuple(f"did step number {i} of the long work" for i in range(200)),
    files=tuple(f"src/module_{i}.py — written" for i in range(20)),
    critical=tuple(f"value_{i}: {i * 7919}" for i in range(20)),
)


def silently(sections: Sections, budget: int) -> Sections:
    """Shorten without saying so: the defect that the check must catch."""
    kept = trim(sections, budget)
    return Sections(**{name: tuple(line for line in getattr(kept, name) if "left out" not in line) for name in NAMES})


def not_at_all(sections: Sections, budget: int) -> Sections:
    """Ignore the budget: another defect."""
    del budget
    return sections


@pytest.mark.parametrize("defect", [silently, not_at_all])
def test_the_check_rejects_a_way_of_shortening_that_is_broken(defect: Callable[[Sections, int], Sections]) -> None:
    with pytest.raises(AssertionError):
        assert_fits(defect, MANY, 600)


def test_what_is_exact_outlives_what_was_done() -> None:
    kept = trim(MANY, 700)
    assert kept.goal[-1] == "latest goal"
    assert kept.constraints == MANY.constraints
    assert kept.files == MANY.files
    assert kept.critical[:-1] == MANY.critical
    assert kept.done
    assert kept.done[-1] == MANY.done[-1]
    assert "did step number 0 of the long work" not in kept.done


ACCOUNT = Sections(
    goal=("First request of these turns: mend the reader", "Latest instruction: mend the export"),
    done=tuple(
        line
        for task in range(6)
        for line in (
            f"“Please mend part {task}” → I look for what reads part {task}.",
            *(f"changed module_{task}_{n}.py" for n in range(4)),
            f"“Please mend part {task}” → The reader of part {task} guessed the encoding.",
        )
    ),
    decisions=("keep the reader, because it streams",),
    files=tuple(f"src/module_{i}.py — {', '.join(f'read_row_{i}_{n}' for n in range(12))}" for i in range(20)),
)


def test_how_each_request_ended_outlives_names_in_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def answers() -> list[str]:
        return [line for line in trim(ACCOUNT, 1_000).done if "→" in line]

    last_words = [line for line in ACCOUNT.done if "→" in line and "I look" not in line]
    assert answers() == last_words[-len(answers()) :]
    assert len(answers()) >= len(last_words) / 2
    monkeypatch.setattr(budget, "answered", lambda _: None)  # defect: an answer counts as any other line
    assert answers() != last_words[-len(answers()) :] or len(answers()) < 2


def test_lines_about_the_focus_stay_longest() -> None:
    kept = trim(MANY, 120, focus=["number 3 of"])
    assert "did step number 3 of the long work" in kept.done


def test_lines_left_out_add_up_over_updates() -> None:
    once = trim(MANY, 700)
    twice = trim(merge(once, MANY), 600)
    count = int(twice.critical[-1].split()[0].lstrip("("))
    assert count > int(once.critical[-1].split()[0].lstrip("("))
    assert sum("left out)" in line for line in twice.critical) == 1


def test_a_line_that_fills_the_budget_alone_is_cut_visibly_and_keeps_both_ends() -> None:
    long = Sections(goal=("BEGIN " + "word " * 5_000 + "END",), critical=("port: 8080",))
    kept = trim(long, 300)
    assert kept.goal[0].startswith("BEGIN")
    assert kept.goal[0].endswith("END")
    assert "characters left out" in kept.goal[0]
    assert "port: 8080" in kept.critical


@given(st.text(max_size=500), st.integers(0, 200))
def test_a_cut_text_is_never_longer(text: str, tokens: int) -> None:
    assert len(cut(text, tokens)) <= len(text) + 45


def test_a_long_line_of_a_file_loses_whole_names_and_the_least_salient_ones_first() -> None:
    names = [f"load_table_{number}" for number in range(200)]
    sections = Sections(goal=("mend the tide table",), files=(f"src/tide.py — {', '.join(names)}, written 3×",))
    (line,) = trim(sections, 300).files
    path, note = split_file_line(line)
    *kept, happened = note.split(", ")
    assert (path, happened) == ("src/tide.py", "written 3×")
    assert 5 < len(kept) < 200
    assert kept == names[: len(kept)]  # planted: cut() leaves halves of names around a mark


def test_a_summary_that_is_updated_keeps_the_names_of_a_file_from_before() -> None:
    before = [f"old_name_{number}" for number in range(15)]
    after = [f"new_name_{number}" for number in range(15)]
    old = Sections(files=(f"src/tide.py — {', '.join(before)}, read",))
    (line,) = merge(old, Sections(files=(f"src/tide.py — {', '.join(after)}, written",))).files
    assert split_file_line(line)[1] == ", ".join([*after, *before, "written", "read"])
