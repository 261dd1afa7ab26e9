"""OpenTelemetry spans with the GenAI attribute names, when OpenTelemetry is installed; else nothing.

Spans hold names, counts and times, never what was said; names and errors pass the redactor. Without an OpenTelemetry
SDK they go nowhere.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from leporello.events import CompactionFinished, CompactionStarted, Event, Sink, log_event
from leporello.redact import EMPTY, redact
from leporello.session.events import AnswerRecorded, RequestFailed, RequestReady, ToolAnswered

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer

    from leporello.redact import Redacted

_NANOSECONDS = 1_000_000_000
_OF_AN_ANSWER: Final = {
    "gen_ai.response.model": "model",
    "gen_ai.usage.input_tokens": "prompt_tokens",
    "gen_ai.usage.output_tokens": "completion_tokens",
    "gen_ai.usage.cache_read.input_tokens": "cache_read_tokens",
    "gen_ai.usage.cache_creation.input_tokens": "cache_write_tokens",
}
_OF_A_COMPACTION: Final = (
    "status",
    "messages_before",
    "messages_after",
    "tokens_before",
    "tokens_after",
    "model_calls",
)


def with_spans(sink: Sink | None) -> Sink:
    """Return a sink that makes spans too if OpenTelemetry is installed; without a sink, events are logged."""
    listening = sink or log_event
    return Spans(listening) if find_spec("opentelemetry") is not None else listening


class Spans:
    """A sink that makes a span of every request, engine tool and compaction, and passes the events on."""

    def __init__(self, sink: Sink, tracer: Tracer | None = None) -> None:
        from opentelemetry.trace import get_tracer

        self._sink = sink
        self._tracer = tracer or get_tracer("leporello")
        self._is_given = tracer is not None
        self._request: Span | None = None
        self._compaction: Span | None = None

    def __call__(self, event: Event) -> None:
        """Take an event."""
        if self._is_exported():
            self._note(event)
        self._sink(event)

    def _is_exported(self) -> bool:
        """Tell whether spans go anywhere: to the tracer that was given, or to an OpenTelemetry SDK."""
        from opentelemetry.trace import ProxyTracerProvider, get_tracer_provider

        return self._is_given or not isinstance(get_tracer_provider(), ProxyTracerProvider)

    def _note(self, event: Event) -> None:
        if isinstance(event, RequestReady):
            self._begin_request(event)
        elif isinstance(event, AnswerRecorded):
            self._end_request(_answer(event))
        elif isinstance(event, RequestFailed):
            self._end_request({"error.type": "request_failed"}, error=redact(event.error))
        elif isinstance(event, ToolAnswered):
            self._tool(event)
        elif isinstance(event, CompactionStarted):
            self._compaction = self._tracer.start_span("leporello.compaction", attributes=_clean(_conversation(event)))
        elif isinstance(event, CompactionFinished) and self._compaction is not None:
            self._compaction.set_attributes(_clean(_compaction(event)))
            self._compaction.end()
            self._compaction = None

    def _begin_request(self, event: RequestReady) -> None:
        from opentelemetry.trace import SpanKind

        attributes = _conversation(event) | {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": event.provider or "unknown",
            "gen_ai.request.model": event.model,
            "leporello.request.messages": event.messages,
            "leporello.request.tokens": event.tokens,
        }
        name = redact(f"chat {event.model}".rstrip())
        self._request = self._tracer.start_span(name, kind=SpanKind.CLIENT, attributes=_clean(attributes))

    def _end_request(self, attributes: dict[str, Any], *, error: Redacted = EMPTY) -> None:
        if self._request is None:
            return
        self._request.set_attributes(_clean(attributes))
        if error:
            from opentelemetry.trace import Status, StatusCode

            self._request.set_status(Status(StatusCode.ERROR, error))
        self._request.end()
        self._request = None

    def _tool(self, event: ToolAnswered) -> None:
        import time

        now = time.time_ns()
        attributes = _conversation(event) | {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": event.name,
            "gen_ai.tool.call.id": event.call_id,
        }
        start = now - int(event.seconds * _NANOSECONDS)
        name = redact(f"execute_tool {event.name}")
        self._tracer.start_span(name, start_time=start, attributes=_clean(attributes)).end(now)


def _clean(attributes: dict[str, Any]) -> dict[str, Any]:
    """Return attributes without secrets: names of models and tools, ids and reasons come from outside."""
    return {key: redact(value) if isinstance(value, str) else value for key, value in attributes.items()}


def _conversation(event: Event) -> dict[str, Any]:
    return {"gen_ai.conversation.id": event.session_id}


def _answer(event: AnswerRecorded) -> dict[str, Any]:
    attributes: dict[str, Any] = {key: getattr(event, name) for key, name in _OF_AN_ANSWER.items()}
    if event.finish:
        attributes["gen_ai.response.finish_reasons"] = [redact(event.finish)]
    if event.answer_id:
        attributes["gen_ai.response.id"] = event.answer_id
    return attributes | _cost(event)


def _compaction(event: CompactionFinished) -> dict[str, Any]:
    return {f"leporello.compaction.{name}": getattr(event, name) for name in _OF_A_COMPACTION} | _cost(event)


def _cost(event: AnswerRecorded | CompactionFinished) -> dict[str, Any]:
    return {} if event.cost_usd is None else {"leporello.cost_usd": event.cost_usd}
