"""The engines as Hermes Agent calls them, without one: its notes, its sessions, its auxiliary model."""

from __future__ import annotations

import copy
import json
import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from leporello import Config
from leporello.adapters.hermes import engine as adapter
from leporello.adapters.hermes.auxiliary import AuxiliaryModel, context_length_of
from leporello.adapters.hermes.engine import EngineMaker, ForHermes, LosslessForHermes, register_engine, store_messages
from leporello.errors import AuthenticationError, EmptyAnswerError, NetworkError
from leporello.tokens import count_messages

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from leporello.messages import Message

SETTINGS = {"lcm": {"threshold": 0.3, "background": False}, "compression": {"threshold": 0.3}}


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> list[Callable[..., Any]]:
    """Stand in for the modules of Hermes Agent; what the list holds at its end is its `call_llm`."""
    how: list[Callable[..., Any]] = [lambda **_: answer("## Goal\nFix the parts.\n\n## Done\nParts were read.")]
    client, config = ModuleType("agent.auxiliary_client"), ModuleType("hermes_cli.config")

    def call_llm(**asked: Any) -> Any:
        return how[-1](**asked)

    client.__dict__["call_llm"] = call_llm
    config.__dict__["load_config"] = dict
    for module in (ModuleType("agent"), ModuleType("hermes_cli"), client, config):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return how


@pytest.fixture
def maker(tmp_path: Path, ask: list[Callable[..., Any]]) -> EngineMaker:
    return EngineMaker(kind="lcm", home=tmp_path, config=Config.from_mapping(SETTINGS))


def answer(text: str) -> Any:
    message = SimpleNamespace(content=text)
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    return SimpleNamespace(choices=[SimpleNamespace(message=message)], model="small", usage=usage)


def started(maker: EngineMaker, session: str = "s1", database: Any = None) -> ForHermes:
    """Return an engine as Hermes Agent makes one for an agent."""
    engine = copy.deepcopy(maker.new_engine())
    engine.update_model("main", 16_000, base_url="http://localhost", api_key="sk-x", provider="custom")
    engine.bind_session_state(session_db=database, session_id=session)
    engine.on_session_start(session, platform="cli", model="main", context_length=16_000, conversation_id=None)
    return engine


def step(number: int) -> list[Message]:
    """Return a call and its result as Hermes Agent holds them while the session runs."""
    function = {"name": "read_file", "arguments": json.dumps({"path": f"part_{number}.py"})}
    call = {"id": f"call_{number}", "call_id": f"call_{number}", "type": "function", "function": function}
    asked = {"role": "assistant", "content": "", "reasoning": None, "finish_reason": "tool_calls", "tool_calls": [call]}
    read = {
        "role": "tool",
        "name": "read_file",
        "tool_name": "read_file",
        "content": f"part {number}: " + "words of a file " * 60,
        "tool_call_id": f"call_{number}",
    }
    return cast("list[Message]", [asked, read])


def loaded_again(messages: list[Message]) -> list[Message]:
    """Return a session as Hermes Agent loads it from its database: with times, without what was empty."""
    dropped = {"name", "_db_persisted"}
    kept = [{k: v for k, v in one.items() if k not in dropped and v is not None} for one in messages]
    return cast("list[Message]", [one | {"timestamp": 1_795_000_000.5 + at} for at, one in enumerate(kept)])


def run_until_folded(engine: ForHermes, folds: int) -> list[Message]:
    """Go on until the engine has folded so often, as the agent's loop does."""
    history: list[Message] = [{"role": "user", "content": "Fix the parts, one by one."}]
    for number in range(200):
        store_messages(session_id="s1", conversation_history=list(history))
        if engine.should_compress(count_messages(history)):
            history = engine.compress(history, current_tokens=count_messages(history))
            engine.on_session_end("s1", history)
            engine.on_session_start("s1", boundary_reason="compression", old_session_id="s1", platform="cli")
        if engine.compression_count >= folds:
            return history
        history += step(number)
        for message in history:
            message["_db_persisted"] = True  # type: ignore[typeddict-unknown-key]
    raise AssertionError("it was never folded")


def after_a_restart(maker: EngineMaker) -> tuple[int, int, int]:
    """Load a session again, in which a user spoke once, and let the user speak again.

    Returns how many branches there are, how many messages beside the path, and how many of the user.
    """
    engine = started(maker)
    history = run_until_folded(engine, folds=3)
    resumed = started(maker)
    again = [*loaded_again(history), {"role": "user", "content": "Go on."}]
    store_messages(session_id="s1", conversation_history=again)
    assert isinstance(resumed, LosslessForHermes)
    info = resumed.store.info("s1")
    assert info is not None
    users = sum(row.role == "user" for row in resumed.store.messages("s1", superseded=True))
    return info.branches, info.superseded, users


def test_a_session_that_is_loaded_again_is_the_stored_one(maker: EngineMaker) -> None:
    assert after_a_restart(maker) == (1, 0, 2)


def test_with_its_notes_it_would_be_another_one(maker: EngineMaker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "said", list)
    assert after_a_restart(maker) != (1, 0, 2)


def test_what_is_not_folded_keeps_its_notes(maker: EngineMaker) -> None:
    engine = started(maker)
    history = run_until_folded(engine, folds=1)
    kept = [one for one in history if one["role"] == "tool" and "words of a file" in str(one["content"])]
    assert kept
    assert all(one.get("tool_name") == "read_file" for one in kept)
    assert not any("_db_persisted" in one for one in history), "the folded list is written as a whole"


def test_where_nothing_is_folded_the_same_messages_come_back(maker: EngineMaker) -> None:
    history: list[Message] = [{"role": "user", "content": "Fix the parts."}, *step(1)]
    same = started(maker).compress(history)
    assert all(one is other for one, other in zip(same, history, strict=True))


