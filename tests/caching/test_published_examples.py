"""The simulated cache beside examples worked out by hand from what the providers publish.

Every example is a few requests, each a row of blocks with their tokens, and what the provider's rules say of each: so
many tokens read, written and taken as plain input. The prices of the last examples are the published ratios.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest

from leporello.caching import CacheRules, CacheUse, ProviderCache, rules_of
from leporello.caching.blocks import Block
from leporello.prices import cost

MINUTE, HOUR = 60.0, 3_600.0


def blocks(text: str) -> list[Block]:
    """Read a request: "tools:500 system:1500! question:300^" is three blocks, one marked, one that ends a message.

    A mark is ! for five minutes and !! for an hour.
    """
    row = []
    for part in text.split():
        name, _, rest = part.partition(":")
        mark = "1h" if "!!" in rest else "5m" if "!" in rest else ""
        row.append(Block(says=name, tokens=int(rest.rstrip("!^")), mark=mark, closes=rest.endswith("^")))
    return row


def many(count: int, tokens: int, last: str = "") -> str:
    return " ".join(f"b{number}:{tokens}{last if number == count - 1 else ''}" for number in range(count))


@dataclass(frozen=True, kw_only=True)
class Example:
    """Requests at their times, and what each reads, writes for five minutes, writes for an hour, and pays in full."""

    says: str
    model: str
    requests: tuple[tuple[float, str], ...]
    expected: tuple[tuple[int, int, int, int], ...]


EXAMPLES = [
    Example(
        says="Anthropic: a marked prefix is written once and read from then on; what follows the mark is input",
        model="claude-sonnet-5",
        requests=((0, "system:2000! hello:100"), (60, "system:2000! bye:150")),
        expected=((0, 2_000, 0, 100), (2_000, 0, 0, 150)),
    ),
    Example(
        says="Anthropic: five minutes without use, and it is gone",
        model="claude-sonnet-5",
        requests=((0, "system:2000!"), (5 * MINUTE, "system:2000!")),
        expected=((0, 2_000, 0, 0), (0, 2_000, 0, 0)),
    ),
    Example(
        says="Anthropic: every use renews the five minutes",
        model="claude-sonnet-5",
        requests=((0, "system:2000!"), (4 * MINUTE, "system:2000!"), (8 * MINUTE, "system:2000!")),
        expected=((0, 2_000, 0, 0), (2_000, 0, 0, 0), (2_000, 0, 0, 0)),
    ),
    Example(
        says="Anthropic: an hour is an hour, and is charged apart",
        model="claude-sonnet-5",
        requests=((0, "system:2000!! talk:1000!"), (30 * MINUTE, "system:2000!! talk:1000!")),
        expected=((0, 1_000, 2_000, 0), (2_000, 1_000, 0, 0)),
    ),
    Example(
        says="Anthropic: below 1,024 tokens a Sonnet caches nothing, at 1,024 it does",
        model="claude-sonnet-5",
        requests=((0, "system:1023!"), (1, "other:1024!"), (2, "other:1024!")),
        expected=((0, 0, 0, 1_023), (0, 1_024, 0, 0), (1_024, 0, 0, 0)),
    ),
    Example(
        says="Anthropic: a Haiku 4.5 begins at 4,096 tokens",
        model="claude-haiku-4-5",
        requests=((0, "system:4095!"), (1, "other:4096!"), (2, "other:4096!")),
        expected=((0, 0, 0, 4_095), (0, 4_096, 0, 0), (4_096, 0, 0, 0)),
    ),
    Example(
        says="Anthropic: an Opus 5 begins at 512 tokens",
        model="claude-opus-5",
        requests=((0, "system:511!"), (1, "other:512!"), (2, "other:512!")),
        expected=((0, 0, 0, 511), (0, 512, 0, 0), (512, 0, 0, 0)),
    ),
    Example(
        says="Anthropic: tools stand first, so another tool list costs everything",
        model="claude-sonnet-5",
        requests=((0, "tools:1000 system:2000!"), (1, "others:1000 system:2000!")),
        expected=((0, 3_000, 0, 0), (0, 3_000, 0, 0)),
    ),
    Example(
        says="Anthropic: with two breakpoints, a changed conversation still reads the system prompt",
        model="claude-sonnet-5",
        requests=((0, "system:2000! talk:5000!"), (1, "system:2000! other:5000!")),
        expected=((0, 7_000, 0, 0), (2_000, 5_000, 0, 0)),
    ),
    Example(
        says="Anthropic: a conversation that grows reads all but its newest turn",
        model="claude-sonnet-5",
        requests=(
            (0, "system:2000 one:500!"),
            (1, "system:2000 one:500 two:700!"),
            (2, "system:2000 one:500 two:700 three:900!"),
        ),
        expected=((0, 2_500, 0, 0), (2_500, 700, 0, 0), (3_200, 900, 0, 0)),
    ),
    Example(
        says="Anthropic: an entry is found up to twenty blocks before a breakpoint",
        model="claude-sonnet-5",
        requests=((0, many(10, 200, "!")), (1, f"{many(10, 200)} {' '.join(f'n{n}:100' for n in range(18))} end:100!")),
        expected=((0, 2_000, 0, 0), (2_000, 1_900, 0, 0)),
    ),
    Example(
        says="Anthropic: and not further back",
        model="claude-sonnet-5",
        requests=((0, many(10, 200, "!")), (1, f"{many(10, 200)} {' '.join(f'n{n}:100' for n in range(19))} end:100!")),
        expected=((0, 2_000, 0, 0), (0, 4_000, 0, 0)),
    ),
    Example(
        says="OpenAI: from 1,024 tokens on, in steps of 128: of 2,000 tokens sent again 1,920 are cached",
        model="gpt-5.5",
        requests=((0, "prompt:2000"), (1, "prompt:2000")),
        expected=((0, 0, 0, 2_000), (1_920, 0, 0, 80)),
    ),
    Example(
        says="OpenAI: 1,023 tokens are never cached",
        model="gpt-5.5",
        requests=((0, "prompt:1023"), (1, "prompt:1023")),
        expected=((0, 0, 0, 1_023), (0, 0, 0, 1_023)),
    ),
    Example(
        says="OpenAI: the same beginning is cached, whatever follows",
        model="gpt-5.5",
        requests=((0, "system:1280 one:400"), (1, "system:1280 two:600")),
        expected=((0, 0, 0, 1_680), (1_280, 0, 0, 600)),
    ),
    Example(
        says="OpenAI: another beginning has nothing",
        model="gpt-5.5",
        requests=((0, "system:1280 one:400"), (1, "date:20 system:1280 one:400")),
        expected=((0, 0, 0, 1_680), (0, 0, 0, 1_700)),
    ),
    Example(
        says="OpenAI, GPT-5.6: the newest message is a breakpoint by itself and lives for half an hour",
        model="gpt-5.6",
        requests=(
            (0, "system:2000 one:500^"),
            (29 * MINUTE, "system:2000 one:500^ two:300^"),
            (HOUR, "system:2000 one:500^ two:300^"),
        ),
        expected=((0, 2_500, 0, 0), (2_500, 300, 0, 0), (0, 2_800, 0, 0)),
    ),
    Example(
        says="OpenAI, GPT-5.5: the longer retention only, so an hour without use costs nothing",
        model="gpt-5.5",
        requests=((0, "prompt:2048"), (HOUR, "prompt:2048")),
        expected=((0, 0, 0, 2_048), (2_048, 0, 0, 0)),
    ),
    Example(
        says="OpenAI, GPT-5.4: minutes without use, and it is gone",
        model="gpt-5.4",
        requests=((0, "prompt:2048"), (4 * MINUTE, "prompt:2048"), (HOUR, "prompt:2048")),
        expected=((0, 0, 0, 2_048), (2_048, 0, 0, 0), (0, 0, 0, 2_048)),
    ),
    Example(
        says="OpenAI, GPT-5.6: no rounding to 128 tokens, and another newest message finds no shorter prefix",
        model="gpt-5.6",
        requests=((0, "system:2000 one:501^"), (1, "system:2000 one:501^"), (2, "system:2000 two:501^")),
        expected=((0, 2_501, 0, 0), (2_501, 0, 0, 0), (0, 2_501, 0, 0)),
    ),
    Example(
        says="Anthropic: an Opus 4.7 begins at 2,048 tokens, an Opus 4.8 at 1,024",
        model="claude-opus-4-7",
        requests=((0, "system:2047!"), (1, "other:2048!"), (2, "other:2048!")),
        expected=((0, 0, 0, 2_047), (0, 2_048, 0, 0), (2_048, 0, 0, 0)),
    ),
    Example(
        says="DeepSeek: what the last request ended with is read, to the token",
        model="deepseek-chat",
        requests=((0, "a:700 b:301"), (1, "a:700 b:301 c:99")),
        expected=((0, 0, 0, 1_001), (1_001, 0, 0, 99)),
    ),
    Example(
        says="DeepSeek: a beginning that two requests share is read by the third, not by the second",
        model="deepseek/deepseek-chat",
        requests=((0, "a:700 b:300"), (1, "a:700 c:300"), (2, "a:700 d:300")),
        expected=((0, 0, 0, 1_000), (0, 0, 0, 1_000), (700, 0, 0, 300)),
    ),
    Example(
        says="Google: a Gemini 2.5 caches by itself from 2,048 tokens on",
        model="gemini-2.5-pro",
        requests=((0, "system:2047"), (1, "system:2047"), (2, "other:2048 one:500"), (3, "other:2048 two:500")),
        expected=((0, 0, 0, 2_047), (0, 0, 0, 2_047), (0, 0, 0, 2_548), (2_048, 0, 0, 500)),
    ),
    Example(
        says="Google: a Gemini 3 from 4,096 tokens on",
        model="google/gemini-3.1-pro-preview",
        requests=((0, "system:4095 one:1"), (1, "system:4095 two:1"), (2, "system:4095 two:1 three:5")),
        expected=((0, 0, 0, 4_096), (0, 0, 0, 4_096), (4_096, 0, 0, 5)),
    ),
]


def told(example: Example, rules: CacheRules) -> tuple[tuple[int, int, int, int], ...]:
    """Return what the simulation says of every request."""
    now = 0.0
    account = ProviderCache(rules, clock=lambda: now)
    uses: list[CacheUse] = []
    for now, text in example.requests:  # noqa: B007 - the clock reads it
        uses.append(account.request("m", blocks=blocks(text)))
    return tuple((use.read, use.write_5m, use.write_1h, use.input) for use in uses)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.says)
def test_the_simulation_agrees(example: Example) -> None:
    assert told(example, rules_of(example.model)) == example.expected


@pytest.mark.parametrize(
    ("maker", "wrong"),
    [
        ("claude", {"lookback": 19}),
        ("claude", {"lookback": 21}),
        ("claude", {"lifetimes": {"5m": 301.0, "1h": HOUR}}),
        ("claude", {"lifetimes": {"5m": 300.0, "1h": 20 * MINUTE}}),
        ("claude", {"minimum": 1_000}),
        ("gpt-5.5", {"step": 1}),
        ("gpt-5.5", {"minimum": 2_001}),
        ("gpt-5.5", {"lifetimes": {"": 600.0}}),
        ("gpt-5.6", {"lifetimes": {"": 20 * MINUTE}}),
        ("gpt-5.6", {"manner": "stepped", "step": 128}),
        ("deepseek", {"manner": "stepped"}),
        ("deepseek", {"manner": "managed", "candidates": 20, "marks": 4}),
        ("gemini", {"minimum": 1_024}),
        ("google", {"minimum": 1_024}),
    ],
)
def test_planted_a_wrong_rule_disagrees_with_an_example(maker: str, wrong: dict[str, Any]) -> None:
    examples = [example for example in EXAMPLES if example.model.startswith(maker)]
    assert any(told(one, replace(rules_of(one.model), **wrong)) != one.expected for one in examples)


@pytest.mark.parametrize(
    ("usage", "dollars"),
    [
        ({"input_tokens": 1_000_000}, 2.00),
        ({"cache_write_tokens": 1_000_000}, 2.50),  # 1.25 times the input
        ({"cache_write_tokens": 1_000_000, "cache_write_1h_tokens": 1_000_000}, 4.00),  # twice the input
        ({"cache_read_tokens": 1_000_000}, 0.20),  # a tenth of the input
        ({"output_tokens": 1_000_000}, 10.00),
        ({"cache_read_tokens": 100_000, "cache_write_tokens": 2_000, "output_tokens": 300}, 0.020 + 0.005 + 0.003),
    ],
)
def test_a_request_to_sonnet_5_costs(usage: dict[str, int], dollars: float) -> None:
    assert cost(usage, "claude-sonnet-5") == pytest.approx(dollars)
