"""What providers answer, in their own words (wordings.json), and what each answer means."""

import json
from pathlib import Path
from typing import Any

import pytest

from leporello import errors
from leporello.errors import ContextTooLongError
from leporello.llm import classify
from leporello.llm.wordings import Sum, read_sum

TABLE = json.loads(Path(__file__).with_name("wordings.json").read_text("utf-8"))
CASES, NEAR_MISSES = TABLE["cases"], TABLE["near_misses"]

every_case = pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
every_near_miss = pytest.mark.parametrize("case", NEAR_MISSES, ids=[case["name"] for case in NEAR_MISSES])


def meaning(case: dict[str, Any]) -> dict[str, Any]:
    """Return what `classify` makes of an answer, as the table states it."""
    error = classify(status=case["status"], body=case["body"], headers=case.get("headers"), now=0.0)
    found: dict[str, Any] = {"kind": type(error).__name__}
    if isinstance(error, ContextTooLongError) and (error.limit, error.actual) != (None, None):
        found["numbers"] = [error.limit, error.actual]
    if error.retry_after is not None:
        found["retry_after"] = error.retry_after
    return found


def expected(case: dict[str, Any]) -> dict[str, Any]:
    return {key: case[key] for key in ("kind", "numbers", "retry_after") if key in case}


@every_case
def test_an_answer_means_what_the_table_says(case: dict[str, Any]) -> None:
    assert meaning(case) == expected(case)


@every_case
def test_an_answer_means_the_same_before_it_is_decoded(case: dict[str, Any]) -> None:
    text = case["body"] if isinstance(case["body"], str) else json.dumps(case["body"])
    assert meaning({**case, "body": text}) == expected(case)
    assert meaning({**case, "body": text.encode()}) == expected(case)


@every_near_miss
def test_a_near_miss_is_not_taken_for_its_neighbour(case: dict[str, Any]) -> None:
    assert meaning(case)["kind"] == case["kind"]


def test_the_table_is_complete_and_the_check_can_fail() -> None:
    """Planted: an overflow that is expected to be a rate limit."""
    assert len(CASES) >= 40
    assert {case["kind"] for case in CASES} <= set(vars(errors))
    assert meaning(CASES[0]) != expected({**CASES[0], "kind": "RateLimitError"})


def test_no_output_limit_is_an_input_overflow() -> None:
    outputs = [case for case in CASES if case["kind"] == "OutputLimitError"]
    assert len(outputs) >= 8
    assert not [case["name"] for case in outputs if meaning(case)["kind"] == "ContextTooLongError"]


@pytest.mark.parametrize(
    ("text", "total"),
    [
        ("exceed context limit: 178959 + 64000 > 200000", Sum(input=178959, output=64000, window=200000)),
        ("(32000 > 16384 - 568)", Sum(input=568, output=32000, window=16384)),
        ("prompt is too long: 215000 tokens > 200000 maximum", None),
    ],
)
def test_a_sum_of_input_and_output_is_read(text: str, total: Sum | None) -> None:
    assert read_sum(text) == total


def test_folding_decides_whose_fault_a_sum_is() -> None:
    """An answer of half the window fits after a fold, a longer one never does; an input above the window is long."""
    assert not Sum(input=150, output=100, window=200).is_output
    assert Sum(input=150, output=101, window=200).is_output
    assert not Sum(input=201, output=150, window=200).is_output


@pytest.mark.parametrize("digits", [12, 5_004])
def test_an_allowance_of_any_length_is_read_or_left_alone(digits: int) -> None:
    text = f"Request too large for m on tokens per min (TPM): Limit {'8' * digits}, Requested 9"
    assert isinstance(classify(status=413, body=text.encode(), headers={}), ContextTooLongError)
