"""The benchmark in two languages reads its data and counts what it says it counts."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from benchmarks import memorybank

if TYPE_CHECKING:
    from pathlib import Path

HISTORY = {
    "en": [("2023-05-01", "I bought a white dress.", "It suits you."), ("2023-05-02", "I went to Spain.", "Lovely.")],
    "cn": [("2023-05-01", "我买了一件白色连衣裙。", "很好看。"), ("2023-05-02", "我去了西班牙。", "真好。")],
}
QUESTION = {"en": '"What did I buy on May 1st?"', "cn": "在5月1号我买了什么？"}
GOLD: dict[str, Any] = {"1": [[["2023-05-01", 0, "q"]]]}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for language, days in HISTORY.items():
        history = {day: [{"query": query, "response": response}] for day, query, response in days}
        bank = {" Ann ": {"history": history}}
        (tmp_path / f"eval_data_{language}_memory_bank_{language}.json").write_text(json.dumps(bank), "utf-8")
        asked = json.dumps({"Ann": [QUESTION[language]]}) + "\n\n"
        (tmp_path / f"eval_data_{language}_probing_questions_{language}.jsonl").write_text(asked, "utf-8")
    return tmp_path


@pytest.mark.parametrize("language", memorybank.LANGUAGES)
def test_what_answers_is_found_and_counted(data: Path, language: str) -> None:
    talks = list(memorybank.dialogues(data, language, GOLD))
    assert [len(talk.turns) for talk in talks] == [4]
    assert memorybank.recall(talks, memorybank.stored(talks)) == (1, [1.0, 1.0, 1.0])


def test_planted_evidence_that_is_never_found_counts_as_missed(data: Path) -> None:
    wrong = {"1": [[["2023-05-01", 7, "r"]]]}
    talks = list(memorybank.dialogues(data, "en", wrong))
    assert memorybank.recall(talks, memorybank.stored(talks)) == (1, [0.0, 0.0, 0.0])


def test_a_question_without_evidence_is_not_counted(data: Path) -> None:
    talks = list(memorybank.dialogues(data, "en", {"1": [[]]}))
    assert memorybank.recall(talks, memorybank.stored(talks))[0] == 0


def test_the_evidence_names_every_question_of_both_languages() -> None:
    gold = json.loads(memorybank.GOLD.read_text("utf-8"))
    assert {language: sum(map(len, people.values())) for language, people in gold.items()} == {"en": 100, "cn": 100}
    assert {language: len(people) for language, people in gold.items()} == {"en": 15, "cn": 15}
