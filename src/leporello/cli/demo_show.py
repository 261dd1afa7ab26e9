"""The demonstration itself: one conversation, two engines, and questions about what was folded."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from leporello.compressor import ContextCompressor
from leporello.errors import StoreError
from leporello.lcm import Finding, LCMEngine, verify
from leporello.messages import Message, is_system, role_of, text_of
from leporello.proof.needed import in_context
from leporello.summary.masking import masked_stop
from leporello.summary.placement import strip_summary
from leporello.tokens import count_message, count_messages, count_request

if TYPE_CHECKING:
    from leporello.engine import CompactionReport, ContextEngine
    from leporello.store import Store
    from leporello.testing.demo_conversation import DemoConversation

CONVERSATION = "demo"
QUESTIONS = (
    "Which berth got two containers at the same time?",
    "PORT-2291",
    "8c1f2e6a-41d7-4c55-9f0e-2b7a6d90e113",
    "src/harbour/webhooks/signing.py",
)


@dataclass
class Side:
    """One engine at work: the window as the model would get it, and what happened to it.

    `tokens` are those of a request with this window.
    """

    engine: ContextEngine
    window: list[Message] = field(default_factory=list)
    tokens: int = count_request([])
    largest: int = 0
    reports: list[CompactionReport] = field(default_factory=list)

    def step(self, message: Message) -> None:
        """Take one more message, and fold before the model would be called."""
        self.window.append(message)
        self.tokens += count_message(message)
        self.largest = max(self.largest, self.tokens)
        if role_of(message) not in ("user", "tool"):
            return
        self.engine.should_compress_preflight(self.window)
        if self.engine.should_compress(self.tokens):
            self.window = self.engine.compress(self.window, current_tokens=self.tokens)
            self.tokens = count_request(self.window)
            assert self.engine.last_compaction is not None  # noqa: S101 - compress() always reports
            self.reports.append(self.engine.last_compaction)

    @property
    def summary(self) -> str:
        """The summary in the window, or ""."""
        return strip_summary(self.window, self.window).previous

    def parts(self) -> dict[str, int]:
        """Count the tokens of the window by part."""
        rest = [message for message in strip_summary(self.window, self.window).messages if not is_system(message)]
        system = sum(count_message(message) for message in self.window if is_system(message))
        masked = count_messages(rest[: masked_stop(rest)])
        return {
            "system": system,
            "summary": count_messages(self.window) - system - count_messages(rest),
            "masked": masked,
            "messages": count_messages(rest) - masked,
        }

    def kept(self, story: DemoConversation) -> dict[str, str]:
        """Say which of the things that matter are still in the window."""
        text = "\n".join(json.dumps(message, ensure_ascii=False) for message in self.window)
        paths = sum(path in text for path in story.paths)
        errors = sum(json.dumps(error, ensure_ascii=False)[1:-1] in text for error in story.errors)
        beside = len(in_context(story.paths, story.messages, self.window))
        return {
            "file paths": f"{paths} of {len(story.paths)}",
            "file paths, in context": f"{beside} of {len(story.paths)}",
            "errors": f"{errors} of {len(story.errors)}",
            "the last instruction": "word for word" if text_of(self.window[-1]) == story.last_instruction else "no",
        }


@dataclass
class Demonstration:
    """The state of the show: the conversation so far, folded by both engines; the lossless one keeps it in a store."""

    story: DemoConversation
    compressor: Side
    lcm: Side
    store: Store
    seen: int = 0
    original_tokens: int = count_request([])

    @classmethod
    def of(cls, story: DemoConversation, window: int, store: Store) -> Demonstration:
        """Set up both engines; a store that has been used for this before is refused."""
        if store.info(CONVERSATION) is not None:
            raise StoreError(
                f"there is a conversation {CONVERSATION!r} already.",
                place=store.url,
                hint=f"Name a new file, or delete it: leporello sessions delete {CONVERSATION} --yes",
            )
        engines = (ContextCompressor(window), LCMEngine(window, store=store))
        for engine in engines:
            engine.on_event = lambda _: None
            engine.on_session_start(CONVERSATION)
        compressor, lcm = map(Side, engines)
        return cls(story, compressor, lcm, store)

    @property
    def sides(self) -> tuple[Side, Side]:
        """Both engines."""
        return self.compressor, self.lcm

    def step(self, message: Message) -> None:
        """Let the conversation go on by one message."""
        self.seen += 1
        self.original_tokens += count_message(message)
        for side in self.sides:
            side.step(message)

    def answers(self) -> list[dict[str, Any]]:
        """Ask the lossless engine about turns that are folded; each answer has its best hits."""
        return [{"question": question, "hits": self._grep(question)} for question in QUESTIONS]

    def verified(self) -> list[Finding]:
        """Prove that nothing is lost; [] when nothing is."""
        return verify(self.store, CONVERSATION)

    def word_for_word(self) -> str:
        """Say how many messages of the conversation come back from the store exactly as they were."""
        stored = [row.message for row in self.store.messages(CONVERSATION, system=True)]
        said = [message for message in stored if not is_system(message)]
        systems = [message for message in self.story.messages if is_system(message)]
        same = zip(said, [m for m in self.story.messages if not is_system(m)], strict=False)
        equal = sum(one == other for one, other in same) + sum(message in stored for message in systems)
        return f"{equal} of {len(self.story.messages)}"

    def _grep(self, question: str) -> list[dict[str, Any]]:
        answer = json.loads(self.lcm.engine.handle_tool_call("lcm_grep", {"query": question, "limit": 3}))
        hits: list[dict[str, Any]] = answer["results"]
        return hits
