"""`leporello usage` adds the journal up, and says what folding and caching saved."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from leporello.prices import price_of
from leporello.session import Session

if TYPE_CHECKING:
    from pathlib import Path

MODEL = "claude-sonnet-5"


def talk(path: Path, name: str, turns: int, *, window: int = 12_000, read: float = 0.0, model: str = MODEL) -> Session:
    """Hold a conversation; a share of every request but the first is read from the cache, the rest written to it."""
    session = Session.open(name, model=model, context_length=window, store=path, config={})
    with session:
        for turn in range(turns):
            session.add({"role": "user", "content": f"Question {turn}: " + "the berth of the crane is free " * 60})
            request = session.request()
            tokens = sum(len(str(message)) for message in request["messages"]) // 4
            cached = int(tokens * read) if turn else 0
            usage: dict[str, Any] = {"prompt_tokens": tokens, "completion_tokens": 20, "total_tokens": tokens + 20}
            if read:
                usage["prompt_tokens_details"] = {"cached_tokens": cached, "cache_write_tokens": tokens - cached}
            answer = {"role": "assistant", "content": f"Answer {turn}."}
            session.record({"choices": [{"message": answer, "finish_reason": "stop"}], "usage": usage})
    return session


def test_it_adds_up_what_was_spent_per_conversation_and_in_all(leporello: Any, tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    talk(store, "short", 2)
    talk(store, "long", 40, read=0.8)
    told = leporello("usage", "--store", store, "--json").json
    short, long, total = told["conversations"]["short"], told["conversations"]["long"], told["total"]
    assert (short["requests"], long["requests"], total["requests"]) == (2, 40, 42)
    price = price_of(MODEL)
    assert price is not None
    by_hand = (short["prompt_tokens"] * price.input + short["completion_tokens"] * price.output) / 1_000_000
    assert short["cost_usd"] == pytest.approx(by_hand, abs=1e-6)
    assert total["cost_usd"] == pytest.approx(short["cost_usd"] + long["cost_usd"], abs=1e-5)


def test_a_conversation_that_was_folded_saved_beside_its_unfolded_history(leporello: Any, tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    talk(store, "long", 60)
    talk(store, "short", 2)
    told = leporello("usage", "--store", store, "--json").json["conversations"]
    assert told["long"]["compactions"] > 0
    assert told["long"]["unfolded_tokens"] > 1.5 * told["long"]["prompt_tokens"]
    assert told["long"]["folding_saved_usd"] > 0.3 * told["long"]["cost_usd"]
    assert told["short"]["folding_saved_usd"] < 0.5 * told["short"]["cost_usd"]


def test_caching_saves_what_was_read_cheaper_less_what_writing_costs_more(leporello: Any, tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    talk(store, "cached", 10, read=0.9, window=200_000)
    talk(store, "plain", 10, window=200_000)
    told = leporello("usage", "--store", store, "--json").json["conversations"]
    assert told["cached"]["cache_read_tokens"] > 0
    assert told["cached"]["caching_saved_usd"] > 0
    assert told["plain"]["caching_saved_usd"] == pytest.approx(0, abs=1e-6)


def test_what_would_not_have_fit_is_told_by_the_window_that_the_session_had(leporello: Any, tmp_path: Path) -> None:
    """A window may be set by the user, and another than the one that the tables know."""
    store = tmp_path / "store.db"
    talk(store, "narrow", 60)
    talk(store, "wide", 60, window=200_000)
    told = leporello("usage", "--store", store, "--json").json["conversations"]
    assert 10 < told["narrow"]["too_long"] < 60
    assert told["wide"]["too_long"] == 0


def test_one_conversation_or_those_of_the_last_days(leporello: Any, tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    talk(store, "one", 2)
    talk(store, "two", 3)
    assert leporello("usage", "two", "--store", store, "--json").json["total"]["requests"] == 3
    assert leporello("usage", "--since", "7d", "--store", store, "--json").json["total"]["requests"] == 5
    none = leporello("usage", "--since", "0.0001s", "--store", store)
    assert (none.code, none.err) == (1, "leporello: no request was recorded in that time\n")


def test_the_table_names_the_conversations_and_the_total(leporello: Any, tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    talk(store, "one", 2)
    talk(store, "unpriced", 2, model="my-own-model")
    shown = leporello("usage", "--store", store).out
    assert "one" in shown
    assert "in all" in shown
    assert "2 requests of models whose price is not known" in shown


def test_an_unknown_conversation_is_told(leporello: Any, tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    talk(store, "one", 1)
    assert leporello("usage", "nobody", "--store", store).code == 1


def test_people_see_names_and_a_question_mark_where_no_price_is_known(leporello: Any, tmp_path: Path) -> None:
    store = tmp_path / "store.db"
    for name, model in (("20261119-060823-2460f8", "nobody-sells-it"), ("twin", MODEL), ("alone", MODEL)):
        talk(store, name, 2, model=model)
    with Session.open("alone", model=MODEL, store=store, config={}) as session:
        session.store.ensure("alone", title="The nightly import crashes since Tuesday")
    lines = leporello("usage", "--store", store).out.splitlines()
    shown = {line[:23].strip(): line[23:].split() for line in lines}
    assert shown["20261119-060823-2460f8"][-3:] == ["?", "?", "?"]
    assert shown["The nightly import cra…"][-1] == shown["twin"][-1] == "$0.0000"
    assert max(map(len, lines)) <= 80
