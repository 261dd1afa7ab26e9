"""The template can be written and read back, and a model's answer in any dress is brought into it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st
from inline_snapshot import snapshot

from leporello.summary.template import HEADINGS, NAMES, Sections, parse, render, shape

FULL = Sections(
    goal=("Set up a FastAPI project",),
    constraints=("Never touch the public API",),
    done=("wrote main.py", "`pytest`: 8 passed, 2 failed"),
    in_progress=("fixing test_create_user",),
    blocked=("no network",),
    decisions=("SQLite instead of PostgreSQL, because there is one writer",),
    files=("main.py — written 3×",),
    next_steps=("add error handling",),
    critical=("port: 8080", "error: KeyError: 'name'"),
)

LINES = st.lists(
    st.from_regex(r"[A-Za-z0-9_#/.][A-Za-z0-9_ #:/.—]{0,30}[A-Za-z0-9]", fullmatch=True),
    max_size=4,
    unique_by=str.casefold,
)


def test_the_headings_are_the_ones_of_the_template() -> None:
    assert render(FULL) == snapshot(
        """\
## Goal
- Set up a FastAPI project

## Constraints & Preferences
- Never touch the public API

## Progress
### Done
- wrote main.py
- `pytest`: 8 passed, 2 failed

### In Progress
- fixing test_create_user

### Blocked
- no network

## Key Decisions
- SQLite instead of PostgreSQL, because there is one writer

## Relevant Files
- main.py — written 3×

## Next Steps
- add error handling

## Critical Context
- port: 8080
- error: KeyError: 'name'\
"""
    )


def test_empty_sections_are_left_out_and_progress_is_written_once() -> None:
    text = render(Sections(in_progress=("a",), blocked=("b",)))
    assert text == "## Progress\n### In Progress\n- a\n\n### Blocked\n- b"
    assert render(Sections()) == ""


@pytest.mark.slow
@given(
    st.fixed_dictionaries(
        {name: LINES.map(lambda lines: tuple(" ".join(line.split()) for line in lines)) for name in NAMES}
    )
)
def test_what_was_written_is_read_back(lines: dict[str, tuple[str, ...]]) -> None:
    sections = Sections(**lines)
    again = parse(render(sections))
    assert parse(render(again)) == again
    for name in NAMES:
        kept = [line for line in lines[name] if line.casefold().rstrip(".") not in {"none", "na", "n/a", "nothing"}]
        assert [line.casefold().rstrip(". ") for line in getattr(again, name)] == [
            line.casefold().rstrip(". ") for line in kept
        ]


def test_a_line_that_looks_like_a_heading_stays_a_line() -> None:
    hostile = Sections(goal=("## Next Steps", "# Critical Context"), done=("**Goal**",))
    assert parse(render(hostile)) == hostile


@pytest.mark.parametrize(
    "heading",
    [
        "## Goal",
        "# Goal",
        "#### Goal:",
        "**Goal**",
        "**Goal:**",
        "__Goal__",
        "1. **Goal**",
        "Goal:",
        "## **Goal**",
        "### GOAL ###",
    ],
)
def test_a_heading_is_known_in_any_dress(heading: str) -> None:
    assert parse(f"{heading}\n- ship it").goal == ("ship it",)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Here is the summary:\n\n## Goal\nShip it", Sections(goal=("Ship it",))),
        ("```markdown\n## Goal\n* Ship it\n```", Sections(goal=("Ship it",))),
        ("## Goal\nNone\n\n## Next Steps\n(none)\n- N/A", Sections()),
        ("**Goal:** ship it", Sections(goal=("ship it",))),
        ("## Progress\n- did a\n### Done\n1. did b", Sections(done=("did a", "did b"))),
        ("## Open Questions\n- why?", Sections(critical=("Open Questions: why?",))),
        ("## Relevant Files\n### Backend\n- a.py", Sections(files=("Backend: a.py",))),
        ("just words", Sections(critical=("just words",))),
        ("ticket TIDE-2291. Fix it - now", Sections(critical=("ticket TIDE-2291. Fix it - now",))),
        ("## Critical Context\n```\n# not a heading\nx = 1\n```", Sections(critical=("# not a heading", "x = 1"))),
        ("## Constraints and Preferences\n- 必须用中文", Sections(constraints=("必须用中文",))),
    ],
)
def test_answers_of_models_are_brought_into_shape(text: str, expected: Sections) -> None:
    assert parse(text) == expected


def test_the_check_of_lines_finds_a_bullet_that_is_taken_out_of_the_middle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shape, "_BULLET", re.compile(r"\s*(?:[-*•]|\d{1,3}[.)])\s+"))  # defect
    assert parse("ticket TIDE-2291. Fix it").critical == ("ticket TIDE-2Fix it",)


def test_a_repeated_line_stands_once_where_it_came_last() -> None:
    assert parse("## Goal\n- a\n- b\n- A.").goal == ("b", "A.")


@given(st.text(max_size=400))
def test_any_text_can_be_read(text: str) -> None:
    sections = parse(text)
    assert all("\n" not in line for name in NAMES for line in getattr(sections, name))


def test_every_section_has_its_heading() -> None:
    assert tuple(HEADINGS) == NAMES
