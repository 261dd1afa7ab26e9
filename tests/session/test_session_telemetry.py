"""Spans with the GenAI attribute names: counts, names and times, never what was said."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from leporello.session.telemetry import Spans, with_spans
from leporello.testing.lifecycle import RecordingEngine

sdk = pytest.importorskip("opentelemetry.sdk.trace")

from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402 - only with the extra
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402 - the same

if TYPE_CHECKING:
    from collections.abc import Callable

SECRET = "the yard is full"


def recorded(opened: Any, play: Callable[[Any], None]) -> list[Any]:
    exporter = InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    session = opened(engine=RecordingEngine(), model="claude-sonnet-5", provider="anthropic")
    session._conversation.sink = Spans(session.told.append, provider.get_tracer("test"))
    play(session)
    return list(exporter.get_finished_spans())


def test_a_request_is_a_span_with_the_genai_names(opened: Any, answer: Callable[..., Any]) -> None:
    def play(session: Any) -> None:
        session.add({"role": "user", "content": SECRET})
        session.request()
        session.record(answer(SECRET, tokens=120))

    (span,) = recorded(opened, play)
    assert span.name == "chat claude-sonnet-5"
    told = dict(span.attributes)
    assert told["gen_ai.operation.name"] == "chat"
    assert told["gen_ai.provider.name"] == "anthropic"
    assert told["gen_ai.request.model"] == "claude-sonnet-5"
    assert told["gen_ai.response.model"] == "m"
    assert told["gen_ai.response.id"] == "answer"
    assert told["gen_ai.response.finish_reasons"] == ("stop",)
    assert (told["gen_ai.usage.input_tokens"], told["gen_ai.usage.output_tokens"]) == (120, 10)
    assert told["gen_ai.conversation.id"] == "talk"
    assert SECRET not in str(told)


def test_engine_tools_compactions_and_failures_are_spans_too(opened: Any, answer: Callable[..., Any]) -> None:
    def play(session: Any) -> None:
        for text in (SECRET, SECRET):
            session.add({"role": "user", "content": text})
            session.request()
            session.record(answer(None, ("recall", {"about": SECRET})))
        session.compress()
        session.request()
        session.recover(RuntimeError("no connection"))

    spans = recorded(opened, play)
    assert [span.name for span in spans] == [
        "chat claude-sonnet-5",
        "execute_tool recall",
        "chat claude-sonnet-5",
        "execute_tool recall",
        "leporello.compaction",
        "chat claude-sonnet-5",
    ]
    tool, compaction, failed = spans[1], spans[4], spans[5]
    assert tool.attributes["gen_ai.tool.name"] == "recall"
    assert compaction.attributes["leporello.compaction.status"] == "folded"
    assert failed.attributes["error.type"] == "request_failed"
    assert not failed.status.is_ok
    assert SECRET not in str([dict(span.attributes) for span in spans])


def test_what_happens_is_still_heard(opened: Any) -> None:
    heard: list[Any] = []
    sink = with_spans(heard.append)
    session = opened()
    session._conversation.sink = sink
    session.add({"role": "user", "content": "Hello"})
    session.request()
    assert [type(event).__name__ for event in heard] == ["RequestReady"]
