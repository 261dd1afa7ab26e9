"""The provider behind the HTTP: takes a request, checks it, and answers as its script says."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeAlias

from leporello.engine import Usage
from leporello.testing.model_server import anthropic_dialect, openai_dialect, responses_dialect
from leporello.testing.model_server.answer import answer_to, counted, prompt_tokens
from leporello.testing.model_server.delivery import Delivery
from leporello.testing.model_server.dialects import DIALECTS
from leporello.testing.model_server.failures import REFUSALS, Failure, HTTPFailure, Planned, invalid
from leporello.testing.model_server.requests import ReceivedRequest, key_of, received
from leporello.testing.model_server.response_memory import ResponseMemory, Unknown
from leporello.testing.model_server.script import Scripted, Step, echo, resolve
from leporello.testing.model_server.spoil import spoilt_chunks, spoilt_step

if TYPE_CHECKING:
    from starlette.requests import Request as HttpRequest

    from leporello.messages import Dialect
    from leporello.testing.model_server.answer import Answer
    from leporello.testing.model_server.checks import Checks

UsageHook: TypeAlias = Callable[[ReceivedRequest, Usage], Usage]

_SLOW = {Failure.SLOW_START, Failure.DRIPPING}
"""The failures after which the answer still comes."""


class Provider:
    """What a model server will say and what it was asked; safe between threads."""

    def __init__(
        self,
        *,
        checks: Checks,
        script: Iterable[Scripted],
        then: Scripted,
        usage: UsageHook,
        remembers: bool = True,
        gap: float = 0.0,
    ) -> None:
        self.closing = False
        self._checks = checks
        self._script = deque(script)
        self._then = then
        self._planned: deque[Planned] = deque()
        self._usage = usage
        self._requests: list[ReceivedRequest] = []
        self._memory = ResponseMemory(remembers=remembers)
        self._lock = threading.Lock()
        self._gap = gap

    def extend(self, steps: Iterable[Scripted]) -> None:
        """Add steps to the end of the script."""
        with self._lock:
            self._script.extend(steps)

    def plan(self, planned: Planned, times: int) -> None:
        """Let the next `times` requests fail."""
        with self._lock:
            self._planned.extend([planned] * times)

    def heal(self) -> None:
        """Forget the failures that are still planned."""
        with self._lock:
            self._planned.clear()

    def requests(self) -> list[ReceivedRequest]:
        """Return what was asked so far."""
        with self._lock:
            return list(self._requests)

    async def complete(self, http: HttpRequest, dialect: Dialect) -> Delivery:
        """Answer a request for a completion."""
        request = received(http, await http.body(), dialect, self._memory)
        with self._lock:
            planned = self._planned.popleft() if self._planned else None
        if planned is None or planned.failure in _SLOW:
            request = replace(request, refused=self._checks.refusal(request, key_of(http.headers)))
        with self._lock:
            self._requests.append(request)
            number = len(self._requests)
        if request.refused is not None:
            return _refused(request.refused, request, number)
        step, planned = await self._decide(request, planned)
        if planned is not None and (refusal := self._checks.planned(request, planned)) is not None:
            return _refused(refusal, request, number)
        answer = answer_to(request, step, number)
        answer = replace(answer, usage=self._usage(request, answer.usage))
        if dialect == "responses":
            self._memory.keep(request.items, responses_dialect.body(request, answer))
        return self._delivery(request, answer, planned)

    async def count(self, http: HttpRequest, dialect: Dialect) -> Delivery:
        """Answer a request for a count of tokens."""
        request = received(http, await http.body(), dialect, self._memory)
        refusal = self._checks.refused_before_size(request, key_of(http.headers))
        if refusal:
            return _refused(refusal, request)
        kind = {"object": "response.input_tokens"} if dialect == "responses" else {}
        return _json({**kind, "input_tokens": prompt_tokens(request)})

    async def compact(self, http: HttpRequest) -> Delivery:
        """Answer a request for a compaction: the messages of the user, and one item for everything else."""
        request = received(http, await http.body(), "responses", self._memory)
        refusal = self._checks.refusal(request, key_of(http.headers))
        if refusal:
            return _refused(refusal, request)
        with self._lock:
            self._requests.append(request)
            number = len(self._requests)
        kept = [{"type": "message", **item} for item in request.items if item.get("role") == "user"]
        usage = responses_dialect.usage_body(counted(request, "", "", []))
        told = {"id": f"cmpr_{number}", "object": "response.compaction", "created_at": 0, "usage": usage}
        return _json({**told, "output": [*kept, responses_dialect.compaction(number)]})

    async def stored(self, http: HttpRequest) -> Delivery:
        """Answer a request about a response that was given."""
        id_, what = http.path_params["id"], http.url.path.rpartition("/")[2]
        bare = ReceivedRequest(dialect="responses", path=http.url.path, headers={}, body={})
        if not self._checks.accepts_key(key_of(http.headers)):
            return _refused(REFUSALS[Failure.BAD_KEY], bare)
        try:
            if what == "cancel":
                self._memory.response(id_)
                return _refused(invalid("Cannot cancel a synchronous response."), bare)
            if what == "input_items":
                return _json({"object": "list", "data": self._memory.input_items(id_), "has_more": False})
            if http.method == "DELETE":
                self._memory.delete(id_)
                return _json({"id": id_, "object": "response.deleted", "deleted": True})
            return _json(self._memory.response(id_))
        except Unknown as unknown:
            return _refused(unknown.refusal, bare)

    def list_models(self, http: HttpRequest) -> Delivery:
        """Answer a request for the list of models."""
        dialect: Dialect = "anthropic" if "anthropic-version" in http.headers else "openai"
        if not self._checks.accepts_key(key_of(http.headers)):
            return _json(REFUSALS[Failure.BAD_KEY].in_dialect(dialect), status=REFUSALS[Failure.BAD_KEY].status)
        shape = anthropic_dialect.models_body if dialect == "anthropic" else openai_dialect.models_body
        return _json(shape(list(self._checks.models or ["scripted"])))

    async def _decide(self, request: ReceivedRequest, planned: Planned | None) -> tuple[Step, Planned | None]:
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

    async def _next(self, request: ReceivedRequest) -> Step | Planned:
        with self._lock:
            scripted = self._script.popleft() if self._script else self._then
        return await asyncio.to_thread(resolve, scripted, request)  # a function in a script may wait for something

    def _delivery(self, request: ReceivedRequest, answer: Answer, planned: Planned | None) -> Delivery:
        chunks, media_type = list(DIALECTS[request.dialect].chunks(request, answer)), "application/json"
        if request.stream:
            media_type = "text/event-stream"
        if planned is not None:
            chunks, media_type = spoilt_chunks(request, planned.failure, chunks, media_type)
        gap = self._gap if request.stream else 0.0
        return Delivery(chunks, media_type=media_type, planned=planned, closing=lambda: self.closing, gap=gap)


def _refused(refusal: HTTPFailure, request: ReceivedRequest, number: int = 0) -> Delivery:
    """Return a refusal: as an HTTP error, or as the end of an answer that began well."""
    if refusal.status != HTTPStatus.OK:
        return Delivery(
            [_encoded(refusal.in_dialect(request.dialect))], status=refusal.status, headers=dict(refusal.headers)
        )
    response = responses_dialect.failed(request, number, refusal)
    if request.stream:
        return Delivery(list(responses_dialect.events(response)), media_type="text/event-stream")
    return _json(response)


def _json(data: Any, status: int = 200) -> Delivery:
    return Delivery([_encoded(data)], status=status)


def _encoded(data: Any) -> bytes:
    return json.dumps(data).encode()
