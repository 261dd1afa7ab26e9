"""A bot in a chat room, on the agent gateway: it hears everything, and answers when it is called.

A platform delivers messages one by one. Each goes to the gateway, which keeps the conversation, folds it when it has
grown too long, and goes on after a restart. A demonstration gateway comes along here; a real bot points at yours.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import httpx2

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOM = [
    ("ada", "The release is on Friday."),
    ("bob", "I will write the notes."),
    ("ada", "@bot who writes the notes?"),
]


class Bot:
    """Passes a room's messages on, and says what comes back."""

    def __init__(self, gateway: str, key: str = "") -> None:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        self._client = httpx2.Client(base_url=gateway, headers=headers, timeout=300)

    def receive(self, room: str, who: str, text: str) -> str | None:
        """Take a message of the room; returns the answer if the bot was called."""
        called = text.startswith("@bot")
        message = {"content": f"{who}: {text}", "name": who, "respond": called}
        answer = self._client.post(f"/v1/sessions/{room}/messages", json=message).raise_for_status().json()
        return answer["content"] if called else None


@contextmanager
def demonstration() -> Iterator[str]:
    """Run `leporello serve --demo`, whose model repeats what it is told."""
    command = [sys.executable, "-m", "leporello", "serve", "--demo", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own command
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split()[3]
        finally:
            process.terminate()


def main() -> None:
    """Let a small room talk."""
    with demonstration() as gateway:
        bot = Bot(gateway)
        for who, text in ROOM:
            print(f"{who}: {text}")
            if answer := bot.receive("release-room", who, text):
                print(f"bot: {answer}")


if __name__ == "__main__":
    main()
