"""The simulated caches keep the providers' rules: prefix, lifetime, minimum, lookback, steps, marks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from leporello.caching import CacheRules, CacheUse, ProviderCache, rules_of
from leporello.caching.blocks import Block, blocks_of
from leporello.errors import RequestRefusedError
from leporello.testing.strategies import valid_conversations
from leporello.tokens import count_messages, count_tools

CLAUDE = rules_of("claude-sonnet-5")
OLDER = rules_of("gpt-5.5")
NEWER = rules_of("gpt-5.6")
TOOL = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def row(*names: str, tokens: int = 1_000, marks: str = "", hours: str = "", closes: str = "") -> list[Block]:
    """Return blocks of these names; those named in `marks` and `hours` are marked."""
    return [
        Block(
            says=name,
            tokens=tokens,
            mark="5m" if name in marks.split() else "1h" if name in hours.split() else "",
            closes=name in closes.split(),
        )
        for name in names
    ]


def cache(rules: CacheRules = CLAUDE, clock: Clock | None = None) -> ProviderCache:
    return ProviderCache(rules, clock or Clock())


def test_what_was_marked_is_read_again() -> None:
    account = cache()
    assert account.request("m", blocks=row("s", "a", marks="a")) == CacheUse(write_5m=2_000)
    assert account.request("m", blocks=row("s", "a", "b", marks="b")) == CacheUse(read=2_000, write_5m=1_000)


def test_what_follows_the_last_mark_is_input() -> None:
    assert cache().request("m", blocks=row("s", "a", "b", marks="a")) == CacheUse(write_5m=2_000, input=1_000)


def test_without_a_mark_nothing_is_cached() -> None:
    account = cache()
    for _ in range(2):
        assert account.request("m", blocks=row("s", "a")) == CacheUse(input=2_000)


def test_a_change_costs_everything_behind_it() -> None:
    account = cache()
    account.request("m", blocks=row("s", "a", "b", marks="s b", tokens=2_000))
    changed = account.request("m", blocks=row("s", "x", "b", marks="s b", tokens=2_000))
    assert changed == CacheUse(read=2_000, write_5m=4_000)


def test_an_entry_is_only_where_a_mark_was() -> None:
    """The beginning of a cached prefix is no entry of its own."""
    account = cache()
    account.request("m", blocks=row("s", "a", "b", marks="b"))
    assert account.request("m", blocks=row("s", "a", "x", marks="x")).read == 0


def test_another_model_has_a_cache_of_its_own() -> None:
    account = cache()
    account.request("claude-sonnet-5", blocks=row("s", "a", marks="a"))
    assert account.request("claude-opus-5", blocks=row("s", "a", marks="a")).read == 0


def test_an_entry_dies_after_its_lifetime_and_each_use_renews_it() -> None:
    clock = Clock()
    account = cache(clock=clock)
    request = row("s", "a", marks="a")
    account.request("m", blocks=request)
    for moment in (299.0, 598.0):
        clock.now = moment
        assert account.request("m", blocks=request).read == 2_000
    clock.now = 898.0
    assert account.request("m", blocks=request).read == 0


def test_an_hour_lasts_an_hour_and_is_counted_apart() -> None:
    clock = Clock()
    account = cache(clock=clock)
    request = row("s", "a", "b", hours="s a", marks="b")
    assert account.request("m", blocks=request) == CacheUse(write_1h=2_000, write_5m=1_000)
    clock.now = 3_599.0
    assert account.request("m", blocks=request) == CacheUse(read=2_000, write_5m=1_000)


def test_below_the_minimum_nothing_is_cached_and_nothing_is_said() -> None:
    account = cache()
    short = row("s", marks="s", tokens=1_023)
    for _ in range(2):
        assert account.request("m", blocks=short) == CacheUse(input=1_023)
    long = row("s", marks="s", tokens=1_024)
    account.request("m", blocks=long)
    assert account.request("m", blocks=long) == CacheUse(read=1_024)


@pytest.mark.parametrize(
    ("model", "minimum"),
    [
        ("claude-opus-5", 512),
        ("claude-sonnet-5", 1_024),
        ("claude-sonnet-4-5-20250929", 1_024),
        ("anthropic/claude-haiku-4.5", 4_096),
        ("claude-opus-4-6", 4_096),
        ("claude-opus-4-1-20250805", 1_024),
        ("claude-opus-4-8", 1_024),
        ("gpt-5.5", 1_024),
    ],
)
def test_the_minimum_belongs_to_the_model(model: str, minimum: int) -> None:
    assert rules_of(model).minimum == minimum


def look_back(rules: CacheRules, added: int) -> int:
    """Return what the second request reads when `added` blocks came since the first."""
    account = cache(rules)
    old = ["s", "a"]
    account.request("m", blocks=row(*old, marks="a"))
    new = [f"n{n}" for n in range(added)]
    return account.request("m", blocks=row(*old, *new, marks=new[-1])).read


def check_lookback(rules: CacheRules) -> None:
    assert look_back(rules, 19) == 2_000, "an entry twenty blocks back was not found"
    assert look_back(rules, 20) == 0, "an entry further back was found"


def test_from_a_mark_twenty_blocks_are_looked_at() -> None:
    check_lookback(CLAUDE)


@pytest.mark.parametrize("lookback", [19, 21])
def test_the_check_of_the_lookback_can_fail(lookback: int) -> None:
    with pytest.raises(AssertionError):
        check_lookback(replace(CLAUDE, lookback=lookback))


def test_every_mark_looks_back() -> None:
    account = cache()
    account.request("m", blocks=row("s", "a", marks="a"))
    new = [f"n{n}" for n in range(30)]
    assert account.request("m", blocks=row("s", "a", *new, marks="n5 n29")).read == 2_000


def test_a_fifth_mark_is_refused_as_anthropic_does() -> None:
    with pytest.raises(RequestRefusedError, match=r"maximum of 4 blocks with cache_control may be provided\. Found 5"):
        cache().request("m", blocks=row(*"abcde", marks="a b c d e"))


def test_an_hour_after_five_minutes_is_refused() -> None:
    with pytest.raises(RequestRefusedError, match="1h"):
        cache().request("m", blocks=row("a", "b", marks="a", hours="b"))


def test_older_openai_models_read_whole_steps_of_any_prefix() -> None:
    account = cache(OLDER)
    assert account.request("m", blocks=row("s", "a")) == CacheUse(input=2_000)
    assert account.request("m", blocks=row("s", "a", "b")) == CacheUse(read=1_920, input=1_080)
    assert account.request("m", blocks=row("s", "x")) == CacheUse(input=2_000), "1,000 tokens are below the minimum"


def test_newer_openai_models_read_at_breakpoints_and_charge_for_writing() -> None:
    account = cache(NEWER)
    first = row("s", "u", closes="u")
    assert account.request("m", blocks=first) == CacheUse(write_5m=2_000)
    grown = row("s", "u", "a", "t", closes="u t")
    assert account.request("m", blocks=grown) == CacheUse(read=2_000, write_5m=2_000)


@pytest.mark.parametrize(("mark", "read"), [("", 0), ("s", 2_000)])
def test_a_breakpoint_on_the_system_prompt_outlives_a_rewritten_history(mark: str, read: int) -> None:
    account = cache(NEWER)
    account.request("m", blocks=row("s", "u", "a", "t", marks=mark, closes="u t", tokens=2_000))
    folded = row("s", "summary", "t", marks=mark, closes="summary t", tokens=2_000)
    assert account.request("m", blocks=folded).read == read


def test_newer_openai_models_look_at_the_newest_eighty_breakpoints() -> None:
    def read_after(added: int) -> int:
        account = cache(NEWER)
        account.request("m", blocks=row("s", "u", closes="u"))
        new = [f"n{n}" for n in range(added)]
        return account.request("m", blocks=row("s", "u", *new, closes=" ".join(["u", *new]))).read

    assert (read_after(79), read_after(80)) == (2_000, 0)


def test_unknown_providers_cache_nothing() -> None:
    account = ProviderCache(rules_of)
    for _ in range(2):
        assert account.request("nobody-knows-it", blocks=row("s", "a", marks="a")) == CacheUse(input=2_000)


@pytest.mark.slow
@settings(deadline=None)
@given(valid_conversations(extras=False), st.sampled_from([CLAUDE, OLDER, NEWER, replace(CLAUDE, minimum=1)]))
def test_read_written_and_input_are_the_whole_request(messages: list[Any], rules: CacheRules) -> None:
    account = cache(rules)
    for end in (len(messages) // 2, len(messages)):
        blocks = blocks_of(messages[:end], [TOOL])
        use = account.request("m", blocks=blocks)
        assert min(use.read, use.write_5m, use.write_1h, use.input) >= 0
        assert use.prompt == sum(block.tokens for block in blocks)


@pytest.mark.slow
@settings(deadline=None)
@given(valid_conversations(extras=False))
def test_blocks_count_what_the_estimator_counts(messages: list[Any]) -> None:
    """But for a token where text alone and a single text part are counted differently: here they are the same."""
    said = [message for message in messages if blocks_of([message])]
    counted = sum(block.tokens for block in blocks_of(messages, [TOOL]))
    assert abs(counted - count_messages(said) - count_tools([TOOL])) <= len(said)


def test_markers_and_the_form_of_text_are_no_part_of_the_prefix() -> None:
    plain = {"role": "user", "content": "hello"}
    marked = {"role": "user", "content": [{"type": "text", "text": "hello", "cache_control": {"type": "ephemeral"}}]}
    assert blocks_of([plain])[0].says == blocks_of([marked])[0].says
    assert (blocks_of([plain])[0].mark, blocks_of([marked])[0].mark) == ("", "5m")


def test_tools_come_first_and_the_system_prompt_next() -> None:
    messages = [{"role": role, "content": role} for role in ("system", "user", "system")]
    says = [block.says for block in blocks_of(messages, [TOOL], "first")]
    prompt = {"role": "system", "content": "first"}
    assert says[1:] == [blocks_of([message])[0].says for message in (prompt, *messages)]
