"""The suites for stores and rules: ours pass, and each planted defect is caught by a test of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from leporello.redact import Rule, Secret, pattern_rule
from leporello.store.sqlite import SQLiteStore
from leporello.testing import RuleSuite, StoreSuite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from leporello.store import Store

TESTS = [name for name in dir(StoreSuite) if name.startswith("test_")]


class TestSQLite(StoreSuite):
    def open(self, folder: Path) -> Store:
        return SQLiteStore(folder / "suite.db")


def loses_fields(store: SQLiteStore) -> None:
    append = store.append

    def bare(key: str, messages: Any, **options: Any) -> Any:
        kept: Any = [{k: v for k, v in one.items() if k != "_ours"} for one in messages]
        return append(key, kept, **options)

    store.append = bare  # type: ignore[method-assign,assignment]


def stores_twice(store: SQLiteStore) -> None:
    store.ingest = lambda key, messages, **_: store.append(key, messages)  # type: ignore[method-assign,assignment]


def forks_nothing(store: SQLiteStore) -> None:
    store.fork = lambda *_, **__: 0  # type: ignore[method-assign]


def finds_nothing(store: SQLiteStore) -> None:
    search = store.search
    store.search = lambda _text, **options: search("nowhere", **options)  # type: ignore[method-assign]


def knows_no_owners(store: SQLiteStore) -> None:
    for name in ("append", "messages", "search", "get", "info"):
        method = getattr(store, name)

        def shared(*arguments: Any, _method: Callable[..., Any] = method, **options: Any) -> Any:
            return _method(*arguments, **{key: value for key, value in options.items() if key != "owner"})

        setattr(store, name, shared)


def leases_to_everybody(store: SQLiteStore) -> None:
    store.acquire = lambda *_, **__: True  # type: ignore[method-assign]


def exports_half(store: SQLiteStore) -> None:
    export = store.export
    store.export = lambda key, **options: iter(list(export(key, **options))[:-2])  # type: ignore[method-assign]


def deletes_nothing(store: SQLiteStore) -> None:
    store.delete = lambda *_, **__: None  # type: ignore[method-assign,assignment]


DEFECTS = {
    "test_messages_come_back_as_they_were": loses_fields,
    "test_the_same_list_again_adds_nothing": stores_twice,
    "test_a_fork_shares_what_was_before_and_nothing_after": forks_nothing,
    "test_every_word_is_found": finds_nothing,
    "test_owners_are_apart": knows_no_owners,
    "test_one_at_a_time_may_fold": leases_to_everybody,
    "test_what_is_exported_comes_in_again": exports_half,
    "test_what_is_deleted_is_gone": deletes_nothing,
}


@pytest.mark.parametrize(("test", "plant"), DEFECTS.items())
def test_a_planted_defect_of_a_store_is_caught(test: str, plant: Callable[[SQLiteStore], None], tmp_path: Path) -> None:
    class Suite(StoreSuite):
        def open(self, folder: Path) -> Store:
            store = SQLiteStore(folder / "suite.db")
            plant(store)
            return store

    with pytest.raises(Exception):  # noqa: B017 - a defect may fail in the store or in the test
        getattr(Suite(), test)(tmp_path)


def test_a_store_that_lacks_a_method_and_one_that_forgets_are_caught(tmp_path: Path) -> None:
    class Half(StoreSuite):
        def open(self, folder: Path) -> Store:
            class Store:
                def close(self) -> None: ...

            return Store()  # type: ignore[return-value]

    class Forgetful(StoreSuite):
        def open(self, folder: Path) -> Store:
            return SQLiteStore(None)

    with pytest.raises(AssertionError):
        Half().test_it_has_every_method(tmp_path)
    with pytest.raises(AssertionError):
        Forgetful().test_a_session_folds_on_it_and_resumes_folded(tmp_path)
    assert {*DEFECTS, "test_it_has_every_method", "test_a_session_folds_on_it_and_resumes_folded"} == set(TESTS)


class TestRule(RuleSuite):
    examples: ClassVar = {"The ticket is HARBOUR-12345678 today.": "HARBOUR-12345678"}

    def make_rule(self) -> Rule:
        return pattern_rule("harbour-ticket", r"HARBOUR-\d{8}")


def everything(text: str) -> Iterator[Secret]:
    yield Secret(kind="all", start=0, end=max(len(text), 1))


@pytest.mark.parametrize(
    ("rule", "test"),
    [
        (pattern_rule("ticket", r"HARBOUR-\d{9}"), "test_each_example_is_found"),
        (pattern_rule("ticket", r"HARBOUR-\d{4}"), "test_each_example_is_found"),
        (everything, "test_what_is_no_secret_stays"),
        (pattern_rule("word", r"\w{8,}"), "test_what_is_no_secret_stays"),
    ],
)
def test_a_planted_defect_of_a_rule_is_caught(rule: Rule, test: str) -> None:
    class Suite(TestRule):
        def make_rule(self) -> Rule:
            return rule

    with pytest.raises(AssertionError):
        getattr(Suite(), test)()
