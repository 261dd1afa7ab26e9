"""A conversation is a tree: ask again, ask aside, take a turn back, and see what that costs.

It runs on a model server on loopback, so that you can try it without a key. The window is small, so that the beginning
of the conversation is folded before it is forked: a fork needs no new summary, copies nothing and keeps the prefix.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from openai import OpenAI

from leporello import Session
from leporello.messages import text_of
from leporello.testing.model_server import ModelServer

if TYPE_CHECKING:
    from leporello.messages import Message

LOG = "\n".join(f"line {line}: crane {line % 7} moved container {4000 + line}" for line in range(20))
PAGES = 34
ANSWERS = [f"Page {page} is in order." for page in range(PAGES)]
AGAIN, TITLE, TONIGHT = "Page 33 is in order, but crane 3 was slow.", "The harbour log", "Ada is on duty."


def ask(client: OpenAI, session: Session) -> list[Message]:
    """Send the conversation, record the answer, and return what was sent."""
    request = session.request()
    session.record(client.chat.completions.create(model="any", **request))
    sent: list[Message] = request["messages"]
    return sent


def show(session: Session) -> None:
    """Print the branches of a conversation, each with its newest message."""
    for branch in session.branches():
        forked = f"from {branch.parent} behind {branch.fork}" if branch.parent else "the first"
        newest = session.store.get([branch.tip or ""])
        words = " ".join(text_of(row.message) for row in newest.values())
        print(f"  branch {branch.id}, {forked}: {branch.messages} messages{', head' * branch.head}: {words}")


def main() -> None:
    """Hold a conversation, and fork it in three ways."""
    with (
        ModelServer([*ANSWERS, AGAIN, TITLE, TONIGHT]) as server,
        OpenAI(base_url=server.openai_url, api_key="any") as client,
        Session.open(
            "harbour",
            model="any",
            context_length=16_000,
            system="You watch over a port.",
            store=":memory:",
            config={},
            llm=None,  # summaries are made without a model
        ) as session,
    ):
        for page in range(PAGES):
            session.add({"role": "user", "content": f"Is page {page} in order?\n{LOG}"})
            ask(client, session)
        folds, cached = session.usage().compactions, session.window[:-1]
        print(f"{len(cached) + 1} messages in the window after {folds} compaction")

        answer = session.store.newest(session.id)
        with session.fork(before=answer) as again:  # the same question, another answer: this branch is the head now
            sent = ask(client, again)
            print(f"asked again: {again.answer}")
            print(f"  the request begins with all {len(cached)} messages of the one before: {sent == cached}")

            with again.fork(head=False) as aside:  # something about the conversation that is no part of it
                aside.add({"role": "user", "content": "Suggest a title."})
                ask(client, aside)
                print(f"asked aside: {aside.answer}")

            again.undo()  # the question and its answer stay on the branch that is left
            again.add({"role": "user", "content": "Who is on duty tonight?"})
            ask(client, again)
            print(f"asked instead: {again.answer}")
            show(again)
            stored = sum(1 for _ in again.store.messages("harbour", superseded=True))
            print(f"{stored} messages stored, {again.usage().compactions - folds} more compactions")


if __name__ == "__main__":
    main()
