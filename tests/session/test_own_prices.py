"""The prices of config.yaml come before the listed ones, wherever dollars are shown."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from leporello.config import Config
from leporello.engine import normalise_usage
from leporello.errors import ConfigError
from leporello.lcm.engine import LCMEngine
from leporello.llm import connect
from leporello.llm.client import Completion, cost_of
from leporello.prices import Price, price_of
from leporello.prices.table import price_in
from leporello.proof import ReplaySettings, replay_all
from leporello.proof.savings import Savings, savings_of, total_of
from leporello.store import open_store
from leporello.testing.coding_session import coding_session
from leporello.transcripts import Transcript

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.cli import Leporello

    from leporello import Session

PRICES = {"prices": {"harbour-1": {"input": 2, "output": 10, "cache_read": 0.5, "cache_write": 3}}}
USAGE = {
    "prompt_tokens": 3_000,
    "completion_tokens": 100,
    "prompt_tokens_details": {"cached_tokens": 1_000, "cache_write_tokens": 1_000},
}
DOLLARS = (1_000 * 2 + 1_000 * 0.5 + 1_000 * 3 + 100 * 10) / 1_000_000


def asked(session: Session, answer: Callable[..., Any]) -> None:
    session.add({"role": "user", "content": "How high is the tide?"})
    session.request()
    session.record({**answer("Two metres."), "usage": USAGE})


def saved(session: Session) -> Savings:
    return total_of(savings_of(session.store, info) for info in session.store.conversations())


def test_a_session_its_savings_and_the_page_charge_them(
    opened: Callable[..., Session], answer: Callable[..., Any]
) -> None:
    session = opened(config=PRICES, model="harbour-1")
    asked(session, answer)
    assert session.usage().conversation.cost_usd == pytest.approx(DOLLARS)
    assert saved(session).cost_usd == pytest.approx(DOLLARS)
    assert saved(session).uncached_usd == pytest.approx((3_000 * 2 + 100 * 10) / 1_000_000)
    session.switch_model("harbour-2")
    asked(session, answer)
    assert (saved(session).requests, saved(session).unpriced) == (2, 1)


def test_planted_without_them_nothing_is_known_of_the_model(
    opened: Callable[..., Session], answer: Callable[..., Any]
) -> None:
    session = opened(model="harbour-1")
    asked(session, answer)
    assert session.usage().conversation.cost_usd is None
    assert saved(session).unpriced == 1


def test_what_was_paid_stays_what_it_was_when_the_price_changes(
    opened: Callable[..., Session], answer: Callable[..., Any]
) -> None:
    """The journal has the price of its time, so that savings are compared at one price."""
    store = open_store(":memory:")
    for rate in (2, 4):
        session = opened(config={"prices": {"harbour-1": {"input": rate, "output": 0}}}, model="harbour-1", store=store)
        asked(session, answer)
    assert saved(session).uncached_usd == pytest.approx((3_000 * 2 + 3_000 * 4) / 1_000_000)


@pytest.mark.parametrize("price", [{"input": "x", "output": 1}, {"output": 1}, {"input": -1, "output": 1}, 7])
def test_a_row_of_a_strangers_file_that_notes_no_price_has_the_listed_one(price: Any) -> None:
    report = {"model": "claude-sonnet-5", "price": price}
    assert price_in(report) == price_of("claude-sonnet-5")
    assert price_in({**report, "price": {"input": 1, "output": 0}}) == Price(input=1, output=0)


def test_a_price_of_one_provider_is_only_for_it() -> None:
    config = Config.from_mapping({"prices": {"here/harbour-1": {"input": 1, "output": 1}}})
    assert config.own_prices()["here/harbour-1"]["cache_read"] is None
    costs = {
        provider: replayed(model="harbour-1", provider=provider, config=config.model_dump())
        for provider in ("here", "there")
    }
    assert costs["there"] is None
    assert costs["here"]


def replayed(**settings: Any) -> float | None:
    transcript = Transcript(name="one", format="openai", messages=coding_session(3))
    figures = replay_all([transcript], ["none"], ReplaySettings(window=100_000, **settings))
    run = figures.runs["none"][0]
    assert sum(point.cost_usd or 0 for point in run.points) == pytest.approx(run.costs.usd or 0)
    priced = figures.as_dict()["assumed"]["prices"]
    assert (priced or {}).get("source") == ("config.yaml" if run.costs.usd else None)
    return run.costs.usd


def test_summaries_and_the_automatic_threshold_follow_them() -> None:
    both = {**PRICES, "auxiliary": {"compression": {"model": "harbour-1", "base_url": "http://127.0.0.1:9/v1"}}}
    llm = connect(Config.from_mapping(both), environ={})
    assert llm is not None
    summary = Completion(text="A summary.", usage=normalise_usage(USAGE), model="harbour-1-turbo-x")
    assert cost_of(llm, summary) == pytest.approx(DOLLARS)
    thresholds = set()
    for read in (0.01, 2):
        own = {"harbour-1": {"input": 2, "output": 10, "cache_read": read, "cache_write": 4}}
        engine = LCMEngine(1_000_000, config=Config.from_mapping({"prices": own, "lcm": {"threshold": "auto"}}))
        engine.update_model("harbour-1", 1_000_000)
        thresholds.add(engine.threshold_tokens)
    assert len(thresholds) == 2


def test_doctor_says_what_the_model_costs_and_who_says_so(leporello: Leporello) -> None:
    def price() -> str:
        findings = json.loads(leporello("doctor", "--json").out)["findings"]
        return str(next(one["detail"] for one in findings if one["subject"] == "price"))

    leporello("config", "set", "model.default", "harbour-1.5")
    leporello("config", "set", "model.context_length", "100000")
    assert "leporello config set prices.harbour-1.5 '{input: 0.5, output: 2}'" in price()
    assert leporello("config", "set", "prices.harbour-1.5", "{input: 0.5, output: 2}").code == 0
    assert price() == "$0.5 in, $2 out for a million tokens (config.yaml)"


@pytest.mark.parametrize(
    ("price", "told"),
    [
        ({"input": 1}, "prices.harbour-1.output"),
        ({"input": -1, "output": 1}, "prices.harbour-1.input: must be a number of at least 0, not -1"),
        ({"input": 1, "output": 1, "cached": 1}, "prices.harbour-1.cached"),
        (3, "prices.harbour-1: must be a block with the keys input, output, cache_read, cache_write, not 3"),
    ],
)
def test_a_wrong_price_is_named(price: Any, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Config.from_mapping({"prices": {"harbour-1": price}})
    assert told in str(refused.value)
