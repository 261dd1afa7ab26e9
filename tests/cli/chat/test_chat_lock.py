"""One terminal at a time talks in a conversation; a second one is told so, and nothing of the first is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from leporello.cli.chat.lock import FOLDER, ChatLock
from leporello.errors import SessionError
from leporello.messages import text_of
from leporello.store.address import MEMORY

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fixtures.chat import Place


def is_free(home: Path, session_id: str, url: str = "sqlite:///a") -> bool:
    lock = ChatLock(home, url)
    try:
        lock.acquire(session_id)
    except SessionError:
        return False
    lock.release()
    return True


def test_a_lock_keeps_others_out_until_it_is_given_back(tmp_path: Path) -> None:
    lock = ChatLock(tmp_path, "sqlite:///a")
    lock.acquire("s")
    assert not is_free(tmp_path, "s")
    assert is_free(tmp_path, "other")
    assert is_free(tmp_path, "s", url="sqlite:///b")
    lock.release()
    assert is_free(tmp_path, "s")
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_the_next_lock_releases_the_one_before(tmp_path: Path) -> None:
    lock = ChatLock(tmp_path, "sqlite:///a")
    lock.acquire("one")
    lock.acquire("one")
    lock.acquire("two")
    assert is_free(tmp_path, "one")
    assert not is_free(tmp_path, "two")


def test_what_is_refused_leaves_the_one_before(tmp_path: Path) -> None:
    first, second = ChatLock(tmp_path, "sqlite:///a"), ChatLock(tmp_path, "sqlite:///a")
    first.acquire("one")
    second.acquire("two")
    with pytest.raises(SessionError, match=r"'one' is open in another terminal \(process \d+\)"):
        second.acquire("one")
    assert not is_free(tmp_path, "two")


def test_a_store_in_memory_is_nobody_elses(tmp_path: Path) -> None:
    ChatLock(tmp_path, MEMORY).acquire("s")
    assert is_free(tmp_path, "s", url=MEMORY)
    assert not (tmp_path / FOLDER).exists()


def test_a_home_that_cannot_be_written_to_keeps_nobody_from_talking(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    lock = ChatLock(tmp_path / "file", "sqlite:///a")
    lock.acquire("s")
    lock.release()


@pytest.mark.slow
def test_a_second_terminal_is_told_who_has_the_conversation(place: Place) -> None:
    with place.chat("--session", "s") as first:
        first.say("The first")
        first.wait_until(first.listens)
        with place.chat("--session", "s") as second:
            second.wait_for("leporello: the conversation 's' is open in another terminal (process ")
            assert second.exit_code() == 2
        asked = place.run("--session", "s", "And I?")
        assert (asked.returncode, asked.stdout) == (2, "")
        with place.chat("--session", "t") as second:
            second.say("/sessions s")
            second.wait_for("is open in another terminal")
            second.say("Still here")
            second.wait_until(second.listens)
            assert text_of(place.sent()[-1]) == "Still here"
            first.say("/new")
            first.wait_until(first.listens)
            second.say("/sessions s")
            second.wait_until(second.listens)
            second.say("Mine now")
            second.wait_until(second.listens)
            said = [text_of(message) for message in place.sent() if message["role"] != "system"]
            assert said == ["The first", "The first", "Mine now"]


@pytest.mark.slow
def test_a_chat_that_was_killed_keeps_nobody_out(place: Place) -> None:
    with place.chat("--session", "s") as first:
        first.say("The first")
        first.wait_until(first.listens)
    assert place.run("--session", "s", "Next").returncode == 0
