"""V13, the unread is untouched, and V14, worth it: for both engines, over generated conversations.

Each conversation has a system prompt and tools of up to half the window, tool loops with parallel calls, and pictures,
and is compacted three times. `make test` runs 160 conversations for each engine; `make soak` 2,000. A failure names the
seed that replays it.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from leporello import ContextCompressor, LCMEngine
from leporello.llm import ScriptedLLM
from leporello.messages import Message, is_system, repair, role_of, violations
from leporello.testing.manual_executor import ManualExecutor
from leporello.tokens import count_message, count_messages

if TYPE_CHECKING:
    from leporello.engine import ContextEngine

CONVERSATIONS = 2_000 if os.environ.get("LEPORELLO_SOAK") else 160
BATCHES = 4
GOOD = "## Goal\nFix the build.\n\n## Progress\n### Done\n- Read src/app.py.\n\n## Next Steps\n- Run the tests."
PICTURE = "data:image/png;base64,iVBORw0KGgo="
SLACK = 700  # tokens: marks and a short summary, the shortened head, the calls that unread results belong to


@dataclass
class Talk:
    """A growing conversation with a tool list of a known size."""

    random: Random
    window: int
    number: int = 0

    def __post_init__(self) -> None:
        fixed = self.random.randint(0, self.window // 2)
        system = self.random.randint(0, fixed)
        self.tools = fixed - system
        self.messages: list[Message] = [{"role": "system", "content": self.text(system)}] if system else []
        self.messages.append({"role": "user", "content": "Please fix the build. " + self.text(20)})

    def text(self, tokens: int) -> str:
        words = ("crane", "yard", "port", "error", "src/app.py", "assign", "0x7f3a", "retry", "build")
        return " ".join(f"{self.random.choice(words)}{self.random.randint(0, 999)}" for _ in range(tokens // 3))

    def size(self) -> int:
        return self.random.choice((20, 200, self.window // 40, self.window // 10, self.window // 6))

    def calls(self) -> list[Message]:
        ids = []
        for _ in range(self.random.choice((1, 1, 1, 2, 4))):
            self.number += 1
            ids.append(f"call-{self.number}")
        function = {"name": "run", "arguments": json.dumps({"command": self.text(15)})}
        calls = [{"id": i, "type": "function", "function": function} for i in ids]
        results: list[Message] = [{"role": "tool", "tool_call_id": i, "content": self.content(len(ids))} for i in ids]
        return [{"role": "assistant", "content": None, "tool_calls": calls}, *results]

    def content(self, together: int = 1) -> Any:
        text = self.text(self.size() // together) or "done"
        if self.random.random() < 0.1:
            return [{"type": "text", "text": text}, {"type": "image_url", "image_url": {"url": PICTURE}}]
        return text

    def grow(self) -> None:
        """Add a tool round, or an answer and the user's next message, or a message behind unread results."""
        kind = self.random.random()
        if role_of(self.messages[-1]) == "user" or kind < 0.7:
            self.messages += self.calls()
        else:
            if kind < 0.9:
                self.messages.append({"role": "assistant", "content": self.text(self.random.choice((30, 300)))})
            self.messages.append({"role": "user", "content": self.content()})

    def prompt_tokens(self) -> int:
        return count_messages(self.messages) + self.tools


def unread(messages: list[Message]) -> list[Message]:
    newest = max((i for i, m in enumerate(messages) if role_of(m) == "assistant"), default=-1)
    return [m for m in messages[newest + 1 :] if not is_system(m)]


