"""Every policy is driven as a host would, the arithmetic adds up, and planted losses are found and named."""

from __future__ import annotations

import multiprocessing
import re
import signal
import tempfile
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from leporello import ContextCompressor
from leporello.errors import LeporelloError, PluginError
from leporello.messages import Message, groups, role_of, text_of, tool_result, violations
from leporello.prices import price_of
from leporello.proof import Figures, ReplaySettings, Run, joined, replay, replay_all
from leporello.proof.baselines import AT_EQUAL_TOKENS, ENGINES
from leporello.proof.bootstrap import share
from leporello.proof.parallel import processes
from leporello.proof.probes import probes_of
from leporello.proof.replay import said
from leporello.testing.coding_session import coding_session
from leporello.tokens import count_messages
from leporello.transcripts import RecordedCompaction, Transcript

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.fixtures.plugins import Plugins

    from leporello.engine import ContextEngine

pytestmark = pytest.mark.slow

MODEL, WINDOW = "claude-sonnet-5", 16_000


def transcript(turns: int = 30, seed: int = 7, **fields: Any) -> Transcript:
    return Transcript(name=f"session-{seed}", format="openai", messages=coding_session(turns, seed=seed), **fields)


def settings(**fields: Any) -> ReplaySettings:
    fields = {"model": MODEL, "window": WINDOW, **fields}
    return ReplaySettings(**fields)


@pytest.fixture(scope="module")
def figures() -> Figures:
    return replay_all([transcript()], ["none", "window", "mask", "compressor", "lcm"], settings())


def run_of(figures: Figures, engine: str) -> Run:
    return figures.runs[engine][0]


def test_every_policy_is_looked_at_in_the_same_places_for_the_same_values(figures: Figures) -> None:
    looked = {
        tuple((cut.at, cut.score.all.n, cut.score.all.pairs) for cut in run_of(figures, name).cuts)
        for name in figures.runs
    }
    assert len(looked) == 1
    assert len(looked.pop()) >= 3


def test_the_json_has_the_documented_shape(figures: Figures) -> None:
    for engine in figures.as_dict()["engines"].values():
        assert {
            "cost_usd",
            "tokens",
            "cache_hit_share",
            "compactions",
            "model_calls",
            "longest_pause_ms",
        } <= engine.keys()
        assert {"n", "present", "in_context", "together"} <= engine["needed"].keys()
        assert {"retained", "by_cue", "by_value", "lost"} <= engine["probes"].keys()


def test_without_management_nothing_is_lost_and_requests_overflow(figures: Figures) -> None:
    none = figures.as_dict()["engines"]["none"]
    assert (none["needed"]["present"], none["needed"]["in_context"], none["needed"]["together"]) == (1.0, 1.0, 1.0)
    assert none["probes"]["lost"] == none["compactions"] == 0
    assert none["overflows"] > 0


def test_folding_engines_fit_and_cost_less(figures: Figures) -> None:
    told = figures.as_dict()["engines"]
    for name in ("window", "mask", "compressor", "lcm"):
        assert told[name]["overflows"] == 0
        assert told[name]["compactions"] > 0
        assert told[name]["cost_usd"] < told["none"]["cost_usd"]


def test_the_lossless_engine_loses_nothing(figures: Figures) -> None:
    probes = figures.as_dict()["engines"]["lcm"]["probes"]
    assert probes["lost"] == 0
    assert probes["asked"] > 10
    assert probes["by_cue"] > 0.5 * probes["asked"]
    assert figures.as_dict()["engines"]["window"]["probes"]["lost"] > 0


def test_the_dollars_are_the_tokens_times_their_price(figures: Figures) -> None:
    price = price_of(MODEL)
    assert price is not None
    costs = run_of(figures, "mask").costs
    points = run_of(figures, "mask").points
    by_hand = (
        costs.input * price.input
        + costs.cache_read * (price.cache_read or 0)
        + costs.cache_write * (price.cache_write_5m or 0)
        + costs.output * price.output
    ) / 1_000_000
    assert costs.usd == pytest.approx(by_hand)
    assert sum(point.cost_usd or 0 for point in points) == pytest.approx(by_hand)
    assert sum(charge.dollars for charge in costs.charges) == pytest.approx(by_hand)


