"""The figures of one conversation are the same wherever they are shown: as it goes on, resumed, from the store."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from hypothesis import example, given, settings, strategies as st
from rich.console import Console

from leporello import Session
from leporello.cli.chat.screen import Screen
from leporello.cli.chat.usage import status_line, usage_table, window_chart
from leporello.cli.chat.view import ChatView
from leporello.cli.sessions import command as sessions
from leporello.events import CompactionFinished, CompactionStarted
from leporello.lcm.engine import LCMEngine
from leporello.llm.scripted import ScriptedLLM
from leporello.proof.savings import savings_of
from leporello.session.accounts import apportioned, totals
from leporello.store import FOLD, open_store
from leporello.testing.manual_executor import ManualExecutor
from leporello.view.conversations import cost_of
from leporello.view.windows import window_now

if TYPE_CHECKING:
    from pathlib import Path

    from leporello.engine import ContextEngine
    from leporello.events import Event
    from leporello.session import SessionUsage
    from leporello.store import Store
    from leporello.view.windows import ShownWindow

CONFIG = {"compression": {"threshold": 0.5}, "lcm": {"threshold": 0.5}}
TOOL = {"type": "function", "function": {"name": "look", "description": "Look at a file.", "parameters": {}}}
SUMMARY = "## Goal\nTo look at every part.\n"
SAYINGS = ["Please look at part {}. " + "It is a matter of detail. " * 30, "And {}?", "数一数第{}部分。" * 40]


class Provider:
    """Counts a request a little differently than the estimate, always by the same rule, and answers."""

    def __init__(self, factor: float) -> None:
        self._factor = factor

    def answer(self, session: Session, number: int) -> dict[str, Any]:
        request = session.request([TOOL])
        size = len(json.dumps(request["messages"], ensure_ascii=False).encode())
        usage = {"prompt_tokens": int(size / 4 * self._factor) + 50, "completion_tokens": 30}
        text = f"Part {number} is done. " + "Every detail was looked at. " * 12
        return {
            "choices": [{"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
            "usage": {**usage, "total_tokens": usage["prompt_tokens"] + 30},
        }


def opened(store: Store, engine: str | ContextEngine, events: list[Event], *, model: bool) -> Session:
    summariser: dict[str, Any] = {"llm": ScriptedLLM(SUMMARY) if model else None} if isinstance(engine, str) else {}
    return Session.open(
        "talk",
        model="gpt-5-mini",
        provider="openai",
        context_length=8_000,
        engine=engine,
        store=store,
        config=CONFIG,
        system="You look at parts.",
        on_event=events.append,
        **summariser,
    )


def text_of(thing: Any) -> str:
    out = io.StringIO()
    Console(file=out, width=200, color_system=None).print(thing)
    return out.getvalue()


def numbers(pattern: str, text: str) -> list[int]:
    found = re.search(pattern, text)
    assert found, f"{pattern!r} is not in {text!r}"
    return [int(number.replace(",", "")) for number in found.groups()]


def assert_shown_alike(usage: SessionUsage) -> None:
    """Compare what the chat shows: the status line, /usage, /context."""
    window = [usage.tokens, usage.context_length]
    pattern = r"([\d,]+) of ([\d,]+) tokens"
    chart = text_of(window_chart(usage, Console(width=80, color_system=None)))
    assert numbers(pattern, status_line(usage)) == window
    assert numbers(pattern, text_of(usage_table(usage))) == window
    assert numbers(pattern, chart) == window
    shares = {
        name: numbers(rf"{name} +([\d,]+)", chart)[0] for name in ("system", "tools", "summaries", "zone", "tail")
    }
    assert list(shares.values()) == list(vars(usage.parts).values())
    assert sum(shares.values()) == usage.tokens
    assert numbers(r"compactions +([\d,]+)", text_of(usage_table(usage))) == [usage.compactions]
    assert numbers(r"folds at ([\d,]+) tokens", chart) == numbers(r"folds at ([\d,]+)", text_of(usage_table(usage)))


def assert_stored_alike(store: Store, usage: SessionUsage, shown: dict[str, Any]) -> None:
    """Compare `Session.usage()` with the journal, `sessions show`, `leporello usage` and the page."""
    info = store.info("talk")
    assert info is not None
    rows = store.journal("talk")
    known, saved = totals(rows), savings_of(store, info, since=0.0, model="")
    spent = usage.conversation
    assert known.spent == spent
    assert (shown["window_tokens"], shown["window_messages"]) == (usage.tokens, usage.messages)
    assert shown["compactions"] == usage.compactions == saved.compactions
    assert shown["compactions"] == sum(row.reason == FOLD and row.report["status"] == "folded" for row in rows)
    for name in ("requests", "prompt_tokens", "completion_tokens", "cache_read_tokens", "cache_write_tokens"):
        assert shown[name] == getattr(spent, name) == getattr(saved, name), name
    assert shown["cost_usd"] == spent.cost_usd
    assert (spent.cost_usd or 0.0) == pytest.approx(saved.cost_usd) == pytest.approx(cost_of(store, info) or 0.0)
    assert_the_page_shows_it(window_now(store, info), usage)


def assert_the_page_shows_it(window: ShownWindow, usage: SessionUsage) -> None:
    assert (window.tokens, len(window.entries)) == (usage.tokens, usage.messages)
    assert list(window.parts().values()) == list(vars(usage.parts).values())
    assert window.free == max(0, usage.context_length - usage.tokens)


def assert_wrong_figures_are_noticed(store: Store, usage: SessionUsage, shown: dict[str, Any]) -> None:
    """Every comparison fails when one of its figures is another one."""
    with pytest.raises(AssertionError):
        assert_shown_alike(replace(usage, tokens=usage.tokens + 1))
    spent = replace(usage.conversation, prompt_tokens=usage.conversation.prompt_tokens + 1)
    for wrong in ({"window_tokens": -1}, {"compactions": -1}, {"requests": -1}, {"cost_usd": -1.0}):
        with pytest.raises(AssertionError):
            assert_stored_alike(store, usage, shown | wrong)
    with pytest.raises(AssertionError):
        assert_stored_alike(store, replace(usage, conversation=spent), shown)
    info = store.info("talk")
    assert info is not None
    with pytest.raises(AssertionError):
        assert_the_page_shows_it(replace(window_now(store, info), counted=usage.tokens + 1), usage)


def shown_by_command(file: Path) -> dict[str, Any]:
    ran = CliRunner().invoke(sessions, ["show", "talk", "--json", "--store", str(file)])
    told: dict[str, Any] = json.loads(ran.stdout)
    return told


turns = st.lists(st.sampled_from(SAYINGS), min_size=1, max_size=10)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["compressor", "lcm"])
@settings(deadline=None, max_examples=6)
@given(
    said=turns,
    factor=st.sampled_from([0.8, 1.0, 1.3]),
    asked=st.booleans(),
    resumed=st.integers(0, 9),
    model=st.booleans(),
)
def test_the_figures_are_the_same_everywhere(
    tmp_path_factory: pytest.TempPathFactory,
    engine: str,
    said: list[str],
    factor: float,
    asked: bool,
    resumed: int,
    model: bool,
) -> None:
    file = tmp_path_factory.mktemp("figures") / "talk.db"
    store, events = open_store(file), list[Any]()
    provider = Provider(factor)
    session = opened(store, engine, events, model=model)
    for number, saying in enumerate(said):
        session.add({"role": "user", "content": saying.replace("{}", str(number))})
        before = session.usage()
        events.clear()
        answer = provider.answer(session, number)
        assert_a_fold_is_told_as_it_is(events, before)
        session.record(answer)
        assert_shown_alike(session.usage())
        if number == resumed:
            left = session.usage()
            session.close()
            session = opened(store, engine, events, model=model)
            assert session.usage().tokens == left.tokens, "a resume changes no figure"
    if asked:
        before = session.usage()
        events.clear()
        session.compress()
        assert_a_fold_is_told_as_it_is(events, before)
        assert_its_zones_are_those_of_the_window(events, session.usage())
    usage = session.usage()
    assert_shown_alike(usage)
    session.close()
    shown = shown_by_command(file)
    assert_stored_alike(store, usage, shown)
    assert_wrong_figures_are_noticed(store, usage, shown)
    again = opened(store, engine, [], model=model)
    assert (again.usage().tokens, again.usage().parts) == (usage.tokens, usage.parts)
    again.close()
    store.close()


@pytest.mark.slow
@settings(deadline=None, max_examples=4)
@given(said=st.lists(st.sampled_from([0, 2]), min_size=8, max_size=12), factor=st.sampled_from([0.8, 1.0, 1.3]))
def test_the_figures_are_the_same_with_summaries_from_the_background(
    tmp_path_factory: pytest.TempPathFactory, said: list[int], factor: float
) -> None:
    """After every turn what is prepared is written, and counted with the fold that uses it."""
    file = tmp_path_factory.mktemp("background") / "talk.db"
    store, events, background = open_store(file), list[Any](), ManualExecutor()
    model = ScriptedLLM(SUMMARY)
    engine = LCMEngine(8_000, executor=background, config=CONFIG["lcm"], llm=model, store=store)
    session = opened(store, engine, events, model=True)
    provider, prepared, used = Provider(factor), 0, 0
    for number, saying in enumerate(said):
        session.add({"role": "user", "content": (3 * SAYINGS[saying]).replace("{}", str(number))})
        before = session.usage()
        events.clear()
        answer = provider.answer(session, number)
        assert_a_fold_is_told_as_it_is(events, before)
        used += sum(one.model_calls for one in events if isinstance(one, CompactionFinished))
        session.record(answer)
        background.run()
        prepared = len(model.prompts)
        usage = session.usage()
        assert_shown_alike(usage)
        assert usage.conversation.engine_calls == used <= prepared
        assert_stored_alike(store, usage, shown_by_command(file))
    assert prepared, "summaries were written between the turns"
    session.close()
    store.close()


STEPS = ["say", "say", "again", "edit", "aside", "undo", "resume", "compress"]


class Talk:
    """A conversation that is forked, undone and resumed; `session` is on its head."""

    def __init__(self, file: Path, engine: str, factor: float) -> None:
        self.store = open_store(file)
        self.session = opened(self.store, engine, [], model=True)
        self.file = file
        self._engine = engine
        self._provider = Provider(factor)
        self._number = 0

    def do(self, step: str) -> None:
        asked = self._newest("user")
        if step == "say" or asked is None:
            self._say(self.session)
        elif step == "aside":
            with self.session.fork(head=False) as aside:
                self._say(aside)
        elif step == "undo":
            self.session.undo()
        elif step == "compress":
            self.session.compress()
        elif step == "resume":
            self.close()
            self.store = open_store(self.file)
            self.session = opened(self.store, self._engine, [], model=True)
        elif step == "edit" or (answered := self._newest("assistant")) is None:
            self.session = self.session.fork(before=asked)
            self._say(self.session)
        else:
            self.session = self.session.fork(before=answered)
            self.session.record(self._provider.answer(self.session, self._number))

    def close(self) -> None:
        self.session.close()
        self.store.close()

    def _say(self, session: Session) -> None:
        self._number += 1
        session.add({"role": "user", "content": SAYINGS[self._number % 3].replace("{}", str(self._number))})
        session.record(self._provider.answer(session, self._number))

    def _newest(self, role: str) -> str | None:
        session = self.session
        rows = session.store.messages(session.id, branch=session.branch, newest_first=True)
        return next((row.id for row in rows if row.role == role), None)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["compressor", "lcm"])
@settings(deadline=None, max_examples=8)
@example(steps=["say", "aside"], factor=0.8).via("another branch learns a factor of its own")
@example(steps=["say", "compress"], factor=0.8).via("a fold that is refused is the newest row of the journal")
@example(steps=["say", "say", "again", "undo"], factor=0.8).via("an undo leads to another branch than the newest")
@given(steps=st.lists(st.sampled_from(STEPS), min_size=2, max_size=14), factor=st.sampled_from([0.8, 1.0, 1.3]))
def test_the_figures_are_the_same_on_every_branch(
    tmp_path_factory: pytest.TempPathFactory, engine: str, steps: list[str], factor: float
) -> None:
    talk = Talk(tmp_path_factory.mktemp("branches") / "talk.db", engine, factor)
    for step in ["say", *steps]:
        talk.do(step)
        usage = talk.session.usage()
        assert_shown_alike(usage)
        assert_stored_alike(talk.store, usage, shown_by_command(talk.file))
    talk.close()


def assert_a_fold_is_told_as_it_is(events: list[Any], before: SessionUsage) -> None:
    """Compare the spinner with the status line before it, and the result with both, in words as the chat shows them."""
    started = [event for event in events if isinstance(event, CompactionStarted)]
    finished = [event for event in events if isinstance(event, CompactionFinished)]
    assert len(started) == len(finished)
    if before.reported and before.folds_at and started and started[0].reason == "the window is filling":
        assert before.tokens >= before.folds_at, "it folds no earlier than it says"
    if before.reported and before.folds_at and before.tokens >= before.folds_at:
        assert started, "it folds when it says so"
    for start, end in zip(started, finished, strict=True):
        if before.reported or not before.messages:
            assert start.prompt_tokens == before.tokens
        assert_the_chat_shows_it(start, end)
        for wrong in (replace(start, prompt_tokens=end.prompt_tokens_before + 1), replace(start, messages=-1)):
            with pytest.raises(AssertionError):
                assert_the_chat_shows_it(wrong, end)


def assert_its_zones_are_those_of_the_window(events: list[Any], usage: SessionUsage) -> None:
    """Compare the zones that the result of a fold names with what `/usage` and `/context` show."""
    for end in (event for event in events if isinstance(event, CompactionFinished) and event.folded):
        assert (end.prompt_tokens_after, end.summary_tokens, end.masked_tokens) == (
            usage.tokens,
            usage.parts.summaries,
            usage.parts.masked,
        )


@pytest.mark.parametrize("factor", [0.8, 1.3])
@pytest.mark.parametrize("engine", ["compressor", "lcm"])
def test_the_zones_of_a_fold_are_counted_like_the_window(engine: str, factor: float) -> None:
    """The provider counts otherwise than the estimate; planted: the engine's own figures, which are plain estimates."""
    store, events, provider = open_store(":memory:"), list[Any](), Provider(factor)
    session = opened(store, engine, events, model=True)
    for number in range(6):
        session.add({"role": "user", "content": SAYINGS[0].replace("{}", str(number))})
        session.record(provider.answer(session, number))
    events.clear()
    report = session.compress()
    usage = session.usage()
    assert report.folded
    assert_its_zones_are_those_of_the_window(events, usage)
    with pytest.raises(AssertionError):
        assert_its_zones_are_those_of_the_window([report.finished("talk", usage.tokens, usage.tokens)], usage)
    session.close()
    store.close()


def assert_the_chat_shows_it(start: CompactionStarted, end: CompactionFinished) -> None:
    """Read the spinner and the result from a terminal."""
    out = io.StringIO()
    view = ChatView(Screen(Console(file=out, width=200, color_system=None, force_terminal=True)))
    view.take(start)
    spun = out.getvalue()
    view.take(end)
    assert numbers(r"folding ([\d,]+) messages?, ([\d,]+) tokens", spun) == [
        end.messages_before,
        end.prompt_tokens_before,
    ]
    if end.status == "folded":
        shown = numbers(r"([\d,]+) → ([\d,]+) tokens", out.getvalue())
        assert shown == [end.prompt_tokens_before, end.prompt_tokens_after]


@given(st.integers(0, 10**7), st.lists(st.integers(0, 10**6), min_size=1, max_size=6))
def test_parts_add_up_to_the_whole(total: int, weights: list[int]) -> None:
    parts = apportioned(total, weights)
    assert sum(parts) == (total if any(weights) else 0)
    assert all(part >= 0 and (weight or not part) for part, weight in zip(parts, weights, strict=True))
