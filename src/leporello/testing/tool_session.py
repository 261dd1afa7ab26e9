"""A long session of an agent with tools, made from a number: plain English, no two turns alike."""

from __future__ import annotations

import json
from random import Random
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leporello.messages.types import Message

_WORDS = ("berth", "crane", "load", "manifest", "slot", "tide", "gate", "4711", "release", "v2")
_MANY_CALLS, _EVERY = 30, 40


def tool_session(turns: int, *, answer_words: int = 40, result_words: int = 60, seed: int = 7) -> Iterator[Message]:
    """Yield the messages of `turns` turns: a question, one to three rounds of calls, an answer.

    A round has up to four calls; in every fortieth turn one has thirty, more blocks than a provider looks back over.
    """
    random = Random(seed)  # noqa: S311 - reproducible examples, no cryptography
    for turn in range(turns):
        yield {"role": "user", "content": f"Question {turn}: {_words(random, 30)}"}
        for number in range(random.randint(1, 3)):
            many = turn % _EVERY == _EVERY - 1 and not number
            yield from _round(random, f"{turn}_{number}", _MANY_CALLS if many else random.randint(1, 4), result_words)
        yield {"role": "assistant", "content": f"Answer {turn}: {_words(random, answer_words)}"}


def _round(random: Random, name: str, calls: int, result_words: int) -> Iterator[Message]:
    made: list[dict[str, Any]] = [
        {
            "id": f"call_{name}_{n}",
            "type": "function",
            "function": {"name": "read", "arguments": json.dumps({"path": f"src/{_words(random, 1)}_{n}.py"})},
        }
        for n in range(calls)
    ]
    yield {"role": "assistant", "content": None, "tool_calls": made}
    for call in made:
        yield {"role": "tool", "tool_call_id": call["id"], "content": _words(random, result_words)}


def _words(random: Random, count: int) -> str:
    return " ".join(random.choices(_WORDS, k=count))
