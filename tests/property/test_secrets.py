"""No secret travels: made-up secrets in every form and context, both engines, with the model up, down and recovering.

Everything that leaves a conversation is collected: prompts, blocks, nodes, artifacts, the index, answers of tools, log
lines, spans and errors. No eight characters in a row of a secret may be in any of it. `make test` plants every form in
two of the contexts, `make soak` in all of them.
"""

from __future__ import annotations

import json
import logging
import os
import re
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from leporello import ContextCompressor, LCMEngine
from leporello.errors import ModelError, NetworkError
from leporello.events import log_event
from leporello.lcm.artifacts import KINDS
from leporello.llm.scripted import FakeClock, ScriptedLLM
from leporello.messages import text_of
from leporello.messages.fixed import SUMMARY_MARK
from leporello.session.events import AnswerRecorded, RequestFailed, RequestReady, ToolAnswered
from leporello.session.telemetry import Spans
from leporello.store.search.prepare import prepared_text
from leporello.testing.manual_executor import ManualExecutor
from leporello.testing.secrets import CONTEXTS, FORMS, SHAPES, leaks, pieces, planted

sdk = pytest.importorskip("opentelemetry.sdk.trace")

from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402 - only with the extra
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402 - the same

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leporello.messages import Message

SOAK = bool(os.environ.get("LEPORELLO_SOAK"))
CONTEXTS_EACH = len(CONTEXTS) if SOAK else 2
PLANTS_PER_FOLD = 40
WINDOW = 16_000
QUERIES = ("settings", "step", "password", "token", "exit code", "EOF", "session", "https", "rows of the yard")
SYSTEM: Message = {"role": "system", "content": "You help with a port's software."}


@dataclass(kw_only=True)
class Watch:
    """A conversation with secrets in it, and everything that left it, with where it was seen."""

    secrets: list[str] = field(default_factory=list)
    seen: list[tuple[str, str]] = field(default_factory=list)

    def saw(self, where: str, *texts: str) -> None:
        self.seen += [(where, text) for text in texts]

    def leaked(self) -> dict[str, set[str]]:
        """Return the pieces of secrets that were seen, by where."""
        known, folded = pieces(self.secrets), {key.lower(): secret for key, secret in pieces(self.secrets).items()}
        found: dict[str, set[str]] = {}
        for where, text in self.seen:
            for piece in leaks(folded if where == "index" else known, text):
                found.setdefault(where, set()).add(piece)
        return found


def neutral(turns: int) -> list[Message]:
    """Return turns without secrets: what is newest stays as it is, and is not looked at."""
    return [
        {"role": role, "content": f"The yard is quiet in hour {hour}, and the cranes stand still. " * 12}
        for hour in range(turns)
        for role in ("user", "assistant")
    ]


def batches(watch: Watch, seed: int, forms: Sequence[Any] = FORMS) -> Iterator[list[Message]]:
    """Yield the turns of a conversation that holds a secret of every form in some contexts, a part at a time."""
    contexts = list(CONTEXTS)
    turns = [
        (form, contexts[(index * 5 + seed + more * 7) % len(contexts)] if not SOAK else contexts[more])
        for index, form in enumerate(forms)
        for more in range(CONTEXTS_EACH)
    ]
    for start in range(0, len(turns), PLANTS_PER_FOLD):
        part: list[Message] = []
        for number, (form, context) in enumerate(turns[start : start + PLANTS_PER_FOLD], start):
            one = planted(form, context, number, Random(f"{seed} {form.name} {context}"))
            watch.secrets.append(one.secret)
            part += one.messages
        yield part


def named(watch: Watch, seed: int) -> list[Message]:
    """Return turns in which secrets are the names of speakers and tools."""
    turns: list[Message] = []
    for number, (name, make) in enumerate(SHAPES.items()):
        secret = make(Random(f"{seed} {name} name"))
        if not re.fullmatch(r"[A-Za-z0-9_-]+", secret):  # no name: a repair takes the other signs out
            continue
        watch.secrets.append(secret)
        call = {"id": f"named_{number}", "type": "function", "function": {"name": secret, "arguments": "{}"}}
        turns += [
            {"role": "user", "name": secret, "content": f"Please look at berth {number}."},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"named_{number}", "name": secret, "content": "ok"},
            {"role": "assistant", "content": f"Berth {number} is free."},
        ]
    return turns