def limit(window: int) -> int:
    """Return the model's window less the answer, as the documentation states it."""
    return window - min(window // 8, 4_096)


def check_unread(before: list[Message], after: list[Message], engine: ContextEngine, tools: int) -> bool:
    """V13; returns whether the unread had to be cut."""
    new = unread(before)
    user = next((m for m in reversed(before) if role_of(m) == "user"), None)
    kept = [*(m for m in before if is_system(m)), *new, *([user] if user and user not in new else [])]
    whole = after[len(after) - len(new) :] == new
    if count_messages(kept) + tools + SLACK <= limit(engine.context_length):
        assert whole, "what was unread has changed although it fits"
    if not whole:
        assert engine.last_compaction is not None
        assert engine.last_compaction.unfoldable, "the report does not name what was cut unread"
    return not whole


def check_worth(before: list[Message], after: list[Message], engine: ContextEngine, prompt: int, *, asked: bool) -> str:
    """V14; returns what happened."""
    report = engine.last_compaction
    assert report is not None
    freed = count_messages(before) - count_messages(after)
    if report.status not in ("folded", "fallback"):
        assert report.reason, "nothing was done, and nothing says why"
        return "not worth it" if "a tenth of the threshold" in report.reason else "nothing to fold"
    assert freed > 0
    if asked or prompt > limit(engine.context_length):
        return "asked" if asked else "at the limit"
    assert freed >= engine.threshold_tokens // 10, f"freed {freed} of {engine.threshold_tokens}"
    return "worth it"


def make_engine(kind: str, window: int, random: Random) -> ContextEngine:
    llm = ScriptedLLM(GOOD, context_length=32_000) if random.random() < 0.5 else None
    if kind == "compressor":
        return ContextCompressor(window, config={"protect_last_n": random.choice((1, 6, 20))}, llm=llm)
    threshold: Any = random.choice(("auto", 0.5))
    return LCMEngine(window, config={"threshold": threshold}, llm=llm, executor=ManualExecutor())


def compact_three_times(kind: str, seed: int, seen: Counter[str]) -> None:
    random = Random(seed)
    talk = Talk(random, random.choice((8_192, 16_000, 32_000, 64_000)))
    engine = make_engine(kind, talk.window, random)
    engine.on_event = lambda _: None
    engine.on_session_start(f"seed-{seed}")
    compactions = 0
    for _ in range(400):
        talk.grow()
        prompt = talk.prompt_tokens()
        engine.should_compress_preflight(talk.messages)
        asked = random.random() < 0.02
        if not (engine.should_compress(prompt) or asked):
            continue
        before = talk.messages
        options: dict[str, Any] = {"force": True} if asked else {}
        after = engine.compress(before, current_tokens=prompt, **options)
        for dialect in ("openai", "anthropic"):
            assert not violations(after, dialect), violations(after, dialect)[0]
        seen["cut"] += check_unread(list(repair(before).messages), after, engine, talk.tools)
        seen[check_worth(before, after, engine, prompt, asked=asked)] += 1
        talk.messages = after
        compactions += 1
        if compactions == 3:
            break
    engine.close()
    assert compactions == 3


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(BATCHES))
@pytest.mark.parametrize("kind", ["compressor", "lcm"])
def test_the_unread_is_untouched_and_every_fold_is_worth_it(kind: str, batch: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(batch, CONVERSATIONS, BATCHES):
        try:
            compact_three_times(kind, seed, seen)
        except BaseException as error:
            error.add_note(f"seed {seed}")
            raise
    wanted = {"worth it", "not worth it", "asked"}
    assert wanted <= seen.keys(), f"never seen: {wanted - seen.keys()} in {seen}"


class TestTheChecksCanFail:
    """Planted defects, run through the same checks."""

    def compacted(self) -> tuple[list[Message], list[Message], ContextEngine, Talk]:
        talk = Talk(Random(4), 16_000)
        engine = ContextCompressor(16_000, config={"protect_last_n": 4})
        while talk.prompt_tokens() < engine.threshold_tokens or role_of(talk.messages[-1]) != "tool":
            talk.grow()
        after = engine.compress(talk.messages, current_tokens=talk.prompt_tokens())
        return talk.messages, after, engine, talk

    def test_the_sound_result_passes(self) -> None:
        before, after, engine, talk = self.compacted()
        assert not check_unread(before, after, engine, talk.tools)
        assert check_worth(before, after, engine, talk.prompt_tokens(), asked=False) == "worth it"

    @pytest.mark.parametrize("content", ["[Old tool output cleared to save context space]", "short"])
    def test_a_cut_result_is_caught(self, content: str) -> None:
        before, after, engine, talk = self.compacted()
        planted: list[Message] = [*after[:-1], {**after[-1], "content": content}]
        with pytest.raises(AssertionError, match="unread"):
            check_unread(before, planted, engine, talk.tools)

    def test_a_fold_that_frees_little_is_caught(self) -> None:
        before, after, engine, talk = self.compacted()
        padding: Message = {"role": "user", "content": talk.text(3 * (count_messages(before) - count_messages(after)))}
        while count_messages([*after, padding]) >= count_messages(before):
            padding = {**padding, "content": padding["content"][: -len(padding["content"]) // 20]}
        assert count_message(padding) > 0
        with pytest.raises(AssertionError, match="freed"):
            check_worth(before, [*after, padding], engine, talk.prompt_tokens(), asked=False)


def test_a_little_fold_on_request_spends_no_model_call() -> None:
    """Below one per cent of the window the words around a model call cost more than it frees."""
    messages: list[Message] = [
        {"role": "system", "content": "Know this: " + "port crane yard " * 16_000},
    ]
    messages += [{"role": ("user", "assistant")[n % 2], "content": f"note {n}: " + "yes " * 60} for n in range(4)]
    messages += [{"role": ("user", "assistant")[n % 2], "content": "ok"} for n in range(20)]
    messages.append({"role": "user", "content": "And now?"})
    llm = ScriptedLLM(GOOD, context_length=200_000)
    engine = ContextCompressor(200_000, llm=llm)
    engine.compress(messages, force=True)
    assert engine.last_compaction is not None
    assert not llm.calls
