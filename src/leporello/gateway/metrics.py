"""Figures about the gateway, in the text format that Prometheus reads; no name and no key is among them."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Final

from leporello.events import CompactionFinished
from leporello.session.events import AnswerRecorded

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from leporello.events import Event

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
_BOUNDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)


_APART: Final = "leporello_event_loop_gap_seconds"
"""What cannot be added up when several processes are told as one."""


class Metrics:
    """Counts requests, compactions and tokens; safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[tuple[str, int]] = Counter()
        self._seconds: Counter[float] = Counter()
        self._sum = 0.0
        self._folds: Counter[str] = Counter()
        self._tokens: Counter[str] = Counter()

    def answered(self, route: str, status: int, seconds: float) -> None:
        """Count a request; a status of 0 is one whose client left before it was answered."""
        with self._lock:
            self._requests[route, status] += 1
            self._sum += seconds
            for bound in _BOUNDS:
                self._seconds[bound] += seconds <= bound

    def happened(self, event: Event) -> None:
        """Count what happened in a conversation."""
        with self._lock:
            if isinstance(event, CompactionFinished):
                self._folds[event.status] += 1
            elif isinstance(event, AnswerRecorded):
                self._tokens["prompt"] += event.prompt_tokens
                self._tokens["completion"] += event.completion_tokens
                self._tokens["cache_read"] += event.cache_read_tokens
                self._tokens["cache_write"] += event.cache_write_tokens

    def text(self, gauges: Mapping[str, float]) -> str:
        """Return everything, with these values of the moment."""
        with self._lock:
            return "\n".join([*self._lines(gauges), ""])

    def _lines(self, gauges: Mapping[str, float]) -> Iterator[str]:
        for name, value in gauges.items():
            yield from (f"# TYPE leporello_{name} gauge", f"leporello_{name} {value}")
        yield "# TYPE leporello_requests_total counter"
        for (route, status), count in sorted(self._requests.items()):
            yield f'leporello_requests_total{{route="{route}",status="{status}"}} {count}'
        yield "# TYPE leporello_request_seconds histogram"
        total = self._requests.total()
        for bound in _BOUNDS:
            yield f'leporello_request_seconds_bucket{{le="{bound:g}"}} {self._seconds[bound]}'
        yield f'leporello_request_seconds_bucket{{le="+Inf"}} {total}'
        yield f"leporello_request_seconds_sum {self._sum:.6f}"
        yield f"leporello_request_seconds_count {total}"
        for name, counter, label in (("compactions", self._folds, "status"), ("tokens", self._tokens, "kind")):
            yield f"# TYPE leporello_{name}_total counter"
            for key, count in sorted(counter.items()):
                yield f'leporello_{name}_total{{{label}="{key}"}} {count}'


def merged(by_process: Mapping[str, str]) -> str:
    """Return the figures of several processes as those of one: sums, where these say something."""
    kinds: dict[str, str] = {}
    values: dict[str, dict[str, float]] = {}
    for process, text in by_process.items():
        name = ""
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                _, _, name, kinds[name] = line.split(" ")
                continue
            key, _, value = line.rpartition(" ")
            if name == _APART:
                key += f'{{process="{process}"}}'
            known = values.setdefault(name, {})
            known[key] = known.get(key, 0) + float(value)
    lines = [
        line
        for name, kind in kinds.items()
        for line in (
            f"# TYPE {name} {kind}",
            *(f"{key} {_number(value)}" for key, value in values.get(name, {}).items()),
        )
    ]
    return "\n".join([*lines, ""])


def _number(value: float) -> str:
    return str(int(value)) if value.is_integer() else f"{value:.6f}"
