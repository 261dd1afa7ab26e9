"""An engine alone, in a loop of its user's own: folds are few, whether the loop uses them or not."""

from __future__ import annotations

import json
import re
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from openai import OpenAI

from leporello import ContextCompressor, LCMEngine
from leporello.errors import UnusedFoldWarning
from leporello.events import Event, Notice
from leporello.messages import is_system, violations
from leporello.summary.last_fold import LastFold
from leporello.summary.refire import GROWTH
from leporello.testing.model_server import ModelServer
from leporello.tokens import count_messages

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello.engine import ContextEngine
    from leporello.messages import Message

WINDOW = 16_000
ENGINES = [ContextCompressor, LCMEngine]
README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def tool_turn(number: int) -> list[Message]:
    """Return what a turn adds: a call, its output, an answer and the next request."""
    function = {"name": "read_log", "arguments": json.dumps({"page": number})}
    lines = "\n".join(f"page {number} line {line}: container {number * 100 + line} moved" for line in range(12))
    return [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": f"c{number}", "content": lines},
        {"role": "assistant", "content": f"Page {number} is in order."},
        {"role": "user", "content": f"Go on with page {number + 1}."},
    ]


def as_it_is(messages: list[Message]) -> list[Message]:
    return messages


class Loop:
    """A user's loop around an engine; `replaces` says whether it goes on with the list that `compress()` returns."""

    def __init__(
        self,
        engine: ContextEngine,
        *,
        replaces: bool,
        rendered: Callable[[list[Message]], list[Message]] = as_it_is,
    ) -> None:
        self.engine = engine
        self.replaces = replaces
        self.rendered = rendered
        self.messages: list[Message] = [
            {"role": "system", "content": "You watch over a port."},
            {"role": "user", "content": "Read the whole log."},
        ]
        self.largest = 0
        self.grown = 0

    def run(self, turns: int) -> None:
        for number in range(turns):
            given = self.rendered(self.messages)
            tokens = count_messages(given)
            sent = given
            if self.engine.should_compress(tokens):
                sent = self.engine.compress(given, current_tokens=tokens)
                if self.replaces:
                    self.messages = sent
            self._send(sent)
            added = tool_turn(number)
            self.grown += count_messages(added)
            self.messages = [*self.messages, *added]

    def _send(self, request: list[Message]) -> None:
        assert violations(request, "openai") == []
        size = count_messages(request)
        self.largest = max(self.largest, size)
        self.engine.update_from_response({"prompt_tokens": size, "completion_tokens": 9, "total_tokens": size + 9})

    def check(self) -> None:
        """Folds are no more than the growth of the conversation asks for, and every request fits."""
        folds = self.engine.compression_count
        assert folds >= 2, "the loop is too short to show anything"
        assert folds <= 1 + self.grown / (self.engine.threshold_tokens * GROWTH), f"{folds} folds"
        assert self.largest < WINDOW


@pytest.mark.slow
@pytest.mark.parametrize("make", ENGINES)
def test_500_turns_with_the_list_replaced(make: type[ContextEngine]) -> None:
    loop = Loop(make(WINDOW), replaces=True)  # type: ignore[call-arg]
    loop.run(500)  # a warning would be an error
    loop.check()


@pytest.mark.slow
@pytest.mark.parametrize("make", ENGINES)
def test_500_turns_with_the_list_not_replaced_are_told_once(make: type[ContextEngine]) -> None:
    loop = Loop(make(WINDOW), replaces=False)  # type: ignore[call-arg]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        loop.run(500)
    loop.check()
    assert [one.category for one in told] == [UnusedFoldWarning]
    assert told[0].filename == __file__, "it points at the line that ignores the result"


@pytest.mark.parametrize("make", ENGINES)
def test_a_listener_gets_a_notice_instead_of_a_warning(make: type[ContextEngine]) -> None:
    heard: list[Event] = []
    engine = make(WINDOW)  # type: ignore[call-arg]
    engine.on_event = heard.append
    loop = Loop(engine, replaces=False)
    loop.run(120)
    loop.check()
    assert [str(one).partition(":")[0] for one in heard if isinstance(one, Notice)] == [
        "the list that compress() returned was not used"
    ]


