"""The provider behind the HTTP: takes a request, checks it, and answers as its script says."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from leporello.engine import Usage
from leporello.testing.model_server import anthropic_dialect, openai_dialect
from leporello.testing.model_server.answer import answer_to, prompt_tokens
from leporello.testing.model_server.delivery import Delivery
from leporello.testing.model_server.failures import REFUSALS, Failure, Planned, Refusal
from leporello.testing.model_server.requests import Request, key_of, received
from leporello.testing.model_server.script import Scripted, Step, echo, resolve
from leporello.testing.model_server.spoil import spoilt_chunks, spoilt_step

if TYPE_CHECKING:
    from starlette.requests import Request as HttpRequest

    from leporello.testing.model_server.answer import Answer
    from leporello.testing.model_server.checks import Checks

UsageHook: TypeAlias = Callable[[Request, Usage], Usage]

_SLOW = {Failure.SLOW_START, Failure.DRIPPING}
"""The failures after which the answer still comes."""


class Provider:
    """What a model server will say and what it was asked; safe between threads."""

    def __init__(self, *, checks: Checks, script: Iterable[Scripted], then: Scripted, usage: UsageHook) -> None:
        self.closing = False
        self._checks = checks
        self._script = deque(script)
        self._then = then
        self._planned: deque[Planned] = deque()
        self._usage = usage
        self._requests: list[Request] = []
        self._lock = threading.Lock()

    def extend(self, steps: Iterable[Scripted]) -> None:
        """Add steps to the end of the script."""
        with self._lock:
            self._script.extend(steps)

    def plan(self, planned: Planned, times: int) -> None:
        """Let the next so many requests fail."""
        with self._lock:
            self._planned.extend([planned] * times)

    def heal(self) -> None:
        """Forget the failures that are still planned."""
        with self._lock:
            self._planned.clear()

    def requests(self) -> list[Request]:
        """Return what was asked so far."""
        with self._lock:
            return list(self._requests)

    async def complete(self, http: HttpRequest, dialect: str) -> Delivery:
        """Answer a request for a completion."""
        request = received(http, await http.body(), dialect)
        with self._lock:
            self._requests.append(request)
            number = len(self._requests)
            planned = self._planned.popleft() if self._planned else None
        if planned is None or planned.failure in _SLOW:
            refusal = self._checks.refusal(request, key_of(http.headers))
            if refusal is not None:
                return _refused(refusal, dialect)
        step, planned = await self._decide(request, planned)
        if planned is not None and (refusal := self._checks.planned(request, planned)) is not None:
            return _refused(refusal, dialect)
        answer = answer_to(request, step, number)
        return self._delivery(request, replace(answer, usage=self._usage(request, answer.usage)), planned)

    async def count(self, http: HttpRequest) -> Delivery:
        """Answer a request for a count of tokens."""
        request = received(http, await http.body(), "anthropic")
        refusal = self._checks.refused_before_size(request, key_of(http.headers))
        return _refused(refusal, "anthropic") if refusal else _json({"input_tokens": prompt_tokens(request)})

    def list_models(self, http: HttpRequest) -> Delivery:
        """Answer a request for the list of models."""
        dialect = "anthropic" if "anthropic-version" in http.headers else "openai"
        if not self._checks.accepts_key(key_of(http.headers)):
            return _refused(REFUSALS[Failure.BAD_KEY], dialect)
        shape = anthropic_dialect.models_body if dialect == "anthropic" else openai_dialect.models_body
        return _json(shape(list(self._checks.models or ["scripted"])))

    async def _decide(self, request: Request, planned: Planned | None) -> tuple[Step, Planned | None]:
        """Return what to say and how to fail; a failure that prevents the answer uses up no step of the script."""
        if planned is None:
            said = await self._next(request)
            if isinstance(said, Step):
                return said, None
            planned = said
        if planned.failure in _SLOW:
            said = await self._next(request)
            return (said if isinstance(said, Step) else echo(request)), planned
        return spoilt_step(request, planned.failure), planned

    async def _next(self, request: Request) -> Step | Planned:
        with self._lock:
            scripted = self._script.popleft() if self._script else self._then
        return await asyncio.to_thread(resolve, scripted, request)  # a function in a script may wait for something

    def _delivery(self, request: Request, answer: Answer, planned: Planned | None) -> Delivery:
        chunks, media_type = list(_chunks(request, answer)), "application/json"
        if request.stream:
            media_type = "text/event-stream"
        if planned is not None:
            chunks, media_type = spoilt_chunks(request, planned.failure, chunks, media_type)
        return Delivery(chunks, media_type=media_type, planned=planned, closing=lambda: self.closing)


def _chunks(request: Request, answer: Answer) -> Iterable[bytes]:
    if request.dialect == "anthropic":
        return anthropic_dialect.events(answer) if request.stream else [_encoded(anthropic_dialect.body(answer))]
    if not request.stream:
        return [_encoded(openai_dialect.body(answer))]
    options = request.body.get("stream_options")
    include_usage = isinstance(options, dict) and options.get("include_usage") is True
    return openai_dialect.events(answer, include_usage=include_usage)


def _refused(refusal: Refusal, dialect: str) -> Delivery:
    return Delivery([_encoded(refusal.in_dialect(dialect))], status=refusal.status, headers=dict(refusal.headers))


def _json(data: Any) -> Delivery:
    return Delivery([_encoded(data)])


def _encoded(data: Any) -> bytes:
    return json.dumps(data).encode()
