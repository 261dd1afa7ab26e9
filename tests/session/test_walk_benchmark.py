"""The benchmark that counts the files and functions of a turn counts each of them, wherever it runs."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from benchmarks import walk

from leporello.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable

PLANTED = """
def planted(*_):
    return [each for each in (lambda: "ab")()]

def nested(*_):
    def inner():
        return planted()
    return inner()
"""


def planted(name: str, file: str = "session/planted.py") -> Callable[..., Any]:
    """Return a function that stands in a file of Leporello."""
    space: dict[str, Any] = {}
    exec(compile(PLANTED, str(walk.ROOT / file), "exec"), space)  # noqa: S102 - the text above
    function: Callable[..., Any] = space[name]
    return function


def test_comprehensions_and_lambdas_belong_to_the_function_around_them() -> None:
    assert walk.crossed(planted("planted")) == {"session/planted.py": ["planted"]}


def test_a_function_inside_another_is_one_of_its_own() -> None:
    assert walk.crossed(planted("nested")) == {"session/planted.py": ["nested", "nested.<locals>.inner", "planted"]}


def test_what_is_not_ours_is_not_counted() -> None:
    assert walk.crossed(lambda: sorted(str(number) for number in range(3))) == {}


def test_threads_count_too() -> None:
    function = planted("planted")

    def work() -> None:
        thread = threading.Thread(target=function)
        thread.start()
        thread.join()

    assert walk.crossed(work) == {"session/planted.py": ["planted"]}


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["compressor", "lcm"])
def test_a_turn_goes_through_the_session_and_the_store(engine: str) -> None:
    found = walk.turn(engine, turns=1)
    assert {"Session.add", "Session.request", "Session.record"} <= set(found["session/session.py"])
    assert any(file.startswith("store/") for file in found)
    assert not any("Session.open" in names for names in found.values())


@pytest.mark.parametrize(("package", "files", "functions"), [("session", 7, 45), ("store", 9, 45), (walk.ALL, 36, 170)])
@pytest.mark.sqlite_only  # the bars are those of the store that is the default; PostgreSQL's has one file more
def test_a_plain_turn_can_be_read_in_one_sitting(package: str, files: int, functions: int) -> None:
    found = walk.counted(walk.turn("compressor"))[package]
    assert found[0] <= files
    assert found[1] <= functions


@pytest.mark.slow
def test_one_more_function_in_a_turn_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = walk.counted(walk.turn("compressor", turns=1))
    request, more = Session.request, planted("planted", "tokens/planted.py")

    def longer(session: Session) -> Any:
        more()
        return request(session)

    monkeypatch.setattr(Session, "request", longer)
    after = walk.counted(walk.turn("compressor", turns=1))
    files, functions = before["tokens"]
    assert after["tokens"] == (files + 1, functions + 1)
    assert {package: after[package] for package in after if package not in ("tokens", walk.ALL)} == {
        package: before[package] for package in before if package not in ("tokens", walk.ALL)
    }


def test_the_table_has_a_column_for_each_walk() -> None:
    rows = walk.table({"a": {"session/x.py": ["f", "g"], "errors.py": ["h"]}, "b": {}}).splitlines()
    assert rows[2:] == ["| errors | 1 / 1 | 0 / 0 |", "| session | 1 / 2 | 0 / 0 |", "| all | 2 / 3 | 0 / 0 |"]
