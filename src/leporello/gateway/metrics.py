"""Metrics of the gateway in the text format of Prometheus, without names and keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

from leporello.events import CompactionFinished
from leporello.session.events import AnswerRecorded

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from leporello.events import Event

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_BOUNDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_APART: Final = "leporello_event_loop_gap_seconds"
"""The metric that is listed by process, as it cannot be summed up."""


class Metrics:
    """Counts requests, compactions and tokens; safe to use from any thread."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._gauges: dict[str, Gauge] = {}
        self._requests = Counter("leporello_requests", "Requests.", ("route", "status"), registry=registry)
        self._seconds = Histogram("leporello_request_seconds", "Their time.", registry=registry, buckets=_BOUNDS)
        self._folds = Counter("leporello_compactions", "Compactions.", ("status",), registry=registry)
        self._tokens = Counter("leporello_tokens", "Tokens.", ("kind",), registry=registry)

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count a request; a status of 0 is one whose client left before it was answered."""
        self._requests.labels(route, status).inc()
        self._seconds.observe(seconds)

    def happened(self, event: Event) -> None:
        """Count what happened in a conversation."""
        if isinstance(event, CompactionFinished):
            self._folds.labels(event.status).inc()
        elif isinstance(event, AnswerRecorded):
            self._tokens.labels("prompt").inc(event.prompt_tokens)
            self._tokens.labels("completion").inc(event.completion_tokens)
            self._tokens.labels("cache_read").inc(event.cache_read_tokens)
            self._tokens.labels("cache_write").inc(event.cache_write_tokens)

    def text(self, gauges: Mapping[str, float]) -> str:
        """Return all metrics, with the current values of these gauges."""
        for name, value in gauges.items():
            if name not in self._gauges:
                self._gauges[name] = Gauge(f"leporello_{name}", "Of the moment.", registry=self._registry)
            self._gauges[name].set(value)
        return generate_latest(self._registry).decode()


class _Sums(Collector):
    """The sums of the metrics of several processes."""

    def __init__(self, by_process: Mapping[str, str]) -> None:
        self._by_process = by_process

    def collect(self) -> Iterable[Metric]:
        """Return them."""
        families: dict[str, Metric] = {}
        values: dict[tuple[str, str, tuple[tuple[str, str], ...]], float] = {}
        for process, text in self._by_process.items():
            for family in text_string_to_metric_families(text):
                if family.name.endswith("_created"):
                    continue
                families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
                for sample in family.samples:
                    labels = sample.labels | ({"process": process} if family.name == _APART else {})
                    key = family.name, sample.name, tuple(labels.items())
                    values[key] = values.get(key, 0) + sample.value
        for (family_name, name, labels_of), value in values.items():
            families[family_name].add_sample(name, dict(labels_of), value)
        return families.values()


def merged(by_process: Mapping[str, str]) -> str:
    """Return the sums of the metrics of several processes."""
    registry = CollectorRegistry()
    registry.register(_Sums(by_process))
    return generate_latest(registry).decode()