def test_a_model_without_a_price_costs_none() -> None:
    told = replay_all([transcript(4)], ["none"], settings(model="my-own-model", probes=False)).as_dict()
    assert told["engines"]["none"]["cost_usd"] is None


def test_the_cache_dies_in_a_real_pause() -> None:
    """The session pauses for half an hour in its fortieth turn: nothing of it is cached any more."""
    run = replay(transcript(42), "none", settings(window=200_000, probes=False))
    cold = [point for point in run.points if point.read == 0 and point.tokens > 2_000]
    assert len(cold) == 1
    assert cold[0].tokens > 30_000


def test_at_recorded_compactions_every_engine_folds_there_and_nowhere_else() -> None:
    at = next(at for at, m in enumerate(coding_session(30)) if at > 150 and role_of(m) == "user")
    summary = "The harbour was worked on."
    told = transcript(compactions=(RecordedCompaction(at=at, summary=summary),))
    figures = replay_all([told], ["mask", "compressor", "lcm", "recorded"], settings(cuts="recorded", window=60_000))
    for name in ("mask", "compressor", "lcm"):
        run = run_of(figures, name)
        assert [fold.at for fold in run.folds] == [at]
        assert sum(point.folded for point in run.points) == 1
        assert not [found for found in run.findings if found.startswith("prefix")], "the request after a fold moves it"
    recorded = figures.as_dict()["engines"]["recorded"]["needed"]
    assert recorded["n"] == figures.as_dict()["engines"]["lcm"]["needed"]["n"] > 0
    assert recorded["present"] == 0.0


def test_thinking_is_not_replayed() -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "x" * 4_000}
    answer: Message = {"role": "assistant", "content": [thought, {"type": "text", "text": "Yes."}]}
    assert said([answer]) == [{"role": "assistant", "content": "Yes."}]


def test_in_parallel_the_figures_are_the_same() -> None:
    sessions = [transcript(8, seed) for seed in (1, 2, 3)]
    alone = replay_all(sessions, ["mask", "lcm"], settings(window=6_000, probes=False)).as_dict()
    parallel = replay_all(sessions, ["mask", "lcm"], settings(window=6_000, probes=False), jobs=2).as_dict()
    for told in (alone, parallel):
        for engine in told["engines"].values():
            engine.pop("longest_pause_ms")
    assert alone == parallel


def test_an_interrupt_does_not_wait_for_what_is_being_replayed() -> None:
    """Two processes have enough to do for hours; they end, and their folder for temporary files with them."""
    folder, others = Path(), set(multiprocessing.active_children())
    with suppress(KeyboardInterrupt), processes(2) as pool:
        folder = Path(pool.submit(tempfile.gettempdir).result())
        for _ in range(4):
            pool.submit(time.sleep, 3_600)
        signal.raise_signal(signal.SIGINT)
    assert set(multiprocessing.active_children()) <= others
    assert folder.name.startswith("leporello-replay-")
    assert not folder.exists()


def test_a_process_takes_no_interrupt_from_its_first_moment_on() -> None:
    """One that came while it imports would be a traceback on the screen."""
    with processes(1) as pool:
        assert signal.SIGINT in pool.submit(signal.pthread_sigmask, signal.SIG_BLOCK, []).result()
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_a_process_that_is_killed_is_told() -> None:
    with pytest.raises(LeporelloError, match="--jobs 1"), processes(1) as pool:
        pool.submit(signal.raise_signal, signal.SIGKILL).result()


@pytest.mark.parametrize("turns", [(3, 4, 2), (4, 3, 2), (2, 3, 4)])
def test_only_the_longest_conversation_keeps_its_points(turns: tuple[int, ...]) -> None:
    """With all of them a file of a gigabyte would fill the memory with points that no plot shows."""
    sessions = [transcript(count, count) for count in turns]
    figures = replay_all(sessions, ["none", "mask"], settings(probes=False))
    held = {(run.engine, run.session) for runs in figures.runs.values() for run in runs if run.points}
    assert held == {("none", "session-4"), ("mask", "session-4")}
    assert {(run.engine, run.session) for run in figures.longest} == held
    assert all(run.costs.requests for runs in figures.runs.values() for run in runs)


