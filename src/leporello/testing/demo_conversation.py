"""A long, realistic agent conversation for demonstrations: a coding agent at work on a small service.

It is generated from a story and a fixed seed, so that everybody sees the same one: several requests of a user with
constraints, file reads, searches, edits, failing and passing test runs. What must survive a compaction is known
exactly: every path, every error, the last instruction.
"""

from __future__ import annotations

import json
import random
import tomllib
from dataclasses import dataclass, field
from importlib.resources import files
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from leporello.messages import Message


@dataclass(frozen=True, kw_only=True)
class DemoConversation:
    """The conversation, and what a reader of its summary must still know."""

    messages: list[Message]
    paths: tuple[str, ...]
    errors: tuple[str, ...]
    last_instruction: str


def demo_conversation(seed: int = 7) -> DemoConversation:
    """Return the demonstration conversation: a few hundred messages, about 150,000 tokens."""
    story = tomllib.loads(files("leporello.testing").joinpath("demo_story.toml").read_text(encoding="utf-8"))
    author = _Author(random.Random(seed), story["nouns"], story["verbs"])  # noqa: S311 - a story, no secrets
    author.say("system", story["system"])
    for number, task in enumerate(story["tasks"]):
        author.work_on(task, number)
    author.say("user", story["last_instruction"])
    return DemoConversation(
        messages=author.messages,
        paths=tuple(path for task in story["tasks"] for path in (*task["files"], task["test"])),
        errors=tuple(task["error"] for task in story["tasks"]),
        last_instruction=story["last_instruction"],
    )


@dataclass
class _Author:
    """Writes the story, message by message."""

    rng: random.Random
    nouns: list[str]
    verbs: list[str]
    messages: list[Message] = field(default_factory=list)

    def say(self, role: str, text: str) -> None:
        self.messages.append({"role": role, "content": text})

    def call(self, text: str | None, *calls: tuple[str, dict[str, Any], str]) -> None:
        """Call tools, and add their results."""
        ids = [f"call_{len(self.messages):04d}_{number}" for number in range(len(calls))]
        tool_calls = [
            {"id": id_, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for id_, (name, arguments, _) in zip(ids, calls, strict=True)
        ]
        self.messages.append({"role": "assistant", "content": text, "tool_calls": tool_calls})
        for id_, (_, _, result) in zip(ids, calls, strict=True):
            self.messages.append({"role": "tool", "tool_call_id": id_, "content": result})

    def work_on(self, task: dict[str, Any], number: int) -> None:
        """Let the agent look, see it fail, try, succeed and report."""
        paths, test = task["files"], task["test"]
        self.say("user", task["request"])
        self.call(
            "Let me look at the code first.", *[("read_file", {"path": path}, self.source(path)) for path in paths]
        )
        self.call(None, self.search(paths))
        self.call("I run the tests to see it fail.", self.tests(task, fail=True))
        for attempt, path in enumerate(paths):
            self.call(None, ("read_file", {"path": path, "offset": 120 * attempt}, self.source(path)))
            self.call(None, ("terminal", {"command": f"git log --oneline -12 -- {path}"}, self.history()))
            written = ("write_file", {"path": path, "content": self.source(path, 60)}, f"wrote {path} (60 lines)")
            self.call(None if attempt else task["finding"], written)
            self.call(None, self.tests(task, fail=attempt == 0))
        self.call(task["decision"], ("write_file", {"path": test, "content": self.source(test, 70)}, f"wrote {test}"))
        self.call(None, self.tests(task, fail=False))
        self.call(None, self.log(number))
        self.say("assistant", f"Done. {task['finding']} The tests in {test} pass now.")

    def tests(self, task: dict[str, Any], *, fail: bool) -> tuple[str, dict[str, Any], str]:
        test, total = task["test"], self.rng.randint(38, 90)
        lines = [f"{test}::test_{self.noun}_{i:02d} PASSED [{i * 100 // total:3d}%]" for i in range(total)]
        if fail:
            lines.insert(total // 2, f"{test}::test_regression FAILED [ 50%]")
            lines += ["=== FAILURES ===", "Traceback (most recent call last):"]
            lines += [f'  File "{path}", line {self.rng.randint(20, 240)}, in {self.verb}' for path in task["files"]]
            lines.append(task["error"])
        outcome = f"1 failed, {total} passed" if fail else f"{total} passed"
        lines += [f"=== {outcome} in {self.rng.random() * 9:.2f}s ===", f"exit code: {int(fail)}"]
        return "terminal", {"command": f"pytest -v {test}"}, "\n".join(lines)

    def search(self, paths: list[str]) -> tuple[str, dict[str, Any], str]:
        hits = (f"{self.rng.choice(paths)}:{self.rng.randint(1, 260)}: {self.code().strip()}" for _ in range(40))
        return "search_files", {"pattern": self.noun, "path": "src"}, "\n".join(hits)

    def history(self) -> str:
        return "\n".join(f"{self.rng.getrandbits(28):07x} {self.verb} the {self.noun}" for _ in range(12))

    def log(self, number: int) -> tuple[str, dict[str, Any], str]:
        lines = (
            f"2026-03-{number + 10:02d}T04:{i // 60:02d}:{i % 60:02d}Z INFO harbour.{self.noun} "
            f"{self.verb} took {self.rng.randint(1, 280)} ms, {self.rng.randint(0, 9000)} rows"
            for i in range(100)
        )
        return "terminal", {"command": "tail -n 100 logs/harbour.log"}, "\n".join(lines)

    def source(self, path: str, lines: int = 0) -> str:
        """Return something that reads like the file of that name."""
        body = [f'"""{path}: part of harbour."""', "", "from __future__ import annotations", ""]
        for _ in range((lines or self.rng.randint(80, 140)) // 8):
            noun = self.noun
            body += [
                f"def {self.verb}_{noun}({noun}: str, limit: int = {self.rng.randint(1, 500)}) -> list[str]:",
                f'    """Return the {noun} that belongs to the {self.noun}."""',
                *(self.code() for _ in range(4)),
                "",
                "",
            ]
        return "\n".join(body)

    def code(self) -> str:
        noun, other, verb = self.noun, self.noun, self.verb
        return self.rng.choice(
            (
                f"    {noun} = {verb}({other}, timeout={self.rng.randint(1, 90)})",
                f"    if {noun} is None: return []",
                f"    log.debug('{verb} %s', {noun})",
                f"    rows = session.execute(select({noun.title()}).where({noun.title()}.{other} == {other}))",
            )
        )

    @property
    def noun(self) -> str:
        return self.rng.choice(self.nouns)

    @property
    def verb(self) -> str:
        return self.rng.choice(self.verbs)
