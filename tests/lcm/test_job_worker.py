"""Summaries that are left to workers: each is written once, by any of them, and again when one dies."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

from leporello import Config, LCMEngine
from leporello.cli.worker import model_for
from leporello.errors import NetworkError
from leporello.lcm import verify
from leporello.lcm.job_worker import JobWorker
from leporello.lcm.preparation import CLAIM_SECONDS, KINDS
from leporello.lcm.settings import LCMSettings
from leporello.llm import FakeClock, ScriptedLLM
from leporello.store import open_store
from leporello.store.renewal import Renewal
from leporello.tokens import count_messages

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from leporello.llm import LLM
    from leporello.messages import Message
    from leporello.store import Job, Store
    from leporello.testing.manual_executor import ManualExecutor

DATABASES = True

Work = Any
GOOD = "## Goal\nFix the build.\n\n## Progress\n### Done\n- Read src/app.py."
ASK: Message = {"role": "user", "content": "And what is next?"}
LEFT = {"background": "workers"}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(tmp_path / "store.db")


@pytest.fixture
def leave(store: Store, work: Work, background: ManualExecutor) -> Callable[..., LCMEngine]:
    """Fill a conversation up to its soft threshold with an engine that leaves its summaries to workers."""

    def left(session: str = "s", llm: LLM | None = None, on: Store = store) -> LCMEngine:
        llm = llm or ScriptedLLM(GOOD, context_length=64_000)
        engine = LCMEngine(16_000, executor=background, config=LEFT, llm=llm, store=on)
        engine.on_event = lambda _: None
        engine.on_session_start(session)
        engine.update_model("m", 16_000, provider="openai")
        messages: list[Message] = [ASK]
        turn = 0
        while count_messages(messages) < engine.threshold_tokens * 0.9:
            messages = [*messages[:-1], *work(turn, turn + 1), ASK]
            turn += 1
        request(engine, messages)
        background.run()
        engine.handed = messages  # type: ignore[attr-defined]
        return engine

    return left


def request(engine: LCMEngine, messages: list[Message]) -> None:
    engine.update_from_response({"prompt_tokens": count_messages(messages), "completion_tokens": 1})
    engine.should_compress_preflight(messages)
    engine.should_compress(count_messages(messages))


def worker(store: Store, llm: LLM | None, clock: FakeClock | None = None) -> JobWorker:
    settings = LCMSettings.of(LEFT)
    return JobWorker(store, settings, lambda _: llm, **({"clock": clock} if clock else {}))


def run(*workers: JobWorker) -> None:
    with ThreadPoolExecutor(len(workers)) as pool:
        for running in [pool.submit(one.run, threading.Event(), once=True) for one in workers]:
            running.result(60)


def jobs(store: Any) -> int:
    with store._db.read() as connection:
        return int(connection.execute("SELECT count(*) FROM jobs").fetchone()[0])


def test_the_engine_leaves_its_summaries_and_folds_with_what_a_worker_wrote(
    store: Store, leave: Callable[..., LCMEngine], work: Work
) -> None:
    llm = ScriptedLLM(GOOD, context_length=64_000)
    engine = leave(llm=llm)
    assert not llm.calls
    assert jobs(store) >= 2
    writes = ScriptedLLM(GOOD, context_length=64_000)
    run(worker(store, writes))
    prepared = store.prepared_nodes("s")
    assert len(prepared) == len(writes.calls) >= 2
    full = [*engine.handed, {"role": "assistant", "content": "Next."}, *work(500, 510)]  # type: ignore[attr-defined]
    request(engine, full)
    window = engine.compress(full)
    assert count_messages(window) < engine.threshold_tokens
    assert not llm.calls
    assert {node.id for node in prepared} & {node.id for node in store.nodes("s")}
    assert verify(store, "s") == []


def test_several_workers_write_each_summary_once(store: Store, leave: Callable[..., LCMEngine]) -> None:
    for n in range(5):
        leave(f"s{n}")
    waiting = jobs(store)
    llms = [ScriptedLLM(GOOD, context_length=64_000) for _ in range(4)]
    workers = [worker(store, llm) for llm in llms]
    run(*workers)
    kept = [node for n in range(5) for node in store.prepared_nodes(f"s{n}")]
    covers = [(node.first_seq, node.last_seq, node.meta["begins"]) for node in kept]
    assert len(covers) == len(set(covers)) == sum(len(llm.calls) for llm in llms) == sum(one.done for one in workers)
    assert len(kept) >= waiting
    assert jobs(store) == 0


@pytest.mark.parametrize("renews", [True, False])
def test_a_claim_is_kept_while_its_worker_writes_and_expires_when_it_does_not(
    store: Store, leave: Callable[..., LCMEngine], *, renews: bool
) -> None:
    """Without renewal, the planted defect, a slow worker loses its claim to another."""
    leave()
    job = store.claim_job("slow", seconds=0.2, kinds=KINDS)
    assert job is not None
    waited, again = threading.Event(), None
    if renews:
        with Renewal(partial(store.renew_job, job, seconds=0.2), 0.2):
            waited.wait(0.6)
            again = _claimed(store, job)
    else:
        waited.wait(0.6)
        again = _claimed(store, job)
    assert (again is None) == renews
    if again is None:
        waited.wait(0.3)  # the worker is dead now
        assert _claimed(store, job) is not None


def _claimed(store: Store, wanted: Job) -> Job | None:
    """Claim what is due, until it is this one."""
    while found := store.claim_job("other", seconds=60, kinds=KINDS):
        if found.id == wanted.id:
            return found
    return None


def test_who_lost_its_claim_keeps_nothing(store: Store, leave: Callable[..., LCMEngine]) -> None:
    leave()
    late = store.claim_job("late", seconds=0.001, kinds=KINDS)
    assert late is not None
    threading.Event().wait(0.01)
    run(worker(store, ScriptedLLM(GOOD, context_length=64_000)))
    nodes = store.prepared_nodes("s")
    assert store.add_nodes("s", nodes[:1], job=late) == []
    assert len(store.prepared_nodes("s")) == len(nodes)
    assert not store.renew_job(late, seconds=60)
    store.add_nodes("s", nodes[:1])  # the planted defect: what is kept without its job is there twice
    assert len(store.prepared_nodes("s")) == len(nodes) + 1


def test_a_model_that_is_away_is_asked_again_later(leave: Callable[..., LCMEngine], tmp_path: Path) -> None:
    clock, up = FakeClock(), {"now": False}
    store = open_store(tmp_path / "clock.db", clock=clock)

    def answer(_: list[Message]) -> str:
        if not up["now"]:
            raise NetworkError("connection refused")
        return GOOD

    leave(on=store)
    waiting = jobs(store)
    one = worker(store, ScriptedLLM(answer, context_length=64_000), clock)
    run(one)
    assert (one.done, jobs(store)) == (0, waiting)
    up["now"] = True
    run(one)
    assert one.done == 0, "it was asked again at once"
    clock.advance(3_600)
    run(one)
    assert one.done >= waiting
    assert jobs(store) == 0


def test_without_a_model_jobs_wait_for_a_worker_that_has_one(store: Store, leave: Callable[..., LCMEngine]) -> None:
    leave()
    waiting = jobs(store)
    run(worker(store, None))
    assert jobs(store) == waiting
    assert store.prepared_nodes("s") == []


def test_one_job_that_fails_does_not_keep_the_others_waiting(
    store: Store, leave: Callable[..., LCMEngine], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store.append("broken", [ASK])
    store.add_job("broken", KINDS[0], "1", {"covers": "no covers"})
    leave()
    waiting = jobs(store)
    one = worker(store, ScriptedLLM(GOOD, context_length=64_000))
    run(one)
    assert one.done >= waiting - 1
    assert jobs(store) == 1
    assert "a job failed" in caplog.text


def test_what_a_fold_has_covered_meanwhile_is_not_written_again(
    store: Store, leave: Callable[..., LCMEngine], work: Work
) -> None:
    """The fold came before any worker did; what it wrote without a model is written again from the next plan on."""
    engine = leave()
    full = [*engine.handed, {"role": "assistant", "content": "Next."}, *work(500, 510)]  # type: ignore[attr-defined]
    request(engine, full)
    engine.compress(full)
    assert {node.made_by for node in store.nodes("s")} == {"extract"}
    llm = ScriptedLLM(GOOD, context_length=64_000)
    run(worker(store, llm))
    assert not llm.calls
    assert jobs(store) == 0
    assert store.prepared_nodes("s") == []


def test_a_job_that_is_added_again_after_it_was_done_is_not_done_again(
    store: Store, leave: Callable[..., LCMEngine]
) -> None:
    leave()
    job = store.claim_job("looked before", seconds=0.001, kinds=KINDS)
    assert job is not None
    threading.Event().wait(0.01)
    llm = ScriptedLLM(GOOD, context_length=64_000)
    run(worker(store, llm))
    calls = len(llm.calls)
    store.add_job("s", job.kind, job.key, job.payload)
    run(worker(store, llm))
    assert len(llm.calls) == calls
    assert jobs(store) == 0


def test_jobs_of_other_kinds_and_owners_are_left_alone(store: Store) -> None:
    for owner in ("ann", "bob"):
        store.add_job("c", "theirs", "1", {}, owner=owner)
        store.add_job("c", KINDS[0], "1", {}, owner=owner)
    found = [store.claim_job("w", seconds=60, conversation="c", owner="bob", kinds=KINDS) for _ in range(2)]
    assert [job and (job.owner, job.kind) for job in found] == [("bob", KINDS[0]), None]


def test_a_claim_of_a_minute_is_long_enough_for_a_late_renewal() -> None:
    assert CLAIM_SECONDS >= 30


class TestModel:
    """Which model a worker asks, and with which key."""

    UPSTREAM: ClassVar = {"base_url": "http://127.0.0.1:9/v1", "api_key_env": "UPSTREAM_KEY"}

    @pytest.fixture(autouse=True)
    def _keys(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("UPSTREAM_KEY", "sk-upstream")
        for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENROUTER_API_KEY"):
            monkeypatch.delenv(name, raising=False)

    def test_the_provider_of_the_gateway_is_asked_with_its_key(self) -> None:
        config = Config.from_mapping({"gateway": {"upstreams": {"openai": self.UPSTREAM}}})
        llm = model_for(config, {"model": "m", "provider": "", "base_url": "http://127.0.0.1:9/v1"})
        assert llm is not None
        assert llm.model == "m"
        assert "sk-upstream" in str(vars(llm))

    def test_an_address_that_is_not_configured_gets_no_key(self) -> None:
        """Rows of a database must not lead a worker, and its keys, anywhere else."""
        config = Config.from_mapping({"gateway": {"upstreams": {"openai": self.UPSTREAM}}})
        assert model_for(config, {"model": "m", "provider": "openai", "base_url": "http://attacker.example/v1"}) is None