def quoting(messages: list[Message]) -> str:
    """Answer as a model that repeats what it read."""
    lines = [line for message in messages for line in text_of(message).split("\n") if line and "<" not in line]
    return "## Goal\n- Go on.\n\n## Critical Context\n" + "\n".join(f"- {line[:120]}" for line in lines[-12:])


def model(state: str, watch: Watch, clock: FakeClock) -> ScriptedLLM:
    """Return a model that is up, down or recovering; its failures quote a secret."""
    secret = SHAPES["openai project"](Random(f"{state} quoted"))
    watch.secrets.append(secret)

    def fails(_: list[Message]) -> ModelError:
        return NetworkError(f"the provider said: Incorrect API key provided: {secret}")

    answers: dict[str, tuple[list[Any], Any]] = {
        "up": ([], quoting),
        "down": ([], fails),
        "recovering": ([fails] * 3, quoting),
    }
    first, then = answers[state]
    return ScriptedLLM(first, then=then, context_length=32_768, clock=clock, seconds=0.1)


def spans() -> tuple[Spans, InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = sdk.TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return Spans(log_event, provider.get_tracer("test")), exporter


def watched(
    kind: str, state: str, caplog: pytest.LogCaptureFixture, *, seed: int = 1, forms: Sequence[Any] = FORMS
) -> Watch:
    """Fold a conversation that is full of secrets, use the tools, and return all that left it."""
    watch, clock, later = Watch(), FakeClock(), ManualExecutor()
    llm = model(state, watch, clock)
    sink, exporter = spans()
    engine: ContextCompressor | LCMEngine
    if kind == "lcm":
        engine = LCMEngine(WINDOW, llm=llm, clock=clock, executor=later)
    else:
        engine = ContextCompressor(WINDOW, llm=llm, clock=clock)
    engine.on_event = sink
    engine.on_session_start("talk")
    said, window = [SYSTEM], [SYSTEM]
    with caplog.at_level(logging.INFO, logger="leporello"):
        for part in [*batches(watch, seed, forms), named(watch, seed)]:
            focus, memory = (SHAPES[name](Random(f"{seed} {name} asked")) for name in ("gitlab", "stripe"))
            watch.secrets += [focus, memory]
            said += part
            window = engine.compress(
                [*window, *part, *neutral(8)],
                current_tokens=WINDOW,
                focus_topic=f"step 3 and {focus}",
                memory_context=f"The user deploys with {memory}.",
            )
            watch.saw("block", *(text for m in window if SUMMARY_MARK in (text := text_of(m))))
            watch.saw("error", json.dumps(engine.get_status()), str(engine.last_compaction))
            later.run()
            clock.advance(4_000)
        if isinstance(engine, LCMEngine):
            use_tools(engine, watch)
        tell(sink, watch)
    watch.saw("prompt", *llm.prompts)
    watch.saw("log line", *(logging.Formatter().format(record) for record in caplog.records))
    watch.saw(
        "span",
        *(
            str((span.name, dict(span.attributes or {}), span.status.description))
            for span in exporter.get_finished_spans()
        ),
    )
    watch.saw("index", *map(prepared_text, said))
    return watch


def use_tools(engine: LCMEngine, watch: Watch) -> None:
    """Look at everything through the tools, in small pieces, so that answers are cut at many places."""
    store, talk = engine.store, engine.conversation
    nodes = [*store.nodes(talk), *store.prepared_nodes(talk)]
    watch.saw("node", *(json.dumps([node.text, node.meta], ensure_ascii=False) for node in nodes))
    watch.saw("artifact", *(f"{found.value}\n{found.note}" for _, found in store.artifacts(talk, limit=100_000)))
    step = 1 if SOAK else 5
    rows = [row.id for row in store.messages(talk)]
    asked: list[tuple[str, dict[str, Any]]] = [
        *(("lcm_describe", {"id": id_}) for id_ in (*rows[::step], *(node.id for node in nodes[::step]))),
        *(("lcm_expand", {"id": id_, "max_tokens": size}) for id_ in rows[:: 7 * step] for size in (100, 4_000)),
        *(("lcm_grep", {"query": words, "limit": 50}) for words in QUERIES),
        *(("lcm_grep", {"query": f"step {number}"}) for number in range(0, 300, 6 * step)),
        *(
            ("lcm_grep", {"query": words, "regex": True, "limit": 50})
            for words in (r"settings\s", "step-[0-9]+", "DB_")
        ),
        *(("lcm_artifacts", {"kind": kind, "limit": 200}) for kind in KINDS),
        ("lcm_expand_query", {"question": "What stands in the settings of step 3?", "max_tokens": 600}),
        ("lcm_status", {}),
        *(call for secret in watch.secrets[:40] for call in quoted_calls(secret)),
    ]
    for name, arguments in asked:
        watch.saw("tool answer", engine.handle_tool_call(name, arguments))
    for node in nodes[::step]:
        watch.saw("tool answer", *unfolded(engine, node.id))


def quoted_calls(secret: str) -> list[tuple[str, dict[str, Any]]]:
    """Return wrong calls whose errors would quote a secret."""
    return [
        ("lcm_describe", {"id": secret}),
        ("lcm_describe", {"id": f"file:{secret}"}),
        ("lcm_expand", {"id": secret, "cursor": secret}),
        ("lcm_grep", {"query": "x", "role": secret}),
        ("lcm_grep", {secret: "x"}),
        (secret, {}),
    ]


def unfolded(engine: LCMEngine, node: str) -> Iterator[str]:
    """Yield the first pages under a node, a few hundred tokens each."""
    cursor = ""
    for _ in range(6):
        answer = engine.handle_tool_call("lcm_expand", {"id": node, "max_tokens": 300, "cursor": cursor})
        yield answer
        if not (cursor := json.loads(answer).get("cursor", "")):
            return


def tell(sink: Spans, watch: Watch) -> None:
    """Tell of requests whose names and errors hold secrets."""
    for name, make in SHAPES.items():
        secret = make(Random(f"{name} told"))
        watch.secrets.append(secret)
        sink(RequestReady(model=secret, provider=secret, messages=1, tokens=1, context_length=1, session_id=secret))
        sink(RequestFailed(error=f"401: Incorrect API key provided: {secret}"))
        sink(ToolAnswered(name=secret, call_id=secret, seconds=0.1))
        sink(RequestReady(model="m", provider="p", messages=1, tokens=1, context_length=1))
        sink(
            AnswerRecorded(
                model=secret, provider=secret, finish=secret, answer_id=secret,
                prompt_tokens=1, completion_tokens=1, cache_read_tokens=0, cache_write_tokens=0, cost_usd=None,
            )
        )  # fmt: skip


def test_enough_is_planted() -> None:
    assert len(FORMS) >= 120
    assert len(CONTEXTS) >= 12


@pytest.mark.parametrize("state", ["up", "down", "recovering"])
@pytest.mark.parametrize("kind", ["compressor", "lcm"])
@pytest.mark.parametrize("seed", range(3 if SOAK else 1))
def test_no_secret_travels(kind: str, state: str, seed: int, caplog: pytest.LogCaptureFixture) -> None:
    watch = watched(kind, state, caplog, seed=seed)
    assert {where for where, _ in watch.seen} >= {"prompt", "block", "index", "log line", "span", "error"}
    assert watch.leaked() == {}


def _unchanged(value: Any, *_: Any, **__: Any) -> Any:
    return value


BYPASSES = {
    "prompts of the compressor": ("compressor", "leporello.compressor.engine.redact_messages", "prompt"),
    "prompts of the lossless engine": ("lcm", "leporello.lcm.dag.redact_messages", "prompt"),
    "artifacts": ("lcm", "leporello.lcm.artifacts.redact_messages", "tool answer"),
    "snippets": ("lcm", "leporello.store.search.hits.redact_message", "tool answer"),
    "what is unfolded": ("lcm", "leporello.lcm.tools.reader.redact_value", "tool answer"),
    "index": ("compressor", "leporello.store.search.prepare.redact_message", "index"),
    "errors of the model": ("compressor", "leporello.summary.summariser.redact", "error"),
    "spans": ("compressor", "leporello.session.telemetry.redact", "span"),
    "log lines": ("compressor", "leporello.redact.logs.redact", "log line"),
}


@pytest.mark.parametrize("bypass", BYPASSES)
def test_a_bypass_of_the_redactor_is_noticed(
    bypass: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    kind, place, where = BYPASSES[bypass]
    monkeypatch.setattr(f"{__name__}.SOAK", False)  # the short form has all that this needs
    monkeypatch.setattr(f"{__name__}.CONTEXTS_EACH", 2)
    monkeypatch.setattr(place, list if place.endswith("redact_messages") else _unchanged)
    state = "down" if where == "error" else "up"
    assert where in watched(kind, state, caplog, forms=FORMS[::4]).leaked()