def test_joined_conversations_have_the_tokens_that_were_asked_for() -> None:
    parts = [transcript(10, seed) for seed in range(6)]
    found = list(joined(parts, 30_000))
    assert [30_000 <= count_messages(one.messages) < 35_000 for one in found[:-1]] == [True] * (len(found) - 1)
    assert all(sum(role_of(m) == "system" for m in one.messages) == 1 for one in found)


def test_joining_moves_recorded_compactions() -> None:
    first, second = transcript(2, 1), transcript(2, 2, compactions=(RecordedCompaction(at=5, summary="s"),))
    (both,) = joined([first, second], 1_000_000)
    asked = second.messages[5]
    assert both.messages[both.compactions[0].at] is asked


@pytest.mark.parametrize("name", AT_EQUAL_TOKENS)
def test_baselines_keep_to_their_tokens(name: str) -> None:
    session = coding_session(40)
    for budget in (2_000, 8_000, 20_000):
        assert count_messages(AT_EQUAL_TOKENS[name](session, budget)) <= budget * 1.02 + 50


@pytest.mark.parametrize("name", ["window", "mask"])
def test_baseline_engines_return_valid_shorter_lists_with_the_newest_question(name: str) -> None:
    session = coding_session(40)
    kept = ENGINES[name](40_000).compress(session)
    assert count_messages(kept) <= 10_500
    for dialect in ("openai", "anthropic"):
        assert violations(kept, dialect=dialect) == []
    question = [message for message in session if role_of(message) == "user"][-1]
    assert question in kept


class Planted(ContextCompressor):
    """The compressor with a defect in what it returns."""

    def __init__(self, window: int, spoil: Callable[[list[Message]], list[Message]]) -> None:
        super().__init__(window, config={"masked_zone": 0})
        self._spoil = spoil

    def compress(self, messages: list[Message], *args: Any, **options: Any) -> list[Message]:
        made = super().compress(messages, *args, **options)
        return made if made == messages else self._spoil(made)


def summary_at(messages: list[Message]) -> int:
    return next(at for at, message in enumerate(messages) if "[CONTEXT COMPACTION]" in text_of(message))


def rewritten(change: Callable[[str], str]) -> Callable[[list[Message]], list[Message]]:
    def spoil(messages: list[Message]) -> list[Message]:
        at = summary_at(messages)
        text = change(text_of(messages[at]))
        return [*messages[:at], {**messages[at], "content": text}, *messages[at + 1 :]]

    return spoil


def garble(text: str) -> str:
    return text.replace("src/harbour/", "src/habrour/")


def empty(text: str) -> str:
    return "[CONTEXT COMPACTION] Earlier turns."


class Thrashing(ContextCompressor):
    """Drops its oldest call at every request, so that no prefix lives."""

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return True

    def compress(self, messages: list[Message], *args: Any, **options: Any) -> list[Message]:
        found = [group for group in groups(messages) if group.stop - group.start > 1]
        if len(found) < 4:
            return messages
        return [*messages[: found[0].start], *messages[found[0].stop :]]


def found_with(make: Callable[[int], ContextEngine], turns: int = 30) -> list[str]:
    told = replay_all([transcript(turns)], ["planted"], settings(), policies={"planted": make}).as_dict()
    found: list[str] = told["engines"]["planted"]["findings"]
    return found


def named(findings: list[str], what: str) -> list[str]:
    return [finding for finding in findings if f": {what}: " in finding]


def test_planted_an_engine_that_drops_a_turn_is_named_with_what_it_lost() -> None:
    """It folds nothing, and leaves out the turn after the first."""
    gone: list[Message] = []

    class Forgetful(ContextCompressor):
        def compress(self, messages: list[Message], *args: Any, **options: Any) -> list[Message]:
            turns = [at for at, message in enumerate(messages) if role_of(message) == "user"]
            start, end = turns[1:3]
            gone.extend(messages[start:end])
            return [*messages[:start], *messages[end:]]

    (lost,) = named(found_with(Forgetful, turns=14), "lost")
    said_there = "\n".join(map(str, gone))
    quoted = re.findall(r"value '([^']+)'", lost)
    assert quoted
    assert all(value in said_there for value in quoted)
    assert "(message " in lost