def test_messages_are_stored_before_each_request_and_found(maker: EngineMaker) -> None:
    engine = started(maker)
    said: list[Message] = [{"role": "user", "content": "The hook is Quillon."}]
    assert found(engine, "Quillon") == 0
    store_messages(session_id="another", conversation_history=said)
    assert found(engine, "Quillon") == 0
    store_messages(session_id="s1", conversation_history=said, request={}, platform="cli")
    assert found(engine, "Quillon") == 1


def found(engine: ForHermes, query: str) -> int:
    return len(json.loads(engine.handle_tool_call("lcm_grep", {"query": query}))["results"])


def test_a_compaction_neither_ends_nor_begins_the_conversation(maker: EngineMaker) -> None:
    engine = started(maker)
    run_until_folded(engine, folds=2)
    assert isinstance(engine, LosslessForHermes)
    info = engine.store.info("s1")
    assert info is not None
    assert (engine.conversation, info.ended, info.branches) == ("s1", None, 1)
    engine.update_from_response({"prompt_tokens": 100, "completion_tokens": 1, "total_tokens": 101})
    engine.on_session_end("s1", [{"role": "user", "content": "Good night."}])
    info = engine.store.info("s1")
    assert info is not None
    assert info.ended is not None


def test_new_binds_another_session_without_a_start(maker: EngineMaker) -> None:
    engine = started(maker)
    store_messages(session_id="s1", conversation_history=[{"role": "user", "content": "The hook is Quillon."}])
    engine.on_session_end("s1", [{"role": "user", "content": "The hook is Quillon."}])
    engine.on_session_reset()
    engine.bind_session_state(None, "s2")
    assert isinstance(engine, LosslessForHermes)
    assert engine.conversation == "s2"
    assert found(engine, "Quillon") == 0


def test_sessions_that_compactions_began_are_one_conversation(maker: EngineMaker) -> None:
    rows = {
        "s1": {"end_reason": "compression", "parent_session_id": None},
        "s2": {"end_reason": "compression", "parent_session_id": "s1"},
        "s3": {"end_reason": None, "parent_session_id": "s2"},
        "child": {"end_reason": None, "parent_session_id": "s3"},
    }
    database = SimpleNamespace(get_session=rows.get)
    for session, conversation in (("s3", "s1"), ("s1", "s1"), ("child", "child"), ("unknown", "unknown")):
        engine = started(maker, session, database)
        assert isinstance(engine, LosslessForHermes)
        assert engine.conversation == conversation


def test_each_agent_gets_an_engine_of_its_own(maker: EngineMaker) -> None:
    first, second = started(maker, "s1"), started(maker, "child")
    second.update_model("small", 8_000)
    assert (first.context_length, second.context_length) == (16_000, 8_000)
    assert first.name == second.name == "leporello"


def test_the_plugin_registers_one_engine_and_its_hooks(tmp_path: Path, ask: list[Callable[..., Any]]) -> None:
    engines: list[Any] = []
    hooks: dict[str, Any] = {}
    ctx = SimpleNamespace(register_context_engine=engines.append, register_hook=hooks.__setitem__)
    register_engine(ctx, kind="compressor", home=tmp_path)
    assert [type(engine).__name__ for engine in engines] == ["CompressorForHermes"]
    assert set(hooks) == {"pre_api_request", "post_llm_call"}
    assert list(tmp_path.iterdir()) == [], "nothing is made before the first message"


def test_the_auxiliary_model_is_asked_for_the_compression(ask: list[Callable[..., Any]]) -> None:
    asked: dict[str, Any] = {}

    def call_llm(**given: Any) -> Any:
        asked.update(given)
        return answer("<think>hm</think>\nIt is done.")

    ask.append(call_llm)
    model = AuxiliaryModel(model="main", runtime={"model": "main", "api_key": "sk-x"})
    done = model.complete([{"role": "user", "content": "Summarise."}], max_tokens=100, timeout=5)
    assert (done.text, done.model, done.usage["total_tokens"]) == ("It is done.", "small", 15)
    assert (asked["task"], asked["max_tokens"], asked["main_runtime"]["model"]) == ("compression", 100, "main")


def test_what_goes_wrong_there_is_told_in_our_words(ask: list[Callable[..., Any]]) -> None:
    class APIStatusError(Exception):
        status_code = 401

    def refuses(**_: Any) -> Any:
        raise APIStatusError("invalid api key sk-secret-of-mine-123456")

    hangs = threading.Event()
    model = AuxiliaryModel(model="main", runtime={"api_key": "sk-secret-of-mine-123456"})
    try:
        for how, timeout, expected in (
            (refuses, 5.0, AuthenticationError),
            (lambda **_: answer(" "), 5.0, EmptyAnswerError),
            (lambda **_: hangs.wait(30), 0.05, NetworkError),
        ):
            ask.append(how)
            with pytest.raises(expected) as told:
                model.complete([{"role": "user", "content": "Summarise."}], max_tokens=100, timeout=timeout)
            assert "sk-secret" not in str(told.value)
            assert "sk-" not in repr(model)
    finally:
        hangs.set()


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, 64_000),
        ({"auxiliary": {"compression": {"provider": "auto", "model": ""}}}, 64_000),
        ({"auxiliary": {"compression": {"model": "small"}}}, 0),
        ({"auxiliary": {"compression": {"model": "small", "context_length": 32_000}}}, 32_000),
        ({"auxiliary": None}, 64_000),
    ],
)
def test_its_window_is_known_when_it_is_the_main_model(settings: dict[str, Any], expected: int) -> None:
    assert context_length_of(settings, 64_000) == expected
