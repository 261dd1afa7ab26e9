"""Two gateways on one store, on one machine: they never fold one conversation at the same time."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from leporello.testing.model_server import ModelServer, Step

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.gateway import Gateway

    from leporello.testing.model_server import ReceivedRequest

NAME = {"X-Leporello-Session": "shared"}


class Model:
    """Answers questions at once; a summary takes until it is let go."""

    def __init__(self) -> None:
        self.asked, self.go_on = threading.Event(), threading.Event()
        self.folding = self.most = 0

    def __call__(self, request: ReceivedRequest) -> Step:
        if str(request.messages[-1]["content"]).startswith("question"):
            return Step(text="an answer")
        self.folding += 1
        self.most = max(self.most, self.folding)
        self.asked.set()
        self.go_on.wait(30)
        self.folding -= 1
        return Step(text="a summary of what was said")


def history(turns: int) -> list[dict[str, Any]]:
    talk: list[dict[str, Any]] = []
    for number in range(turns):
        talk.append({"role": "user", "content": f"question {number}: " + "some words to read " * 60})
        talk.append({"role": "assistant", "content": f"answer {number}: " + "some words to read " * 60})
    return [*talk, {"role": "user", "content": "question: and now?"}]


@pytest.mark.slow
def test_they_never_fold_a_conversation_at_the_same_time(start: Callable[..., Gateway]) -> None:
    """The one that comes later goes on without."""
    model = Model()
    talk = history(25)
    with ModelServer(then=model) as upstream:
        first, second = start(upstream), start(upstream)
        folding = threading.Thread(target=first.chat, args=(talk, NAME))
        folding.start()
        assert model.asked.wait(30)
        later = [*talk, {"role": "assistant", "content": "an answer"}, {"role": "user", "content": "question: hello?"}]
        got = second.chat(later, NAME)
        assert (got.status_code, got.headers["x-leporello-session"]) == (200, "shared")
        model.go_on.set()
        folding.join(30)
    assert model.most == 1
