"""The demonstration conversation in a store, as a session left it: with a journal, folds, branches and prices."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from leporello.caching.providers import rules_of
from leporello.caching.simulate import ProviderCache
from leporello.messages import role_of
from leporello.session import Session
from leporello.store import open_store
from leporello.testing.demo_conversation import demo_conversation
from leporello.tokens import count_message

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leporello.messages import Message
    from leporello.store import Store

    Ask = Callable[[dict[str, Any], Message], Any]

CONVERSATION: Final = "harbour"
MODEL: Final = "claude-sonnet-5"
WINDOW: Final = 48_000
BEGAN: Final = 1_773_129_600.0
"""The time of the first message: 10 March 2026, 08:00 UTC."""

_STEP: Final = 9.0  # seconds from one message to the next
_TOOLS: Final = (
    ("read_file", "Read a file of the repository.", ("path", "offset")),
    ("write_file", "Write a file of the repository.", ("path", "content")),
    ("search_files", "Search the files of the repository.", ("pattern", "path")),
    ("terminal", "Run a command.", ("command",)),
)
TOOLS: Final[list[dict[str, Any]]] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": told,
            "parameters": {"type": "object", "properties": {field: {"type": "string"} for field in fields}},
        },
    }
    for name, told, fields in _TOOLS
]


@dataclass
class Clock:
    """Seconds since the epoch, which pass when the story says so."""

    now: float = BEGAN

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def demo_store(
    *, engine: str = "lcm", model: str = MODEL, provider: str = "anthropic", ask: Ask | None = None
) -> Store:
    """Return a store in memory with the demonstration: two conversations, a side question, and a turn taken back.

    `ask` sends a request and returns the answer that the story has; without it a provider is simulated.
    """
    clock = Clock()
    store = open_store(":memory:", clock=clock)
    ask = ask or SimulatedProvider(clock).ask
    story = demo_conversation().messages
    options: dict[str, Any] = {"config": {}, "store": store, "model": model, "provider": provider, "llm": None}
    with Session.open(CONVERSATION, engine=engine, context_length=WINDOW, **options) as session:
        middle = _second_task(story)
        play(session, story[:middle], ask, clock)
        _ask_aside(session, "Suggest a short title for this conversation.", "Harbour: import and berth fixes", ask)
        play(session, story[middle:-1], ask, clock)
        session.add(story[-1])
        clock.now += _STEP
        session.record(ask(session.request(TOOLS), _said("I tag 2.4.0 and write the release notes.")))
        session.undo()
        session.add(story[-1])
        session.record(ask(session.request(TOOLS), _said("The release notes for 2.4.0 are in CHANGELOG.md.")))
    store.ensure(CONVERSATION, title="Harbour: the nightly import and other repairs")
    _second_conversation(story, ask, clock, **options)
    return store


def _second_conversation(story: Sequence[Message], ask: Ask, clock: Clock, *, store: Store, **options: Any) -> None:
    """Add a shorter conversation under the default engine, which waits for an answer."""
    with Session.open(
        "harbour-webhooks", store=store, engine="compressor", context_length=24_000, **options
    ) as session:
        users = [at for at, message in enumerate(story) if role_of(message) == "user"]
        play(session, [story[0], *story[users[4] : users[6]]], ask, clock)
    clock.now += _STEP
    store.append("harbour-webhooks", [{"role": "user", "content": "And is the Idempotency-Key sent on retries too?"}])


def play(session: Session, messages: Sequence[Message], ask: Ask, clock: Clock | None = None) -> None:
    """Let a session live through messages: those of the assistant are the answers to its requests."""
    for message in messages:
        if clock is not None:
            clock.now += _STEP
        if role_of(message) == "assistant":
            session.record(ask(session.request(TOOLS), message))
        else:
            session.add(message)


def _second_task(story: Sequence[Message]) -> int:
    """Return where the user asks for the second time."""
    return [at for at, message in enumerate(story) if role_of(message) == "user"][1]


def _ask_aside(session: Session, question: str, answer: str, ask: Ask) -> None:
    """Ask something on a branch that the conversation does not go on from."""
    with session.fork(head=False) as aside:
        aside.add({"role": "user", "content": question})
        aside.record(ask(aside.request(TOOLS), _said(answer)))


def _said(text: str) -> Message:
    return {"role": "assistant", "content": text}


class SimulatedProvider:
    """A provider that answers what it is told to, and counts with a prompt cache of its own."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._cache = ProviderCache(rules_of(MODEL, "anthropic"), clock)

    def ask(self, request: dict[str, Any], answer: Message) -> dict[str, Any]:
        """Return a chat completion with this answer."""
        use = self._cache.request(MODEL, request.get("tools"), None, request["messages"])
        written = count_message(answer)
        usage = {
            "prompt_tokens": use.prompt,
            "completion_tokens": written,
            "total_tokens": use.prompt + written,
            "cache_read_input_tokens": use.read,
            "cache_creation_input_tokens": use.written,
            "prompt_tokens_details": {"cached_tokens": use.read},
        }
        message = json.loads(json.dumps(answer))
        return {
            "id": "demo",
            "model": MODEL,
            "choices": [{"message": message, "finish_reason": "stop"}],
            "usage": usage,
        }
