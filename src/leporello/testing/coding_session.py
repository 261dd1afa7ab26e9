"""A coding session of any length, made from a number, in which the agent comes back to what it saw long before.

Files are read, tests fail and pass, and now and then a file is edited that was read many turns ago, without being read
again: its path, the function and the value in it must still be known then. So the session shows what a context policy
keeps of what is needed later.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from random import Random
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leporello.messages.types import Message

_NOUNS = (
    "berth", "crane", "cargo", "manifest", "tide", "gate", "pilot", "quay", "vessel", "buoy", "anchor", "customs",
    "ledger", "invoice", "roster", "beacon",
)  # fmt: skip
_VERBS = (
    "assign", "release", "weigh", "reserve", "notify", "schedule", "inspect", "settle", "measure", "export", "retry",
    "merge", "split",
)  # fmt: skip
_STORY = """
    the loader keeps stale entries until the next tide table arrives because nobody evicts them while a pilot waits for
    clearance and the harbour master confirms each movement twice before the crane operator may start lifting
"""
_WORDS = tuple(_STORY.split())
_STEP, _PAUSE = timedelta(seconds=20), timedelta(minutes=30)
_FAR, _LONG_PAUSE, _RULE_EVERY, _LINES = 0.35, 40, 9, 24


@dataclass(frozen=True, kw_only=True)
class _Fact:
    """What the agent saw in a file: a function, and a value in it."""

    path: str
    function: str
    constant: str
    value: int


def coding_session(turns: int, *, seed: int = 7) -> list[Message]:
    """Return the messages of `turns` turns, with their times; about 1,100 tokens each."""
    author = _Author(Random(seed))  # noqa: S311 - reproducible examples, no cryptography
    author.say("system", "You are a careful engineer who works on the software of a harbour.")
    for turn in range(turns):
        author.turn(turn)
    return author.messages


@dataclass
class _Author:
    """Writes the session, message by message."""

    random: Random
    messages: list[Message] = field(default_factory=list)
    facts: list[_Fact] = field(default_factory=list)
    now: datetime = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)

    def say(self, role: str, content: str | None, **fields: Any) -> None:
        self.now += _STEP
        message = {"role": role, "content": content, **fields, "timestamp": self.now.isoformat()}
        self.messages.append(cast("Message", message))

    def call(self, text: str, name: str, result: str, **arguments: Any) -> None:
        id_ = f"call_{len(self.messages)}"
        function = {"name": name, "arguments": json.dumps(arguments)}
        self.say("assistant", text, tool_calls=[{"id": id_, "type": "function", "function": function}])
        self.say("tool", result, tool_call_id=id_)

    def turn(self, number: int) -> None:
        """Read a file, run its tests, change one that was read before, report."""
        if number % _LONG_PAUSE == _LONG_PAUSE - 1:
            self.now += _PAUSE
        new = self._fact(number)
        rule = f" Never rename {new.function}, other teams call it." if number % _RULE_EVERY == 0 else ""
        self.say("user", f"Ticket HRB-{1000 + number}: the {self._noun()} is wrong in {new.path}.{rule}")
        self.call(f"I read {new.path} first.", "read_file", self._source(new), path=new.path)
        error = f"AssertionError: expected {new.value} {self._noun()} entries, got {new.value - 1}"
        self.call("I run its tests.", "terminal", self._tests(new, error), command=f"pytest -q {self._test_of(new)}")
        for fact in (new, *self._recalled()):
            self.call(
                f"I set {fact.constant} in {fact.function} of {fact.path}, it was {fact.value}.",
                "edit_file",
                f"edited {fact.path}",
                path=fact.path,
                old=f"{fact.constant} = {fact.value}",
                new=f"{fact.constant} = {fact.value + 1}  # used by {fact.function}",
            )
        decision = f" I decided to keep {new.function} instead of splitting it." if number % _RULE_EVERY == 1 else ""
        self.say("assistant", f"HRB-{1000 + number} is done: {new.constant} was off by one.{decision}")
        self.facts.append(new)

    def _recalled(self) -> Iterator[_Fact]:
        """Yield what the agent comes back to: something from long ago, or from the last turns."""
        if self.facts:
            far = self.random.random() < _FAR
            yield self.random.choice(self.facts if far else self.facts[-4:])

    def _fact(self, number: int) -> _Fact:
        noun, verb = self._noun(), self.random.choice(_VERBS)
        return _Fact(
            path=f"src/harbour/{noun}/{verb}_{number:03d}.py",
            function=f"{verb}_{noun}_{self.random.randint(10, 99)}",
            constant=f"{noun.upper()}_LIMIT_{number}",
            value=self.random.randint(1_000, 99_999),
        )

    def _source(self, fact: _Fact) -> str:
        lines = [f"{fact.constant} = {fact.value}", "", f"def {fact.function}(entries, limit={fact.constant}):"]
        for _ in range(_LINES):
            lines.append(f"    # {self._sentence(7)}")
            name = f"{self._noun()}_{self.random.randint(100, 999)}"
            lines.append(f"    {name} = {self._noun()}.get({self.random.randint(10, 99)})")
        return "\n".join(f"{at:4d}  {line}" for at, line in enumerate(lines, 1))

    def _tests(self, fact: _Fact, error: str) -> str:
        passed = [f"{self._test_of(fact)}::test_{self._noun()}_{n} PASSED" for n in range(12)]
        return "\n".join([*passed, f"{self._test_of(fact)}::test_{fact.function} FAILED", error, "1 failed, 12 passed"])

    def _test_of(self, fact: _Fact) -> str:
        return fact.path.replace("src/harbour", "tests").replace("/", "/test_", 1)

    def _noun(self) -> str:
        return self.random.choice(_NOUNS)

    def _sentence(self, words: int) -> str:
        start = self.random.randrange(len(_WORDS) - words)
        return " ".join(_WORDS[start : start + words])
