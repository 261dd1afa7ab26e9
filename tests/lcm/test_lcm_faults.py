"""A crash at any call of the store leaves a conversation that goes on, whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from leporello import LCMEngine
from leporello.errors import StoreBusyError, StoreError
from leporello.lcm import verify
from leporello.llm import ScriptedLLM
from leporello.messages import Message, violations
from leporello.store import Store, open_store
from leporello.testing.manual_executor import ManualExecutor
from leporello.tokens import count_messages

Work = Callable[..., list[Message]]

GOOD = "## Goal\nFix the build.\n\n## Progress\n### Done\n- Read src/app.py."
ASK: Message = {"role": "user", "content": "And what is next?"}


class Crash(BaseException):
    """The process ends here."""


class Faulty:
    """A store that fails at one of its calls, counted from the start, before or after doing it."""

    def __init__(self, store: Store, at: int, error: BaseException, *, after: bool = False) -> None:
        self._store = store
        self._at = at
        self._error = error
        self._after = after
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._store, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            if self.calls != self._at:
                return real(*args, **kwargs)
            if self._after:
                real(*args, **kwargs)
            raise self._error

        return call if callable(real) else real


def life(store: Any, work: Work, background: ManualExecutor) -> list[Message]:
    """Live through turns, preparation in the background, a fold, and more turns."""
    engine = LCMEngine(16_000, store=store, llm=ScriptedLLM(GOOD, context_length=64_000), executor=background)
    engine.on_event = lambda _: None
    engine.on_session_start("s")
    messages: list[Message] = [*work(0, 20), ASK]
    nothing: list[Message] = []
    for more in (nothing, [{"role": "assistant", "content": "Next."}, *work(20, 44)]):
        messages = [*messages, *more]
        engine.update_from_response({"prompt_tokens": count_messages(messages), "completion_tokens": 1})
        engine.should_compress_preflight(messages)
        background.run()
        if engine.should_compress(count_messages(messages)):
            messages = engine.compress(messages)
    return messages


def everything(work: Work) -> list[Message]:
    return [*work(0, 20), ASK, {"role": "assistant", "content": "Next."}, *work(20, 44)]


def count_calls(work: Work) -> int:
    counting = Faulty(open_store(":memory:"), -1, Crash())
    life(counting, work, ManualExecutor())
    return counting.calls


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_crash_at_any_call_of_the_store_loses_nothing(work: Work, *, after: bool) -> None:
    calls = count_calls(work)
    assert calls > 20
    for at in range(1, calls + 1):
        store = open_store(":memory:")
        with pytest.raises(Crash):
            life(Faulty(store, at, Crash(), after=after), work, ManualExecutor())
        engine = LCMEngine(16_000, store=store)
        engine.on_event = lambda _: None
        engine.on_session_start("s")
        window = engine.compress(everything(work))
        assert not violations(window, "openai")
        assert [row.message for row in store.messages("s")] == everything(work), f"crash at call {at}"
        assert verify(store, "s") == [], f"crash at call {at}"


@pytest.mark.slow
@pytest.mark.parametrize("error", [StoreError("disk full"), StoreBusyError("locked")])
def test_a_store_that_fails_once_never_costs_the_conversation(work: Work, error: StoreError) -> None:
    for at in range(1, count_calls(work) + 1):
        store = open_store(":memory:")
        faulty = Faulty(store, at, error)
        background = ManualExecutor()
        try:
            window = life(faulty, work, background)
        except StoreError:
            assert faulty.calls == at, "only work in the background may fail"
            continue
        assert not violations(window, "openai")
        assert verify(store, "s") == [], f"error at call {at}"


def test_a_store_that_stays_away_is_told_once_and_the_list_comes_back_valid(work: Work) -> None:
    class Away:
        def __getattr__(self, name: str) -> Any:
            def call(*args: Any, **kwargs: Any) -> Any:
                raise StoreError("disk full", hint="Make room.")

            return call

    told: list[str] = []
    away: Any = Away()
    engine = LCMEngine(16_000, store=away)
    engine.on_event = lambda event: told.append(str(event))
    messages = [*work(0, 40), ASK]
    assert engine.should_compress_preflight(messages) is False
    assert engine.compress(messages) == messages
    assert engine.last_compaction is not None
    assert engine.last_compaction.status == "refused"
    assert "disk full" in engine.last_compaction.reason
    assert len([line for line in told if "not stored" in line]) == 1


@pytest.mark.slow
def test_another_process_that_was_faster_is_noticed(work: Work) -> None:
    """Two engines fold one conversation: the slower one starts again from the newer window."""
    store = open_store(":memory:")
    messages = [*work(0, 40), ASK]

    class Racing:
        raced = False

        def __getattr__(self, name: str) -> Any:
            if name == "save_window" and not Racing.raced:
                Racing.raced = True
                other = LCMEngine(16_000, store=store)
                other.on_event = lambda _: None
                other.on_session_start("s")
                other.compress(messages)
            return getattr(store, name)

    racing: Any = Racing()
    slow = LCMEngine(16_000, store=racing)
    slow.on_event = lambda _: None
    slow.on_session_start("s")
    window = slow.compress(messages)
    assert Racing.raced
    assert not violations(window, "openai")
    assert verify(store, "s") == []
    assert [row.message for row in store.messages("s")] == messages


class Away:
    """A store that can be away for a while."""

    def __init__(self) -> None:
        self.store = open_store(":memory:")
        self.away = False

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.store, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            if self.away:
                raise StoreBusyError("locked")
            return real(*args, **kwargs)

        return call


def two_folds_without_a_store(kind: type[LCMEngine], work: Work) -> tuple[list[Message], list[Message]]:
    """Let lists be repaired while the store is away; return what was said, and what is stored in the end."""
    store = Away()
    engine = kind(16_000, store=store, executor=ManualExecutor())
    engine.on_event = lambda _: None
    engine.on_session_start("s")
    unanswered = work(30, 31)[:2]
    twice: list[Message] = [{"role": "assistant", "content": "One."}, {"role": "assistant", "content": "Two."}]
    said = [*work(0, 4), *unanswered]
    engine.should_compress_preflight(said)
    store.away = True
    messages = engine.compress([*said, ASK])
    messages = engine.compress([*messages, *twice])
    said = [*said, ASK, *twice]
    store.away = False
    later: list[Message] = [{"role": "user", "content": "Go on."}]
    engine.should_compress_preflight([*messages, *later])
    engine.compress([*messages, *later], force=True)
    return [*said, *later], [row.message for row in store.store.messages("s")]


def test_what_a_repair_made_while_the_store_was_away_is_never_taken_for_said(work: Work) -> None:
    said, stored = two_folds_without_a_store(LCMEngine, work)
    assert stored == said


def test_a_repair_that_is_not_noted_is_caught(work: Work) -> None:
    """Planted: an engine that forgets what it handed out while the store was away."""

    class Forgetful(LCMEngine):
        def compress(self, messages: list[Message], *args: Any, **options: Any) -> list[Message]:
            result = super().compress(messages, *args, **options)
            assert self._lists is not None
            self._lists.unnoted.clear()
            return result

    said, stored = two_folds_without_a_store(Forgetful, work)
    assert stored != said
