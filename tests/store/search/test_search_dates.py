"""Questions that name a day, and questions in scripts without spaces."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest
from tests.fixtures.databases import SOAK

from leporello.store import SearchFilter, open_store
from leporello.store.search import answer, parse, search
from leporello.store.search.dates import NamedDate, named_dates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leporello.messages import Message
    from leporello.store import Store

DATABASES = SOAK

TALK = "talk"


@pytest.fixture
def store() -> Iterator[Store]:
    store = open_store(":memory:")
    store.ensure(TALK)
    yield store
    store.close()


def said(text: str, day: str, role: str = "user") -> Message:
    return {"role": role, "content": text, "timestamp": f"{day}T10:00:00+00:00"}


def found(store: Store, question: str) -> list[str]:
    return [hit.snippet for hit in search(store, question, filter=SearchFilter(conversation=TALK)).hits]


@pytest.mark.parametrize(
    ("text", "month", "day", "year"),
    [
        ("What did I buy on May 4th?", 5, 4, None),
        ("What did I buy on the 4th of May, 2023?", 5, 4, 2023),
        ("what happened on 23 august 2022", 8, 23, 2022),
        ("Where were we in October 2023?", 10, None, 2023),
        ("Where were we in October?", 10, None, None),
        ("What was done on 2024-02-29?", 2, 29, 2024),
        ("我曾经在5月2日提到过什么?", 5, 2, None),
        ("2023年12月31号我们聊了什么?", 12, 31, 2023),
        ("5월 4일에 무엇을 샀나요?", 5, 4, None),
        ("去年3月我们去了哪里?", 3, None, None),
    ],
)
def test_a_date_is_read(text: str, month: int, day: int | None, year: int | None) -> None:
    assert named_dates(text) == (NamedDate(month=month, day=day, year=year),)


@pytest.mark.parametrize(
    "text", ["It may rain, may it not?", "They march on.", "error 404 in line 12", "a 2023-13-45 build", "v2023-05-041"]
)
def test_what_is_no_date_is_not_read_as_one(text: str) -> None:
    assert named_dates(text) == ()


def test_several_dates_are_read_and_each_once() -> None:
    assert named_dates("Between May 1st and June 2nd, or on May 1st?") == (
        NamedDate(month=5, day=1),
        NamedDate(month=6, day=2),
    )


def test_a_day_that_does_not_exist_has_no_span() -> None:
    assert NamedDate(month=2, day=29).span(2023) is None
    start, end = NamedDate(month=2, day=29).span(2024) or (0.0, 0.0)
    assert datetime.fromtimestamp(start, UTC).isoformat() == "2024-02-29T00:00:00+00:00"
    assert 86_399 < end - start < 86_400
    assert NamedDate(month=2, day=1, year=2020).span(2024) is None


class TestANamedDay:
    DAYS = tuple(f"2023-05-{day:02}" for day in range(1, 29))

    def told(self, store: Store) -> None:
        store.append(
            TALK,
            [said(f"My plan of that kind: plan, plan {number}.", day) for number in range(20) for day in self.DAYS],
        )
        store.append(TALK, [said("Nothing was said.", "2023-05-29")] * 5)
        store.append(TALK, [said("The plan is Spain. " + "We talked about this and that. " * 30, "2023-05-30")])

    def test_its_messages_are_found_among_many_better_hits(self, store: Store) -> None:
        self.told(store)
        assert "Spain" in found(store, "What was my plan on May 30th?")[0]

    def test_without_looking_at_that_day_they_would_not_be(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        """The planted defect: only the best hits of all days are ranked."""
        self.told(store)
        monkeypatch.setattr(answer, "_of_named_days", lambda *_: [])
        assert not any("Spain" in each for each in found(store, "What was my plan on May 30th?"))


class TestScriptsWithoutSpaces:
    def test_a_number_in_a_sentence_does_not_make_it_one_phrase(self, store: Store) -> None:
        store.append(
            TALK, [said("我买了一件新的白色连衣裙，它很漂亮。", "2023-05-02"), said("今天去了公园。", "2023-05-03")]
        )
        assert "连衣裙" in found(store, "在5月2号我买了一件连衣裙，它的颜色是？")[0]

    def test_identifiers_between_characters_stay_whole(self) -> None:
        units = parse("请问 为什么src/app_1.py里的OneNote报错？").content
        assert {"src app 1 py", "onenot"} <= set(units)
        assert "报 错" in units

    def test_a_single_character_or_digit_between_words_is_no_unit(self) -> None:
        assert not {"5", "2"} & set(parse("我在5月2日去了哪里？").content)
