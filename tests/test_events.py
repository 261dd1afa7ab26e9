"""What an engine reports before anybody listens is told to the first who does, once."""

from __future__ import annotations

from typing import Any

import pytest

from leporello.engine import ContextEngine
from leporello.events import Event, Notice
from leporello.testing.lifecycle import RecordingEngine


class Talkative(RecordingEngine):
    """Reports when it is made, and when it is told a model."""

    def __init__(self) -> None:
        super().__init__()
        self.emit(Notice(text="made"))

    def update_model(self, *args: Any, **kwargs: Any) -> None:
        super().update_model(*args, **kwargs)
        self.emit(Notice(text="model"))


def heard_by_two(engine: ContextEngine) -> tuple[list[str], list[str]]:
    """Connect two sinks one after the other, with one more event for each; return what they hear."""
    first: list[Event] = []
    second: list[Event] = []
    for heard in (first, second):
        engine.on_event = heard.append
        engine.emit(Notice(text="now"))
    return [str(event) for event in first], [str(event) for event in second]


def test_what_was_reported_before_there_was_a_sink_reaches_it_once() -> None:
    engine = Talkative()
    engine.update_model("m", 1_000)
    assert heard_by_two(engine) == (["made", "model", "now"], ["now"])


def test_planted_an_engine_that_forgets_what_nobody_heard_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ContextEngine, "_unheard", property(lambda _: (), lambda _self, _events: None))
    with pytest.raises(AssertionError):
        test_what_was_reported_before_there_was_a_sink_reaches_it_once()


def test_without_a_sink_events_are_logged_and_no_more_than_a_few_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", logger="leporello")
    engine = RecordingEngine()
    for number in range(1_000):
        engine.emit(Notice(text=str(number)))
    assert len(caplog.records) == 1_000
    heard, _ = heard_by_two(engine)
    assert heard[-2:] == ["999", "now"]
    assert len(heard) < 50


def test_two_engines_do_not_share_what_they_report() -> None:
    first, second = Talkative(), RecordingEngine()
    assert heard_by_two(second) == (["now"], ["now"])
    assert heard_by_two(first) == (["made", "now"], ["now"])
