"""Engines of third parties: where they fail, the built-in engine folds, and the user is told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from leporello import ContextEngine
from leporello.errors import ContextTooLongError
from leporello.events import CompactionFinished, Notice
from leporello.llm import ScriptedLLM
from leporello.messages import role_of, text_of, violations
from leporello.session import folding, hygiene
from leporello.summary.placement import PREFIX
from leporello.summary.refire import SAFE_SHARE
from leporello.testing.lifecycle import RecordingEngine

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello.messages import Message
    from leporello.session import Session

WINDOW = 8_000
FIRST = folding.MOST_REFUSALS


class Failing(ContextEngine):
    """An engine that fails to fold, in the way a test wants it, until the test lets it succeed."""

    name = "failing"

    def __init__(self, make: Callable[[list[Message]], Any], *, fires: bool = True) -> None:
        self.context_length = WINDOW
        self.make = make
        self.fires = fires
        self.asked = 0

    def update_from_response(self, usage: dict[str, Any]) -> None:
        pass

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return self.fires

    def compress(self, messages: list[Message], *args: Any, **options: Any) -> Any:
        self.asked += 1
        return self.make(messages)


def raises(_: list[Message]) -> Any:
    raise RuntimeError("no room left in the attic")


def grows(messages: list[Message]) -> list[Message]:
    return [{"role": "user", "content": "x " * 9_000}, {"role": "assistant", "content": "y"}, *messages]


FAILURES: dict[str, tuple[Callable[[list[Message]], Any], str]] = {
    "garbage": (lambda _: None, "the engine returned NoneType instead of messages"),
    "larger": (grows, "the result is not smaller"),
    "raises": (raises, "no room left in the attic"),
    "unchanged": (list, "it returned the same list"),
}


def talked(session: Session, answer: Callable[..., Any], turns: int, *, words: int = 40) -> None:
    """Talk for some turns, about 20 + 3 × `words` tokens each."""
    for number in range(turns):
        session.add({"role": "user", "content": f"Question {number}: " + "what about the crane? " * (words // 4)})
        session.request()
        session.record(answer(f"Answer {number}: " + "the crane waits in the yard. " * (words // 3)))


def finished(session: Any) -> list[CompactionFinished]:
    return [event for event in session.told if isinstance(event, CompactionFinished)]


def notices(session: Any) -> list[str]:
    return [str(event) for event in session.told if isinstance(event, Notice)]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["garbage", "larger", "raises"])
def test_after_three_refusals_in_a_row_the_built_in_folds(kind: str, opened: Any, answer: Callable[..., Any]) -> None:
    make, why = FAILURES[kind]
    session = opened(engine=Failing(make, fires=False), context_length=WINDOW)
    talked(session, answer, 30)
    statuses = [session.compress().status for _ in range(FIRST - 1)]
    assert statuses == ["refused"] * (FIRST - 1)
    before = len(session.window)
    report = session.compress()
    assert report.status == "fallback"
    assert "engine 'failing'" in report.reason
    assert why in report.reason
    assert (report.messages_before, report.messages_after) == (before, len(session.window))
    assert report.tokens_after < report.tokens_before
    assert [text for text in notices(session) if why in text and "the built-in compressor" in text]
    assert any(text_of(message).startswith(PREFIX) for message in session.window)


@pytest.mark.slow
def test_the_engine_is_asked_again_and_one_good_result_is_a_new_beginning(
    opened: Any, answer: Callable[..., Any]
) -> None:
    engine = Failing(lambda _: None, fires=False)
    session = opened(engine=engine, context_length=WINDOW)
    talked(session, answer, 30)
    statuses = [session.compress().status for _ in range(FIRST)]
    talked(session, answer, 20)
    statuses.append(session.compress().status)
    assert statuses == ["refused"] * (FIRST - 1) + ["fallback"] * 2
    assert engine.asked == FIRST + 1
    assert session.engine is engine
    engine.make = lambda messages: messages[-2:]
    assert session.compress().status == "folded"
    engine.make = lambda _: None
    talked(session, answer, 10)
    assert session.compress().status == "refused"


@pytest.mark.slow
@pytest.mark.parametrize("fires", [True, False])
@pytest.mark.parametrize("kind", FAILURES)
def test_at_85_percent_the_built_in_folds_at_once(
    kind: str, fires: bool, opened: Any, answer: Callable[..., Any]
) -> None:
    """Also for an engine that never wants to fold."""
    make, why = FAILURES[kind]
    session = opened(engine=Failing(make, fires=fires), context_length=WINDOW)
    sizes: list[int] = []
    for _ in range(60):
        talked(session, answer, 1)
        sizes.append(session.usage().tokens)
        assert violations(session.window, "openai") == []
    assert max(sizes) < WINDOW
    folded = [event for event in finished(session) if event.status == "fallback"]
    assert folded
    assert all("engine 'failing'" in event.reason and why in event.reason for event in folded)
    assert len(finished(session)) < 30, "not in every turn"


def test_an_engine_that_frees_too_little_has_the_net_too(opened: Any, answer: Callable[..., Any]) -> None:
    """Its small but real fold is used below 85 %; above it the built-in engine goes on from there."""
    engine = Failing(lambda messages: messages[2:], fires=False)
    session = opened(engine=engine, context_length=WINDOW)
    talked(session, answer, 8)
    assert session.compress().status == "folded"
    session.add({"role": "user", "content": "word " * 2_700})
    session.request()
    session.record(answer("word " * 4_000))
    session.add({"role": "user", "content": "And now?"})
    session.request()
    last = finished(session)[-1]
    assert last.status == "fallback"
    assert "tokens are left" in last.reason
    assert session.usage().tokens < SAFE_SHARE * WINDOW


def test_nothing_is_caught_when_compression_is_disabled(opened: Any, answer: Callable[..., Any]) -> None:
    session = opened(engine=Failing(list), context_length=WINDOW, config={"compression": {"enabled": False}})
    talked(session, answer, 60)
    assert finished(session) == []
    assert session.usage().tokens > WINDOW
    assert session.recover(ContextTooLongError("prompt is too long"))
    assert finished(session)[-1].status == "fallback"


def test_our_own_engines_have_no_other_one_below_them(opened: Any, answer: Callable[..., Any]) -> None:
    session = opened(engine=RecordingEngine(context_length=WINDOW), context_length=WINDOW)
    talked(session, answer, 60)
    assert finished(session) == []


def test_the_built_in_uses_the_summariser_of_the_session(
    opened: Any, answer: Callable[..., Any], tmp_path: Any
) -> None:
    folder = tmp_path / "engines" / "stubborn"
    folder.mkdir(parents=True)
    (folder / "plugin.yaml").write_text("name: stubborn\ndescription: never folds\nversion: '1'\n")
    (folder / "__init__.py").write_text(
        "from agent.context_engine import ContextEngine\n\n\n"
        "class Stubborn(ContextEngine):\n"
        "    name = 'stubborn'\n\n"
        "    def update_from_response(self, usage):\n        pass\n\n"
        "    def should_compress(self, prompt_tokens=None):\n        return False\n\n"
        "    def compress(self, messages, current_tokens=None, focus_topic=None):\n        return messages\n"
    )
    llm = ScriptedLLM("## Goal\nMove the crane.\n\n## Progress\n### Done\n- Asked about it.")
    config = {"plugins": {"paths": [str(folder)]}}
    session = opened(engine="stubborn", context_length=WINDOW, config=config, llm=llm)
    talked(session, answer, 60)
    folded = [event for event in finished(session) if event.status == "fallback"]
    assert folded
    assert llm.calls
    assert folded[-1].model_calls > 0
    assert any("Move the crane." in text_of(message) for message in session.window)


def test_a_conversation_that_cannot_be_folded_is_not_tried_in_every_turn(
    opened: Any, answer: Callable[..., Any]
) -> None:
    engine = Failing(list)
    session = opened(engine=engine, context_length=WINDOW)
    session.add({"role": "user", "content": "word " * WINDOW})
    for _ in range(20):
        session.request()
        session.record(answer("Go on.", ("look", {})))
        session.add({"role": "tool", "tool_call_id": session.calls[0].id, "content": "nothing"})
    assert engine.asked < 5
    assert role_of(session.window[0]) == "user"


def test_the_nightly_net_of_the_gateway_is_the_same_net(opened: Any, answer: Callable[..., Any]) -> None:
    engine = Failing(lambda _: None, fires=False)
    session = opened(engine=engine, context_length=WINDOW)
    talked(session, answer, 4)
    session.add({"role": "user", "content": "word " * 3_000})
    session.request()
    session.record(answer("word " * 6_000))
    report = hygiene.compact_if_full(session)
    assert report is not None
    assert report.status == "fallback"
    assert session.usage().tokens < SAFE_SHARE * WINDOW
