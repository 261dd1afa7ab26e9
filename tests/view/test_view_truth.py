"""What the page shows is what was sent: against the journal, and against what the model server received."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from tests.fixtures.view import client_of, parsed

from leporello.session.saved_branch import grouped
from leporello.testing.model_server import ModelServer
from leporello.tokens import count_message
from leporello.view import windows
from leporello.view.demo import CONVERSATION, demo_store
from leporello.view.windows import difference, window_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.testclient import TestClient

    from leporello.store import Store

pytestmark = pytest.mark.slow

CONVERSATIONS = (CONVERSATION, "harbour-webhooks")


@pytest.fixture(scope="module", params=["lcm", "compressor"])
def sent(request: Any) -> Iterator[tuple[Store, list[Any]]]:
    """Play the demonstration to the model server; return the store, and the messages of each request."""
    with ModelServer() as server, httpx2.Client() as http:

        def ask(made: dict[str, Any], answer: Any) -> Any:
            body = {"model": "gpt-5.5", **made}
            received = http.post(
                f"{server.openai_url}/chat/completions", json=body, headers={"authorization": "Bearer sk-test"}
            )
            assert received.status_code == 200, received.text
            usage = {**received.json()["usage"], "completion_tokens": count_message(answer)}
            return {"id": "a", "choices": [{"message": answer, "finish_reason": "stop"}], "usage": usage}

        with closing(demo_store(engine=request.param, model="gpt-5.5", provider="openai", ask=ask)) as store:
            yield store, [received.body["messages"] for received in server.requests]


def untrue(client: TestClient, store: Store, received: list[Any]) -> list[tuple[str, int]]:
    """Return the requests whose raw JSON on the page is not, byte for byte, what the model server got."""
    rows = [(key, row) for key in CONVERSATIONS for row in store.journal(key, reason="request")]
    assert len(rows) == len(received)
    wrong = []
    for (key, row), messages in zip(rows, received, strict=True):
        shown = client.get("/view/raw", params={"c": key, "at": row.number, "reveal": 1}).content
        expected = json.dumps(messages, ensure_ascii=False, separators=(",", ":")).encode()
        if shown != expected:
            wrong.append((key, row.number))
    return wrong


def test_the_raw_json_of_every_request_is_what_the_model_server_received(
    sent: tuple[Store, list[Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the whole demonstration: two conversations, their folds, a side question and a turn that was taken back."""
    store, received = sent
    assert [sum(row.reason == "fold" for row in store.journal(key)) >= 2 for key in CONVERSATIONS] == [True, True]
    assert len(received) > 150
    assert untrue(client_of(store), store, received) == []

    whole = windows.entries_of
    monkeypatch.setattr(windows, "entries_of", lambda *args: whole(*args)[:-1])
    assert len(untrue(client_of(store), store, received)) == len(received)


def test_the_slider_shows_the_entries_of_the_journal(demo: Store, page: TestClient) -> None:
    """Planted: the page of the step before it has other entries."""

    def ids(at: int) -> list[str]:
        shown: list[str] = []
        following = f"/view/entries?c={CONVERSATION}&at={at}"
        while following:
            answer = parsed(page.get(following, headers={"hx-request": "true"}).text)
            shown += [a for a in answer.addresses() if a.startswith("/view/entry?")]
            following = next((a for a in answer.addresses() if a.startswith("/view/entries?")), "")
        return shown

    for at in (1, 36, 37, 100, 162):
        items = grouped(demo.window_at(CONVERSATION, at))
        assert len(ids(at)) == len(items)
    assert len(ids(36)) != len(grouped(demo.window_at(CONVERSATION, 37)))


def test_an_opened_entry_shows_every_word_of_it(demo: Store, page: TestClient) -> None:
    info = demo.info(CONVERSATION)
    assert info is not None
    for entry in window_at(demo, info, 38).entries[2:14]:
        answer = page.get(f"/view/entry?c={CONVERSATION}&at=38&index={entry.index}", headers={"hx-request": "true"})
        content = entry.message.get("content")
        assert not isinstance(content, str) or " ".join(content.split()) in parsed(answer.text).text


def test_a_difference_accounts_for_every_entry(demo: Store) -> None:
    """What was there, less what went, and what came, is what is there; planted: one change forgotten."""
    info = demo.info(CONVERSATION)
    assert info is not None

    def balance(before: int, after: int, forget: int = 0) -> int:
        old, new = window_at(demo, info, before), window_at(demo, info, after)
        made = difference(old, new)
        changed = replace(made, changes=made.changes[forget:])
        gone = len(changed.of("folded")) + len(changed.of("dropped"))
        come = len(changed.of("added")) + len(changed.of("summary"))
        return len(old.entries) - gone + come - len(new.entries)

    for before, after in ((0, 1), (35, 36), (36, 38), (20, 100), (100, 20), (147, 162)):
        assert balance(before, after) == 0
        assert balance(before, after, forget=1) != 0
    fold = difference(window_at(demo, info, 36), window_at(demo, info, 37))
    assert {change.kind for change in fold.changes} >= {"folded", "cleared", "summary"}


def test_the_parts_of_a_window_are_those_of_the_session(demo: Store) -> None:
    """The sums of the bar are the size of the request, as the provider counted it to within a few tokens."""
    info = demo.info(CONVERSATION)
    assert info is not None
    for row in demo.journal(CONVERSATION, reason="request")[::20]:
        window = window_at(demo, info, row.number)
        assert abs(sum(window.parts().values()) - row.usage["prompt_tokens"]) <= 8
        assert window.context_length == 48_000


def test_what_moved_is_told_apart_from_what_was_passed(demo: Store) -> None:
    info = demo.info(CONVERSATION)
    assert info is not None
    window = window_at(demo, info, 20)
    first, second, *rest = window.entries
    turned = replace(window, entries=(first, *rest, second))
    assert [change.entry for change in difference(window, turned).of("moved")] == [second]
    assert difference(window, window).changes == ()
