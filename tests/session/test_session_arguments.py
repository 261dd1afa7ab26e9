"""Arguments that cannot be right are refused where they come in, with what to pass instead."""

from __future__ import annotations

import inspect
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from leporello import ContextCompressor, LCMEngine, load_engine
from leporello.agent import open_agent
from leporello.errors import MalformedAnswerError, SessionError
from leporello.session import AsyncSession, Session
from leporello.store import open_store
from leporello.testing.lifecycle import RecordingEngine

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"session_id": 5}, "session_id is text, not int 5"),
        ({"model": 5}, "model is text"),
        ({"provider": b"x"}, "provider is text"),
        ({"system": ["a"]}, "system is text"),
        ({"context_length": -5}, "a whole number such as 200_000, not -5"),
        ({"context_length": "200k"}, "not '200k'"),
        ({"context_length": True}, "not True"),
        ({"engine": RecordingEngine}, r"pass an engine of it, RecordingEngine\(...\)"),
        ({"engine": 5}, "a name, a ContextEngine or an EngineSource"),
        ({"store": 5}, "a path, an address or a Store"),
        ({"on_event": "print"}, "a function that takes an event"),
    ],
)
def test_open_says_what_is_wrong(wrong: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"session_id": "talk", "config": {}, "store": ":memory:", **wrong}
    with pytest.raises(SessionError, match=said):
        Session.open(given.pop("session_id"), **given)


@pytest.mark.parametrize("session", [Session, AsyncSession])
@pytest.mark.parametrize(
    ("wrong", "right"), [("storee", "store"), ("on_events", "on_event"), ("contextlength", "context_length")]
)
def test_open_takes_no_misspelt_keyword(session: Any, wrong: str, right: str) -> None:
    with pytest.raises(
        TypeError,
        match=f"{session.__name__}.open.. got an unexpected keyword argument '{wrong}'. Did you mean '{right}'",
    ):
        session.open("talk", **{"config": {}, wrong: None})


async def _open_with_misspelt_keywords() -> None:
    """Never run: the type checker must refuse each line, else it finds that the comment is not needed."""
    Session.open("talk", storee=":memory:")  # type: ignore[call-arg]
    await AsyncSession.open("talk", storee=":memory:")  # type: ignore[call-arg]
    Session.open("talk", dialect="opneai")  # type: ignore[arg-type]
    open_store(":memory:", homee=None)  # type: ignore[call-arg]
    load_engine(context_lenght=8_000)  # type: ignore[call-arg]
    open_agent(workspce=".")  # type: ignore[call-arg]
    ContextCompressor(8_000, lmm=None)  # type: ignore[call-arg]
    LCMEngine(8_000, stroe=None)  # type: ignore[call-arg]


@pytest.mark.parametrize("call", [open_store, open_agent, partial(ContextCompressor, 8_000), partial(LCMEngine, 8_000)])
def test_other_public_calls_take_no_misspelt_keyword_either(call: Callable[..., Any]) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'stroe'"):
        call(stroe=None)


def test_both_sessions_take_the_same() -> None:
    assert inspect.signature(Session.open).parameters == inspect.signature(AsyncSession.open).parameters


@pytest.mark.parametrize("offered", [True, False])
def test_a_model_that_cannot_use_tools_is_offered_none(offered: bool) -> None:
    """What the window is said to hold has none either; on a fork it is the same."""
    with Session.open("talk", config={}, store=":memory:", engine="lcm", engine_tools=offered) as session:
        session.add({"role": "user", "content": "Hello"})
        assert bool(session.request().get("tools")) == offered
        assert bool(session.usage().parts.tools) == offered
        session.record({"choices": [{"message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}]})
        with session.fork() as fork:
            fork.add({"role": "user", "content": "And now?"})
            assert bool(fork.request().get("tools")) == offered


def test_an_engine_that_is_handed_over_takes_no_options() -> None:
    for option in ({"llm": None}, {"api_key": "k"}, {"api_mode": "chat"}):
        with pytest.raises(SessionError, match=f"leave out {next(iter(option))}"):
            Session.open("talk", config={}, store=":memory:", engine=RecordingEngine(), **option)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "arguments", "said"),
    [
        ("request", ["read_file"], "tools is a list of tool schemas, not str 'read_file'"),
        ("request", [{"name": "read_file"}], "tools is a list"),
        ("request", [[print]], r"tools\[0\] is a tool schema"),
        ("recover", ["prompt is too long"], "the exception that your client raised"),
        ("recover", [None], "the exception that your client raised"),
        ("switch_model", [""], "needs the name of a model"),
        ("switch_model", [None], "needs the name of a model"),
        ("compress", [["the cranes"]], "focus is text"),
        ("reset", [5], "session_id is text"),
    ],
)
def test_a_method_says_what_is_wrong_and_changes_nothing(
    method: str, arguments: list[Any], said: str, opened: Any
) -> None:
    session = opened()
    session.add({"role": "user", "content": "Hello"})
    before = (session.id, session.model, session.caching, session.window)
    with pytest.raises(SessionError, match=said):
        getattr(session, method)(*arguments)
    assert (session.id, session.model, session.caching, session.window) == before
    assert session.request()["messages"]


def test_blocks_that_are_none_are_no_answer(opened: Any) -> None:
    session = opened(dialect="anthropic")
    session.add({"role": "user", "content": "Hello"})
    with pytest.raises(MalformedAnswerError, match="a block that is none"):
        session.record({"type": "message", "role": "assistant", "content": [5], "stop_reason": "end_turn"})


def test_a_closed_session_is_not_switched(opened: Any) -> None:
    session = opened(model="claude-sonnet-5")
    caching = session.caching
    session.close()
    with pytest.raises(SessionError, match="is closed"):
        session.switch_model("gpt-5.5")
    assert session.caching == caching
