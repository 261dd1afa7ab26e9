"""What a long list costs: in proportion to its length, and no statement reads a whole conversation for a few rows."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from leporello.messages import fingerprint, repair
from leporello.messages.as_json import LONG, is_large, json_pieces
from leporello.store import open_store
from leporello.store.codec import encode, verbatim
from leporello.store.relational.history import StoredHistory
from leporello.store.relational.messages import _made
from leporello.store.relational.reading import load
from leporello.store.relational.writing import replace_rows
from leporello.store.search.prepare import LONGEST_INDEXED, prepared_text
from leporello.store.sqlite.connection import SQLiteConnection

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.slow

MOST_GROWTH = 3.0
"""For four times as many rows of the conversation, when as many are asked for; what reads all of it has 4."""


def steps(path: Path, work: Callable[[SQLiteConnection], Any]) -> int:
    """Return how many thousands of steps SQLite takes for some work."""
    count = 0

    def counted() -> None:
        nonlocal count
        count += 1

    connection = sqlite3.connect(path, factory=SQLiteConnection)
    connection.set_progress_handler(counted, 100)
    try:
        work(connection)
    finally:
        connection.close()
    return count


WORK: dict[str, Callable[[SQLiteConnection], Any]] = {
    "rows by id": lambda connection: StoredHistory(connection, 1, 1).rows((), (), range(1, 401)),
    "made of a stored one": lambda connection: _made(
        connection, 1, [(b"x" * 16, [number]) for number in range(1, 401)]
    ),
    "taken back": lambda connection: replace_rows(connection, 1, 1, range(1, 401), 500),
    "system messages": lambda connection: StoredHistory(connection, 1, 1).systems([f"{n:032x}" for n in range(400)]),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Conversations of 2,000 and of 8,000 messages."""
    found = []
    for count in (2_000, 8_000):
        path = tmp_path_factory.mktemp("linear") / f"{count}.db"
        store = open_store(path)
        store.append("a", [{"role": "user", "content": f"m{number}"} for number in range(count)])
        store.close()
        found.append(path)
    return found


@pytest.mark.parametrize("name", WORK)
def test_a_few_rows_do_not_cost_the_whole_conversation(name: str, files: list[Path]) -> None:
    short, long = (steps(path, WORK[name]) for path in files)
    assert long < MOST_GROWTH * short


def test_a_statement_that_reads_everything_would_be_noticed(files: list[Path]) -> None:
    scan = "SELECT count(*) FROM messages WHERE conversation = 1 AND length(body) > 0"
    short, long = (steps(path, lambda connection: connection.execute(scan).fetchone()) for path in files)
    assert long >= MOST_GROWTH * short


class TestVeryLongMessages:
    MESSAGES: tuple[dict[str, Any], ...] = (
        {"role": "user", "content": 'é\n"\\' * LONG},
        {"role": "user", "content": [{"type": "text", "text": "\ud800😀" * LONG}, {"type": "text", "text": "x"}]},
        {"role": "user", "content": "a", "x": {f"k{n}": [n, 1.5, None, True, "\u2028"] for n in range(5_000)}},
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "[" * 2 * LONG}}] * 2},
    )

    @pytest.mark.parametrize("number", range(len(MESSAGES)))
    def test_are_written_and_named_as_short_ones_are(self, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
        message = self.MESSAGES[number]
        assert is_large(message)
        in_pieces = fingerprint(message), verbatim(message), encode(message)
        for module in ("leporello.messages.identity", "leporello.store.codec"):
            monkeypatch.setattr(f"{module}.is_large", lambda _: False)
        assert (fingerprint(message), verbatim(message), encode(message)) == in_pieces

    def test_no_piece_is_long(self) -> None:
        assert max(len(piece) for message in self.MESSAGES for piece in json_pieces(message)) <= 2 * LONG

    def test_are_indexed_at_both_ends(self) -> None:
        text = f"alpha {'w0rd ' * LONGEST_INDEXED} middle {'w0rd ' * LONGEST_INDEXED} omega"
        terms = prepared_text({"role": "tool", "content": text})
        assert terms.startswith("alpha ")
        assert terms.endswith(" omega")
        assert len(terms) <= 2 * LONGEST_INDEXED

    def test_have_no_secret_in_the_index_where_they_are_cut(self) -> None:
        secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789"
        half = LONGEST_INDEXED // 2
        for before in range(half - 60, half + 20, 7):
            text = "." * before + f" {secret} " + "." * LONGEST_INDEXED + f" {secret} " + "." * before
            assert "abcdefgh" not in prepared_text({"role": "user", "content": text})


def test_repair_keeps_unreadable_calls_and_thinking_in_their_order() -> None:
    calls: list[Any] = [f"call {number}" for number in range(50)]
    thinking: list[Any] = [{"type": "thinking", "thinking": f"t{number}"} for number in range(50)]
    message = {"role": "assistant", "content": "said", "tool_calls": calls, "thinking_blocks": thinking}
    mended = repair([{"role": "user", "content": "a"}, message]).messages[1]
    places = [mended["content"].index(f"[unreadable tool call: call {number}]") for number in range(50)]
    assert places == sorted(places)
    assert mended["reasoning_content"].split("\n") == [f"t{number}" for number in range(50)]


@pytest.mark.parametrize("options", [{}, {"newest_first": True}, {"first": 1}, {"first": 1, "newest_first": True}])
def test_a_page_of_very_long_messages_is_shorter(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[int] = []

    def counted(connection: Any, numbers: list[int], **more: Any) -> Any:
        loaded.append(len(numbers))
        return load(connection, numbers, **more)

    monkeypatch.setattr("leporello.store.relational.transcript.load", counted)
    monkeypatch.setattr("leporello.store.relational.transcript.PAGE_CHARACTERS", 1_000)
    store = open_store(tmp_path / "a.db")
    lengths = [10] * 300 + [400] * 5 + [5_000] * 3 + [10] * 256
    store.append("a", [{"role": "user", "content": "x" * length} for length in lengths])
    read = [len(row.message["content"]) for row in store.messages("a", **options)]
    store.close()
    assert read == (lengths[::-1] if options.get("newest_first") else lengths)
    assert max(loaded) <= 100
    assert loaded.count(1) >= 3