def test_a_secret_that_was_lost_is_not_quoted() -> None:
    from leporello.proof.findings import Watch
    from leporello.proof.probes import Probe, Probed

    key = "sk-ant-api03-" + "abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGH"
    lost = Probed(probe=Probe(kind="value", text=key, cue="", at=3), retained=False)
    (finding,) = Watch([]).findings([lost], requests=1)
    assert "(message 3)" in finding
    assert key not in finding


def test_planted_an_engine_that_garbles_a_path_is_named() -> None:
    (garbled,) = named(found_with(lambda window: Planted(window, rewritten(garble))), "garbled")
    assert "src/habrour/" in garbled
    assert named(found_with(ContextCompressor), "garbled") == []


def test_planted_an_engine_whose_blocks_are_empty_is_named() -> None:
    assert named(found_with(lambda window: Planted(window, rewritten(empty))), "empty")
    assert named(found_with(ContextCompressor), "empty") == []


def test_planted_an_engine_that_breaks_the_prefix_all_the_time_is_named() -> None:
    assert "folds in" in named(found_with(Thrashing), "prefix")[0]
    assert named(found_with(ContextCompressor), "prefix") == []


class Growing(ContextCompressor):
    """Returns more than it was given."""

    def compress(self, messages: list[Message], *args: Any, **options: Any) -> list[Message]:
        return [
            messages[0],
            {"role": "user", "content": "word " * 40_000},
            {"role": "assistant", "content": "."},
            *messages[1:],
        ]


def test_planted_an_engine_whose_compactions_are_of_no_use_is_named() -> None:
    (refused,) = named(found_with(Growing), "refused")
    assert "not smaller" in refused


def test_a_prefix_that_moves_without_a_fold_is_named() -> None:
    session = coding_session(12)
    calls = [at for at, message in enumerate(session) if message.get("tool_calls")]
    between: list[Message] = [{"role": "user", "content": "Wait."}, {"role": "assistant", "content": "I wait."}]
    late = [*session[: calls[3] + 1], *between, *session[calls[3] + 1 :]]
    one = Transcript(name="late", format="openai", messages=late)
    (moved,) = replay(one, "none", settings(window=200_000, probes=False)).findings
    assert moved.startswith("prefix: it moved without a fold")


def test_planted_an_engine_whose_blocks_are_empty_fails_needed_later() -> None:
    at = next(at for at, m in enumerate(coding_session(30)) if at > 200 and role_of(m) == "user")
    told = replay_all(
        [transcript(compactions=(RecordedCompaction(at=at),))],
        ["compressor", "planted"],
        settings(cuts="recorded", window=60_000, config={"compression": {"masked_zone": 0}}),
        policies={"planted": lambda window: Planted(window, rewritten(empty))},
    ).as_dict()["engines"]
    assert told["planted"]["needed"]["n"] > 0
    assert told["planted"]["needed"]["present"] < told["compressor"]["needed"]["present"]


def test_a_reread_is_unnecessary_only_when_the_window_held_what_was_taken() -> None:
    from leporello.proof.reread import rereads

    def read(number: int) -> list[Message]:
        function = {"name": "read_file", "arguments": '{"path": "src/tide.py"}'}
        call = {"id": f"c{number}", "type": "function", "function": function}
        return [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            tool_result(f"c{number}", "TIDE_LIMIT = 4711"),
        ]

    asked: Message = {"role": "user", "content": "Look."}
    messages: list[Message] = [
        asked,
        *read(1),
        asked,
        *read(2),
        {"role": "assistant", "content": "TIDE_LIMIT is 4711."},
    ]
    (held,) = rereads(messages, 4, messages[:4])
    (lost,) = rereads(messages, 4, [asked])
    assert (held.path, held.taken, held.unnecessary) == ("src/tide.py", 2, True)
    assert (lost.held, lost.unnecessary) == (0, False)


