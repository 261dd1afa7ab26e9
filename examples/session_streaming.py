"""Streaming: the words appear as they come, and a conversation goes on after an answer was stopped in the middle.

It runs on a model server on loopback; point `base_url` and `api_key` at your provider instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from openai import OpenAI

from leporello.session import Session
from leporello.testing.model_server import ModelServer

if TYPE_CHECKING:
    from collections.abc import Iterator

ANSWERS = ["A leporello is a book folded like an accordion.", "It is also the name of a servant, who kept a catalogue."]


def streamed(client: OpenAI, session: Session) -> Iterator[Any]:
    """Ask for an answer chunk by chunk; the session records it at the end."""
    chunks = client.chat.completions.create(
        model="any", stream=True, stream_options={"include_usage": True}, **session.request()
    )
    return session.stream(chunks)


def shown(chunk: Any) -> str:
    """Return the words of a chunk."""
    return (chunk.choices[0].delta.content or "") if chunk.choices else ""


def main() -> None:
    """Ask twice, and stop the first answer half-way."""
    with (
        ModelServer(ANSWERS) as server,
        OpenAI(base_url=server.openai_url, api_key="any") as client,
        Session.open(model="any", store=":memory:", config={}) as session,
    ):
        session.add({"role": "user", "content": "What is a leporello?"})
        answer = streamed(client, session)
        for chunk in answer:
            print(shown(chunk), end="", flush=True)
            if "leporello" in shown(chunk):
                answer.close()  # type: ignore[attr-defined]
        print(" ... (stopped)")

        session.add({"role": "user", "content": "And else?"})
        for chunk in streamed(client, session):
            print(shown(chunk), end="", flush=True)
        print()
        print([message["role"] for message in session.window])


if __name__ == "__main__":
    main()
