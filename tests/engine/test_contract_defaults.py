"""The defaults of the abstract base class, one claim each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from leporello.engine import ContextEngine
from leporello.events import Event, Notice

if TYPE_CHECKING:
    from leporello.messages import Message


class Smallest(ContextEngine):
    """The smallest engine that the contract allows."""

    @property
    def name(self) -> str:
        return "smallest"

    def update_from_response(self, usage: dict[str, Any]) -> None:
        self.last_prompt_tokens = usage["prompt_tokens"]

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return bool(prompt_tokens)

    def compress(
        self,
        messages: list[Message],
        current_tokens: int | None = None,
        focus_topic: str | None = None,
    ) -> list[Message]:
        return list(messages)


@pytest.fixture
def engine() -> Smallest:
    return Smallest()


@pytest.mark.parametrize("missing", ["name", "update_from_response", "should_compress", "compress"])
def test_each_of_the_four_members_must_be_implemented(missing: str) -> None:
    members = {key: value for key, value in vars(Smallest).items() if key != missing}
    with pytest.raises(TypeError, match=missing):
        type("Incomplete", (ContextEngine,), members)()


def test_counters_window_and_threshold_start_at_zero(engine: Smallest) -> None:
    counters = ("last_prompt_tokens", "last_completion_tokens", "last_total_tokens")
    assert [getattr(engine, name) for name in (*counters, "threshold_tokens", "context_length")] == [0] * 5
    assert (engine.compression_count, engine.last_compaction) == (0, None)


def test_the_attributes_of_later_hosts_have_their_defaults(engine: Smallest) -> None:
    assert (engine.threshold_percent, engine.protect_first_n, engine.protect_last_n) == (0.75, 3, 6)


def test_a_host_may_set_attributes(engine: Smallest) -> None:
    engine.awaiting_real_usage_after_compression = True  # type: ignore[attr-defined]
    assert vars(engine)["awaiting_real_usage_after_compression"]


def test_update_model_sets_window_and_threshold(engine: Smallest) -> None:
    engine.update_model("m", 200_000, base_url="", api_key="", provider="p", api_mode="")
    assert (engine.context_length, engine.threshold_tokens) == (200_000, 150_000)


def test_reset_forgets_the_counters_and_keeps_the_window(engine: Smallest) -> None:
    engine.update_model("m", 1000)
    engine.last_prompt_tokens = engine.last_completion_tokens = engine.last_total_tokens = 7
    engine.compression_count = 2
    engine.on_session_reset()
    assert (engine.last_prompt_tokens, engine.last_completion_tokens, engine.last_total_tokens) == (0, 0, 0)
    assert (engine.compression_count, engine.context_length) == (0, 1000)


def test_an_unknown_tool_is_answered_with_an_error(engine: Smallest) -> None:
    assert json.loads(engine.handle_tool_call("nope", {}, messages=[])) == {"error": "Unknown tool: nope"}
    assert engine.get_tool_schemas() == []


def test_the_optional_answers_are_modest(engine: Smallest) -> None:
    assert engine.should_compress_preflight([]) is False
    assert engine.has_content_to_compress([]) is True
    assert engine.should_defer_preflight_to_real_usage(5) is False
    assert engine.clone_for_agent() is None


def test_the_optional_hooks_accept_what_hosts_pass(engine: Smallest) -> None:
    engine.on_session_start("s", platform="cli", model="m", context_length=1, conversation_id=None)
    engine.on_turn_complete([], usage={}, anything=1)
    engine.carry_over_new_session_context("old", "new")
    engine.on_session_end("s", [])
    engine.close()


@pytest.mark.parametrize(
    ("prompt", "window", "percent"), [(50, 200, 25.0), (500, 200, 100.0), (-1, 200, 0.0), (50, 0, 0.0)]
)
def test_status_shows_how_much_of_the_window_is_used(
    engine: Smallest, prompt: int, window: int, percent: float
) -> None:
    engine.last_prompt_tokens, engine.context_length = prompt, window
    status = engine.get_status()
    assert status["usage_percent"] == percent
    assert status["last_prompt_tokens"] == max(prompt, 0)
    assert {"threshold_tokens", "context_length", "compression_count"} <= status.keys()


def test_events_go_to_the_listener_else_to_the_log(engine: Smallest, caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Event] = []
    with caplog.at_level("INFO", logger="leporello"):
        engine.emit(Notice(text="to the log"))
        engine.on_event = heard.append
        engine.emit(Notice(text="to the listener"))
    assert [str(event) for event in heard] == ["to the log", "to the listener"]
    assert caplog.messages == ["to the log"]
