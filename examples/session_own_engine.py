"""An engine of your own in a session: it decides when to fold and how, the session does everything else.

Whatever it returns is checked first: a result that is invalid, not smaller, or without the newest message of the user
is refused and reported, and the conversation goes on. It runs on a model server on loopback.
"""

from __future__ import annotations

from typing import Any

from openai import OpenAI

from leporello import ContextEngine
from leporello.engine import normalise_usage
from leporello.messages import Message, groups, is_system, role_of
from leporello.session import Session
from leporello.testing.model_server import ModelServer


class NewestTurns(ContextEngine):
    """Keep the newest turns, and drop the others."""

    def __init__(self, keep: int) -> None:
        self.keep = keep

    @property
    def name(self) -> str:
        """The name in messages and status lines."""
        return "newest-turns"

    def update_from_response(self, usage: dict[str, Any]) -> None:
        """Take the provider's count."""
        self.last_prompt_tokens = normalise_usage(usage)["prompt_tokens"]

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Fire at half of the window."""
        return (prompt_tokens or 0) > self.context_length // 2

    def compress(
        self, messages: list[Message], current_tokens: int | None = None, focus_topic: str | None = None
    ) -> list[Message]:
        """Return the system prompt and what follows the n-th newest message of the user."""
        users = [group.start for group in groups(messages) if role_of(messages[group.start]) == "user"]
        start = users[-self.keep] if len(users) >= self.keep else 0
        return [*(message for message in messages[:start] if is_system(message)), *messages[start:]]


def main() -> None:
    """Hold a conversation that is longer than its window."""
    with (
        ModelServer(window=4_000) as server,
        OpenAI(base_url=server.openai_url, api_key="any") as client,
        Session.open(
            engine=NewestTurns(keep=3),
            model="any",
            context_length=4_000,
            system="You repeat what you hear.",
            store=":memory:",
            config={},
            on_event=lambda event: print(f"  {event}") if "folded" in str(event) else None,
        ) as session,
    ):
        for number in range(30):
            session.add({"role": "user", "content": f"Number {number}: " + "words and more words, " * 30})
            session.record(client.chat.completions.create(model="any", **session.request()))
        usage = session.usage()
        stored = sum(1 for _ in session.store.messages(session.id))
        print(f"{usage.messages} messages in the window, {stored} in the store, {usage.compactions} compactions")


if __name__ == "__main__":
    main()