def test_an_interval_is_drawn_over_sessions() -> None:
    many = share([(8, 10), (2, 10)] * 10)
    assert many.value == 0.5
    assert many.low is not None
    assert many.high is not None
    assert 0.3 < many.low < 0.5 < many.high < 0.7
    assert share([(3, 4)]).low is None
    assert share([]).value is None


def test_a_cue_shares_nothing_with_its_value() -> None:
    probes = probes_of(coding_session(40))
    assert {probe.kind for probe in probes} == {"value", "rule", "decision", "request"}
    for probe in probes:
        if probe.kind == "value":
            assert probe.cue
            assert not any(word in probe.text.lower() for word in probe.cue.split())


def replayed(name: str, make: Callable[[int], ContextEngine]) -> dict[str, Any]:
    engines = replay_all([transcript()], [name], settings(probes=False), policies={name: make}).as_dict()["engines"]
    return dict(engines[name])


class Foreign(ContextCompressor):
    """An engine that counts as a third party's, for which the built-in one stands in."""


Foreign.__module__ = "somebody.else"


class Failing(Foreign):
    def compress(self, messages: list[Message], *args: Any, **options: Any) -> list[Message]:
        raise RuntimeError("out of order")


class Untidy(Foreign):
    """Drops tool results from beneath their calls."""

    def compress(self, messages: list[Message], *args: Any, **options: Any) -> list[Message]:
        made = super().compress(messages, *args, **options)
        return made if made == messages else [message for message in made if role_of(message) != "tool"]


class Telling(Foreign):
    """An engine that gives a reason of its own."""

    def compress(self, messages: list[Message], *args: Any, **options: Any) -> list[Message]:
        made = super().compress(messages, *args, **options)
        assert self.last_compaction is not None
        self.last_compaction = replace(self.last_compaction, reason="the older half was summarised")
        return made


Failing.__module__ = Untidy.__module__ = Telling.__module__ = "somebody.else"


def test_planted_an_engine_for_which_the_built_in_one_stands_in_is_named() -> None:
    (replaced,) = named(replayed("failing", Failing)["findings"], "replaced")
    assert "out of order" in replaced
    assert named(replayed("sound", Foreign)["findings"], "replaced") == []


def test_a_reason_of_the_engine_itself_is_no_finding() -> None:
    assert named(replayed("telling", Telling)["findings"], "mended") == []


def test_planted_an_engine_whose_results_had_to_be_mended_is_named() -> None:
    (mended,) = named(replayed("untidy", Untidy)["findings"], "mended")
    assert "a tool call has no result" in mended
    assert named(replayed("sound", Foreign)["findings"], "mended") == []


def test_an_engine_that_cannot_be_had_has_no_figures() -> None:
    with pytest.raises(PluginError, match="no-such-engine"):
        replay_all([transcript(4)], ["no-such-engine"], settings(probes=False))


DIARY = """
from pathlib import Path

class Diary(Engine):
    def on_session_start(self, session_id, **kwargs):
        self.file = Path(kwargs["hermes_home"]) / "diary.txt"
        assert not self.file.exists(), "somebody was here before"
        self.file.write_text(session_id)
"""


def test_an_engine_that_keeps_files_starts_with_none_and_leaves_none(plugins: Plugins) -> None:
    plugins.engine("diary", DIARY, engine_name="diary")
    told = replay_all([transcript(4, 1), transcript(4, 1)], ["diary"], settings(probes=False, config=None)).as_dict()
    assert told["engines"]["diary"]["requests"] > 0
    assert not list(plugins.home.rglob("diary.txt"))


@pytest.mark.parametrize(
    ("model", "provider"),
    [("gemini-2.5-pro", ""), ("gemini-2.5-pro", "google"), ("my-route", "deepseek"), ("gpt-5.5", "openrouter")],
)
def test_the_cache_is_that_of_the_provider_that_serves_the_model(model: str, provider: str) -> None:
    told = replay_all([transcript(8)], ["none"], settings(model=model, provider=provider, probes=False)).as_dict()
    assert told["engines"]["none"]["cache_hit_share"] > 0.5
