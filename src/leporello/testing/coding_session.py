"""A coding session of any length, made from a number, in which the agent comes back to what it saw long before.

Files are read, tests fail and pass, and now and then a file is edited that was read many turns ago, without being read
again: its path, the function and the value in it must still be known then. So the session shows what a context policy
keeps of what is needed later.

Each file is about a few places. As with the words of any language, a few places are named everywhere and most of them
seldom, and a file that was just read is often read again. So what stands beside a value stands in few other messages,
however long the session is, nearly as in recorded ones.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import accumulate
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
_FIRST = """
    amber ash birch black blue bramble bright clay clover cold copper coral drift east elm ember fern flint fox gold
    granite green grey hazel heron high iron ivy juniper kestrel long marsh moss north oak old otter pine raven red rose
    salt sand silver south spring stone storm summer swan thistle thorn west white willow winter wood wren yarrow
"""
_SECOND = """
    bank bay bourne bridge brook cliff cove croft dale edge fall fell field ford gate glen grove hall haven head hill
    holm hurst land light mere mill moor mouth pool port reach ridge rock shore stead strand view water wick
"""
_PLACES = tuple(first + second for first in _FIRST.split() for second in _SECOND.split())
_OFTEN = tuple(accumulate(1 / rank for rank in range(1, len(_PLACES) + 1)))  # Zipf's law
_OF_A_FILE = 6
_STEP, _PAUSE = timedelta(seconds=20), timedelta(minutes=30)
_FAR, _AGAIN, _LONG_PAUSE, _RULE_EVERY, _LINES = 0.35, 0.5, 40, 9, 24


@dataclass(frozen=True, kw_only=True)
class _Fact:
    """What the agent saw in a file: a function, a value in it, and the places that it is about."""

    path: str
    function: str
    constant: str
    value: int
    places: tuple[str, ...]


def coding_session(turns: int, *, seed: int = 7) -> list[Message]:
    """Return the messages of `turns` turns, with their times; about 1,600 tokens each."""
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
    sources: dict[str, str] = field(default_factory=dict)
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
        wrong = f"the {self._noun()} is wrong in {new.path}: {self._sentence(new)}"
        self.say("user", f"Ticket HRB-{1000 + number}: {wrong}.{rule}")
        source = self.sources[new.path] = self._source(new)
        self.call(f"I read {new.path} first.", "read_file", source, path=new.path)
        where = self.random.choice(new.places)
        error = f"AssertionError: expected {new.value} {self._noun()} entries of {where}, got {new.value - 1}"
        self.call("I run its tests.", "terminal", self._tests(new, error), command=f"pytest -q {self._test_of(new)}")
        for fact in (new, *self._recalled()):
            self.call(
                f"I set {fact.constant} in {fact.function} of {fact.path}, it was {fact.value}, {self._sentence(fact)}",
                "edit_file",
                f"edited {fact.path}",
                path=fact.path,
                old=f"{fact.constant} = {fact.value}",
                new=f"{fact.constant} = {fact.value + 1}  # used by {fact.function}",
            )
        decision = f" I decided to keep {new.function} instead of splitting it." if number % _RULE_EVERY == 1 else ""
        report = f"{new.constant} was off by one, {self._sentence(new)}"
        self.say("assistant", f"HRB-{1000 + number} is done: {report}.{decision}")
        self.facts.append(new)

    def _recalled(self) -> Iterator[_Fact]:
        """Yield what the agent comes back to: something from long ago, or something recent, often read again first."""
        if not self.facts:
            return
        if self.random.random() < _FAR:
            yield self.random.choice(self.facts)
            return
        recent = self.random.choice(self.facts[-4:])
        if self.random.random() < _AGAIN:
            self.call(f"I read {recent.path} again.", "read_file", self.sources[recent.path], path=recent.path)
        yield recent

    def _fact(self, number: int) -> _Fact:
        noun, verb = self._noun(), self.random.choice(_VERBS)
        return _Fact(
            path=f"src/harbour/{noun}/{verb}_{number:03d}.py",
            function=f"{verb}_{noun}_{self.random.randint(10, 99)}",
            constant=f"{noun.upper()}_LIMIT_{number}",
            value=self.random.randint(1_000, 99_999),
            places=tuple(self.random.choices(_PLACES, cum_weights=_OFTEN, k=_OF_A_FILE)),
        )

    def _source(self, fact: _Fact) -> str:
        lines = [f"{fact.constant} = {fact.value}", "", f"def {fact.function}(entries, limit={fact.constant}):"]
        for _ in range(_LINES):
            lines.append(f"    # {self._sentence(fact)}")
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

    def _sentence(self, fact: _Fact) -> str:
        start = self.random.randrange(len(_WORDS) - 5)
        first, second = self.random.choices(fact.places, k=2)
        return " ".join([*_WORDS[start : start + 3], first, *_WORDS[start + 3 : start + 5], second])