def with_the_time(messages: list[Message]) -> list[Message]:
    """Render the list anew for every request, as many hosts do: other objects, and a system prompt with the time."""
    anew: list[Message] = json.loads(json.dumps(messages))
    anew[0]["content"] += f" It is {len(messages)} o'clock."
    return anew


def with_a_reminder(messages: list[Message]) -> list[Message]:
    """Put a reminder into the newest user message, which is gone one turn later."""
    return [*messages[:-1], {**messages[-1], "content": f"{messages[-1]['content']}\n\nAnswer in English."}]


def with_marks(messages: list[Message]) -> list[Message]:
    """Mark the newest message for the cache."""
    return [*messages[:-1], {**messages[-1], "cache_control": {"type": "ephemeral"}}]


@pytest.mark.parametrize("rendered", [with_the_time, with_a_reminder, with_marks])
@pytest.mark.parametrize("make", ENGINES)
def test_a_list_that_is_rendered_anew_is_recognised(
    make: type[ContextEngine], rendered: Callable[[list[Message]], list[Message]]
) -> None:
    loop = Loop(make(WINDOW), replaces=False, rendered=rendered)  # type: ignore[call-arg]
    with pytest.warns(UnusedFoldWarning) as told:
        loop.run(120)
    loop.check()
    assert len(told) == 1


@pytest.mark.parametrize("make", ENGINES)
def test_the_system_prompt_of_the_day_is_the_one_that_is_sent(make: type[ContextEngine]) -> None:
    loop = Loop(make(WINDOW), replaces=False, rendered=with_the_time)  # type: ignore[call-arg]
    with pytest.warns(UnusedFoldWarning):
        loop.run(120)
    given = with_the_time(loop.messages)
    sent = loop.engine.compress(given, current_tokens=count_messages(given))
    (system,) = [message for message in sent if is_system(message)]
    assert system["content"].startswith(given[0]["content"])


@pytest.mark.parametrize("make", ENGINES)
def test_planted_an_engine_that_forgets_its_fold_is_caught(
    make: type[ContextEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LastFold, "reapplied", lambda *_: None)
    loop = Loop(make(WINDOW), replaces=False)  # type: ignore[call-arg]
    loop.run(80)
    with pytest.raises(AssertionError, match="folds"):
        loop.check()


def snippet() -> str:
    """Return the README's loop around an engine alone."""
    blocks: list[str] = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    (block,) = [block for block in blocks if "engine.compress(" in block]
    return block


def run_snippet(code: str, requests: int) -> tuple[ContextEngine, int]:
    """Run the README's function in a loop on a model server; return its engine and how much was said."""
    names: dict[str, Any] = {}
    exec(code, names)  # noqa: S102 - the README's own text
    page = "\n".join(f"line {line}: crane moved container {line}" for line in range(90))
    messages: list[Message] = []
    said = 0
    with ModelServer(["In order."] * requests, window=names["engine"].context_length) as server:
        client = OpenAI(base_url=server.openai_url, api_key="any")
        for number in range(requests):
            messages.append({"role": "user", "content": f"Is page {number} in order?\n{page}"})
            said += count_messages(messages[-1:])
            names["ask"](client, "any", messages)
    assert len(server.requests) == requests
    return names["engine"], said


@pytest.mark.slow
def test_the_snippet_of_the_readme_folds_seldom(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LEPORELLO_HOME", str(tmp_path))
    engine, said = run_snippet(snippet(), 300)
    assert 1 <= engine.compression_count <= 1 + said / (engine.threshold_tokens * GROWTH)


@pytest.mark.slow
def test_the_snippet_of_the_readme_without_its_assignment_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("LEPORELLO_HOME", str(tmp_path))
    code = (
        snippet().replace("messages[:] = engine", "folded = engine").replace("messages=messages)", "messages=folded)")
    )
    code = code.replace("    if engine", "    folded = messages\n    if engine")
    with pytest.warns(UnusedFoldWarning):
        engine, said = run_snippet(code, 300)
    assert 1 <= engine.compression_count <= 1 + said / (engine.threshold_tokens * GROWTH)
