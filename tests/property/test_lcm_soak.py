"""The lossless engine over a long conversation and over a long outage, driven turn by turn as a host does.

`make test` runs 1,200 messages and an outage of 120; `make soak` 12,000 and 500. Every check is also run on an engine,
a model or a host with a planted defect, which it must reject.
"""

from __future__ import annotations

import copy
import json
import os
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from leporello import LCMEngine
from leporello.errors import NetworkError
from leporello.lcm import verify
from leporello.lcm.dag import Piece
from leporello.lcm.node_writer import REMAKE, SMALLEST_SOURCE, CallBudget, NodeWriter
from leporello.llm import FakeClock, ScriptedLLM
from leporello.messages import Message, is_system, violations
from leporello.store import open_store
from leporello.summary import Summariser
from leporello.summary.blocks import shown
from leporello.testing.manual_executor import ManualExecutor
from leporello.tokens import count_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from leporello.store.records import Node

LONG = bool(os.environ.get("LEPORELLO_SOAK"))
MESSAGES = 12_000 if LONG else 1_200
OUTAGE = 500 if LONG else 120
OUTPUTS = 44
WINDOW = 200_000
SMALL_WINDOW = 16_000
TOOLS = 3_000  # tokens that the provider counts beside the messages
SECONDS_PER_REQUEST = 5.0
MORE = 250  # messages, which bring the window above the mark where work in the background begins
ROUNDS = 8  # folds in which everything that was written without the model must have been written again
SYSTEM: Message = {"role": "system", "content": "You work on a port's software. " * 80}
WORDS = ("berth", "crane", "vessel", "booking", "weight", "gate", "tariff", "slot", "manifest", "carrier", "yard")


@dataclass
class Conversation:
    """Messages of a coding session without end; some of its tool calls are long, with marks in all parts."""

    length: int
    outputs: int = OUTPUTS
    lines: int = 20
    marks: list[str] = field(default_factory=list)
    _random: Random = field(default_factory=lambda: Random(7))
    _calls: Iterator[int] = field(default_factory=count)
    _begun: int = 0

    def turns(self, length: int | None = None) -> Iterator[list[list[Message]]]:
        """Yield turns, each as the lists of messages that come between two requests to the model."""
        length = self.length if length is None else length
        written = 0
        for number in count(self._begun):
            steps = 30 if number % 40 == 39 else self._random.randint(1, 4)
            due = int(self.outputs * written / (self.length * 0.8))  # what follows the last long one folds it
            turn = [[self._asked(number)]]
            for step in range(steps):
                is_long = step == 0 and len(self.marks) // 4 < min(due, self.outputs)
                turn.append(self._long_step() if is_long else self._step())
            turn[-1] += self._answered(number)
            written += sum(map(len, turn))
            self._begun += 1
            yield turn
            if written >= length:
                return

    def _asked(self, number: int) -> Message:
        text = "yes" if number % 9 == 8 else f"Request {number}: see to the {self._random.choice(WORDS)} next, please."
        return {"role": "user", "content": text}

    def _answered(self, number: int) -> list[Message]:
        """Answer; every fifth time with the same two messages in a row, which a repair makes one."""
        texts = ("Done.", "yes") if number % 5 == 4 else (f"Part {number} is done. " + self._lines(3),)
        return [{"role": "assistant", "content": text} for text in texts]

    def _step(self) -> list[Message]:
        call = next(self._calls)
        return _called(call, {"path": f"src/part_{call % 300}.py"}, self._lines(self.lines))

    def _long_step(self) -> list[Message]:
        number = len(self.marks) // 4
        head, middle, tail, argument = marks = [f"mark{number:03d}{place}" for place in ("h", "m", "t", "a")]
        self.marks += marks
        half = self._lines(self._random.choice((120, 300, 600)))
        arguments = {"path": f"src/new_{number}.py", "content": self._lines(250) + argument}
        return _called(next(self._calls), arguments, f"{head}\n{half}{middle}\n{half[::-1]}\n{tail}")

    def _lines(self, number: int) -> str:
        random = self._random
        lines = (f"{random.choice(WORDS)}_{random.randrange(10_000)} = {random.choice(WORDS)}" for _ in range(number))
        return "".join(f"{line}(limit={random.randrange(1_000)})\n" for line in lines)


def _called(number: int, arguments: dict[str, str], output: str) -> list[Message]:
    function = {"name": "write_file", "arguments": json.dumps(arguments)}
    calls = [{"id": f"call_{number}", "type": "function", "function": function}]
    return [
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": f"call_{number}", "content": output},
    ]


def summary(messages: list[Message]) -> str:
    """Answer as a model does that keeps to a tenth of what it reads."""
    lines = max(2, count_messages(messages) // 250)
    done = "\n".join(f"- Changed src/part_{n}.py and saw that the {WORDS[n % 11]} is right." for n in range(lines))
    return f"## Goal\nKeep the port running.\n\n## Progress\n### Done\n{done}"


def refusing(_: list[Message]) -> str:
    raise NetworkError("connection refused")


@dataclass
class Fold:
    """What one fold gave."""

    window: list[Message]
    tokens: int
    threshold: int
    calls: int
    resumed: list[Message]


class Host:
    """A host that sends every request as it should: store, ask whether to fold, fold, send; it keeps a record."""

    def __init__(self, engine: LCMEngine, background: ManualExecutor, clock: FakeClock) -> None:
        self.engine, self.background, self.clock = engine, background, clock
        self.entered: list[Message] = [SYSTEM]
        self.messages: list[Message] = [SYSTEM]
        self.folds: list[Fold] = []
        self.requests = 0
        self.moves = 0
        self._sent: list[Message] = []
        engine.on_event = lambda _: None
        engine.on_session_start("soak")

    def play(self, turns: Iterator[list[list[Message]]]) -> None:
        """Play turns to their end."""
        for turn in turns:
            for added in turn:
                self.request(added)

    def request(self, added: list[Message]) -> None:
        """Send a request after these messages were added."""
        self.entered += copy.deepcopy(added)
        self.messages = [*self.messages, *added]
        self.engine.should_compress_preflight(self.messages)
        if self.engine.should_compress(count_messages(self.messages) + TOOLS):
            self.fold(force=False)
        self._send()
        self.background.run()

    def fold(self, *, force: bool) -> None:
        """Fold, and take over the window."""
        engine = self.engine
        tokens = count_messages(self.messages) + TOOLS
        calls = self._calls()
        self.messages = engine.compress(self.messages, current_tokens=tokens, force=force)
        report = engine.last_compaction
        assert report is not None
        if report.status in ("folded", "fallback"):
            fold = Fold(
                window=list(self.messages),
                tokens=count_messages(self.messages) + TOOLS,
                threshold=engine.threshold_tokens,
                calls=self._calls() - calls,
                resumed=shown(engine.branch),
            )
            self.folds.append(fold)

    def _calls(self) -> int:
        """Return how often the model was called; a report counts the calls of the background too."""
        llm = self.engine._summariser.llm
        return len(llm.calls) if isinstance(llm, ScriptedLLM) else 0

    def finish(self, conversation: Conversation) -> None:
        """Fold with the model, and go on as long as something is left to be written again."""
        for _ in range(ROUNDS):
            self.clock.advance(600)
            self.fold(force=True)
            self._send()
            if not any(node.meta.get(REMAKE) for node in self.nodes):
                return
            self.play(conversation.turns(MORE))

    @property
    def nodes(self) -> list[Node]:
        """The nodes that are published."""
        return self.engine.store.nodes(self.engine.conversation)

    def _send(self) -> None:
        """Send the list, and see whether the provider could go on from the request before."""
        self.moves += self.messages[: len(self._sent)] != self._sent
        self._sent = copy.deepcopy(self.messages)
        self.requests += 1
        self.clock.advance(SECONDS_PER_REQUEST)
        self.engine.update_from_response(
            {"prompt_tokens": count_messages(self.messages) + TOOLS, "completion_tokens": 1}
        )


@dataclass
class Soak:
    """A soak that was run."""

    host: Host
    llm: ScriptedLLM
    conversation: Conversation

    def close(self) -> None:
        """Give back the engine and its store."""
        self.host.engine.close()
        self.host.engine.store.close()


def check_below_threshold(soak: Soak) -> None:
    assert len(soak.host.folds) > 2, "hardly a fold"
    over = [fold.tokens - fold.threshold for fold in soak.host.folds if fold.tokens >= fold.threshold]
    assert not over, f"{len(over)} folds over the threshold, by up to {max(over)} tokens"


def check_valid(soak: Soak) -> None:
    for fold in soak.host.folds:
        for dialect in ("openai", "anthropic"):
            assert not (found := violations(fold.window, dialect)), found[0]


def check_all_seen(soak: Soak) -> None:
    """The summariser was shown every mark of every long output and argument."""
    assert len(soak.conversation.marks) == 4 * soak.conversation.outputs
    read = "\n".join(soak.llm.prompts)
    unseen = [mark for mark in soak.conversation.marks if mark not in read]
    assert not unseen, f"{len(unseen)} marks never seen: {unseen[:8]}"


def check_calls(soak: Soak) -> None:
    """No fold asks more often than it may, and all together three times for each leaf of full size at the most.

    A full leaf has 4 % of the window, or a quarter of the threshold where that is less.
    """
    most = max(fold.calls for fold in soak.host.folds)
    assert most <= 24, f"{most} calls in one fold"
    leaf = min(WINDOW // 25, min(fold.threshold for fold in soak.host.folds) // 4)
    bound = 3 * count_messages(soak.host.entered) // leaf
    assert len(soak.llm.calls) <= bound, f"{len(soak.llm.calls)} calls, {bound} would do"


def check_prefix(soak: Soak) -> None:
    host = soak.host
    assert host.moves == len(host.folds), f"the prefix moved {host.moves} times in {len(host.folds)} folds"


def check_resumed(soak: Soak) -> None:
    assert all(fold.resumed == fold.window for fold in soak.host.folds), "the store resumes another window"


def check_nothing_lost(soak: Soak) -> None:
    host = soak.host
    rows = list(host.engine.store.messages(host.engine.conversation, superseded=True))
    said = [message for message in host.entered if not is_system(message)]
    assert [list(row.message.items()) for row in rows] == [list(message.items()) for message in said]
    assert not (found := verify(host.engine.store, host.engine.conversation)), found[0]


def check_written_by_the_model(soak: Soak) -> None:
    """Nothing that was written without the model is left, but for messages so short that they are quoted."""
    nodes = [node for node in soak.host.nodes if node.source_tokens > SMALLEST_SOURCE]
    left = [node.id for node in nodes if node.made_by != "model" or node.meta.get(REMAKE)]
    assert nodes
    assert not left, f"{len(left)} of {len(nodes)} nodes were never written by the model"


CHECKS: dict[str, Callable[[Soak], None]] = {
    "below the threshold": check_below_threshold,
    "valid": check_valid,
    "all seen": check_all_seen,
    "calls": check_calls,
    "prefix": check_prefix,
    "resumed": check_resumed,
    "nothing lost": check_nothing_lost,
    "written by the model": check_written_by_the_model,
}


def run_soak(
    folder: Path,
    length: int,
    outputs: int,
    *,
    engine: type[LCMEngine] = LCMEngine,
    model: type[ScriptedLLM] = ScriptedLLM,
    host: type[Host] = Host,
    **config: Any,
) -> Soak:
    clock, background = FakeClock(), ManualExecutor()
    llm = model(summary, context_length=WINDOW)
    store = open_store(folder / "soak.db", clock=clock)
    made = engine(WINDOW, llm=llm, store=store, clock=clock, executor=background, config=config)
    soak = Soak(host=host(made, background, clock), llm=llm, conversation=Conversation(length, outputs))
    soak.host.play(soak.conversation.turns())
    soak.host.finish(soak.conversation)
    return soak


@pytest.mark.slow
def test_a_soak_keeps_every_promise(tmp_path: Path) -> None:
    soak = run_soak(tmp_path, MESSAGES, OUTPUTS)
    host = soak.host
    print(
        f"{len(host.entered)} messages, {count_messages(host.entered)} tokens, {host.requests} requests, "
        f"{len(host.folds)} folds, {host.moves} moves of the prefix, {len(soak.llm.calls)} calls, "
        f"{len(host.nodes)} nodes, at most {max(f.tokens / f.threshold for f in host.folds):.0%} of the threshold"
    )
    assert len(host.entered) >= MESSAGES
    for check in CHECKS.values():
        check(soak)
    soak.close()


class Unfolded(LCMEngine):
    """Says that it folded, and did not."""

    def compress(self, messages: list[Message], *args: Any, **kwargs: Any) -> list[Message]:
        super().compress(messages, *args, **kwargs)
        return list(messages)


class Orphaning(LCMEngine):
    """Loses the calls of the last results."""

    def compress(self, messages: list[Message], *args: Any, **kwargs: Any) -> list[Message]:
        folded = super().compress(messages, *args, **kwargs)
        last = max((i for i, message in enumerate(folded) if message.get("tool_calls")), default=-1)
        return [message for i, message in enumerate(folded) if i != last]


class Restless(LCMEngine):
    """Changes the prompt between two folds, as one does that tells the time in it."""

    def should_compress_preflight(self, messages: list[Message]) -> bool:
        if len(messages) % 50 == 0:
            messages[0] = {**messages[0], "content": f"{messages[0]['content']} It is {len(messages)} o'clock."}
        return super().should_compress_preflight(messages)


class Deaf(LCMEngine):
    """Never stores what a user says twice."""

    def should_compress_preflight(self, messages: list[Message]) -> bool:
        return super().should_compress_preflight([m for m in messages if m.get("content") != "yes"])

    def compress(self, messages: list[Message], *args: Any, **kwargs: Any) -> list[Message]:
        return super().compress([m for m in messages if m.get("content") != "yes"], *args, **kwargs)


class SeesTheEnds(ScriptedLLM):
    """A summariser that is shown only the ends of what is long."""

    def complete(self, messages: list[Message], *, max_tokens: int, timeout: float) -> Any:
        cut: list[Message] = [{**m, "content": f"{m['content'][:6_000]} ... {m['content'][-6_000:]}"} for m in messages]
        return super().complete(cut, max_tokens=max_tokens, timeout=timeout)


class Impatient(Host):
    """A host that gives nothing the time to be written in the background, and ends before it is written again."""

    def _send(self) -> None:
        super()._send()
        self.background.waiting.clear()

    def _calls(self) -> int:
        """Return how often the model was called; a report counts the calls of the background too."""
        llm = self.engine._summariser.llm
        return len(llm.calls) if isinstance(llm, ScriptedLLM) else 0

    def finish(self, conversation: Conversation) -> None:
        self.background.waiting.clear()


class Rewriting(Host):
    """A store that has another window than the one that was handed out."""

    def fold(self, *, force: bool) -> None:
        super().fold(force=force)
        self.messages = self.folds[-1].window = [*self.messages[:1], *copy.deepcopy(self.messages[1:])]
        self.messages[1]["content"] = str(self.messages[1]["content"]).upper()


DEFECTS: dict[str, dict[str, Any]] = {
    "below the threshold": {"engine": Unfolded},
    "valid": {"engine": Orphaning},
    "all seen": {"model": SeesTheEnds},
    "calls": {"leaf_tokens": 1_000},
    "prefix": {"engine": Restless},
    "resumed": {"host": Rewriting},
    "nothing lost": {"engine": Deaf},
    "written by the model": {"host": Impatient},
}


@pytest.mark.slow
def test_a_short_soak_passes_every_check(tmp_path: Path) -> None:
    soak = run_soak(tmp_path, 420, 8)
    for check in CHECKS.values():
        check(soak)
    soak.close()


@pytest.mark.slow
@pytest.mark.parametrize("claim", CHECKS)
def test_the_same_soak_with_a_defect_is_rejected(claim: str, tmp_path: Path) -> None:
    soak = run_soak(tmp_path, 420, 8, **DEFECTS[claim])
    with pytest.raises(AssertionError):
        CHECKS[claim](soak)
    soak.close()


class Line:
    """A model behind a line that can be cut."""

    def __init__(self, during: Callable[[list[Message]], str] = refusing) -> None:
        self._during = during
        self.is_up = False

    def __call__(self, messages: list[Message]) -> str:
        return summary(messages) if self.is_up else self._during(messages)


@dataclass(kw_only=True)
class Outage(Soak):
    """An outage that was lived through, and what came after it."""

    nodes_during: list[Node]
    calls_during: int
    requests_during: int
    found_during: dict[str, Any]


def run_outage(
    folder: Path, length: int, line: Line, *, engine: type[LCMEngine] = LCMEngine, host: type[Host] = Host
) -> Outage:
    clock, background = FakeClock(), ManualExecutor()
    llm = ScriptedLLM(line, context_length=WINDOW)
    store = open_store(folder / "outage.db", clock=clock)
    made = engine(SMALL_WINDOW, llm=llm, store=store, clock=clock, executor=background)
    living = host(made, background, clock)
    conversation = Conversation(length, outputs=0, lines=60)
    living.play(conversation.turns())
    outage = Outage(
        host=living,
        llm=llm,
        conversation=conversation,
        nodes_during=living.nodes,
        calls_during=len(llm.calls),
        requests_during=living.requests,
        found_during=json.loads(living.engine.handle_tool_call("lcm_grep", {"query": "call_0 part_0.py"})),
    )
    line.is_up = True
    living.finish(conversation)
    return outage


def check_usable(outage: Outage) -> None:
    """While the model is away leaves are extractive, marked to be written again, and what they cover is found."""
    assert outage.nodes_during, "nothing was folded"
    wrong = [node for node in outage.nodes_during if node.made_by != "extract" or not node.text]
    assert not wrong, f"{len(wrong)} nodes that no model can have written: {wrong[0].text[:80]!r}"
    unmarked = [node for node in outage.nodes_during if node.source_tokens > SMALLEST_SOURCE]
    assert all(node.meta.get(REMAKE) for node in unmarked)
    assert outage.found_during["results"], "folded messages are not found"


def check_patient(outage: Outage) -> None:
    """A model that is away is asked again, but later and later."""
    assert 2 <= outage.calls_during <= outage.requests_during // 4, f"{outage.calls_during} calls into the void"


OUTAGE_CHECKS: dict[str, Callable[[Outage], None]] = {
    "usable": check_usable,
    "patient": check_patient,
    "below the threshold": check_below_threshold,
    "valid": check_valid,
    "prefix": check_prefix,
    "resumed": check_resumed,
    "nothing lost": check_nothing_lost,
    "written by the model": check_written_by_the_model,
}


def babbling(_: list[Message]) -> str:
    return "## Goal\nThe service is overloaded.\n\n## Progress\n### Done\n- Nothing."


class Tireless(LCMEngine):
    """Asks a model that is away again and again."""

    def should_compress_preflight(self, messages: list[Message]) -> bool:
        self._summariser._trouble = None
        return super().should_compress_preflight(messages)


OUTAGE_DEFECTS: dict[str, Callable[[Path], Outage]] = {
    "usable": lambda folder: run_outage(folder, 120, Line(during=babbling)),
    "patient": lambda folder: run_outage(folder, 120, Line(), engine=Tireless),
    "written by the model": lambda folder: run_outage(folder, 120, Line(), host=Impatient),
    "nothing lost": lambda folder: run_outage(folder, 120, Line(), engine=Deaf),
}


@pytest.mark.slow
def test_an_outage_leaves_the_window_usable_and_no_damage_behind(tmp_path: Path) -> None:
    outage = run_outage(tmp_path, OUTAGE, Line())
    host = outage.host
    print(
        f"an outage of {OUTAGE} messages: {len(outage.nodes_during)} nodes without the model, {outage.calls_during} "
        f"calls; afterwards {len(host.folds)} folds, {len(host.nodes)} nodes, {len(outage.llm.calls)} calls"
    )
    for check in OUTAGE_CHECKS.values():
        check(outage)
    outage.close()


@pytest.mark.slow
@pytest.mark.parametrize("claim", OUTAGE_DEFECTS)
def test_an_outage_with_a_defect_is_rejected(claim: str, tmp_path: Path) -> None:
    outage = OUTAGE_DEFECTS[claim](tmp_path)
    with pytest.raises(AssertionError):
        OUTAGE_CHECKS[claim](outage)
    outage.close()


class TestWhatTheSoakFound:
    def test_parts_of_a_long_message_are_prepared_once(self, tmp_path: Path) -> None:
        background, llm, said = ManualExecutor(), ScriptedLLM(summary), Conversation(0, 1)
        config = {"leaf_tokens": 1_000}
        engine = LCMEngine(WINDOW, llm=llm, executor=background, store=tmp_path / "parts.db", config=config)
        steps = [message for _ in range(200) for message in said._step()]
        messages: list[Message] = [SYSTEM, {"role": "user", "content": "Begin."}, *said._long_step(), *steps]
        engine.update_from_response({"prompt_tokens": 190_000, "completion_tokens": 1})
        calls = []
        for _ in range(6):
            engine.should_compress_preflight(messages)
            background.run()
            calls.append(sum("mark000" in prompt for prompt in llm.prompts))
        assert calls[0] == calls[-1] > 1
        engine.close()

    def test_a_message_of_a_few_words_is_quoted_and_costs_no_call(self, tmp_path: Path) -> None:
        llm = ScriptedLLM(summary)
        engine = LCMEngine(WINDOW, llm=llm, store=tmp_path / "short.db")
        engine.should_compress_preflight([{"role": "user", "content": "yes"}])
        pieces = [Piece(stored=row, tokens=8) for row in engine.store.messages(engine.conversation)]
        call_budget = CallBudget(FakeClock(), max_calls=24, seconds=120)
        leaf = NodeWriter(Summariser(llm), call_budget, use_model=True).leaf(pieces)
        assert (leaf.text, leaf.meta.get(REMAKE), llm.calls) == ("user: yes", None, [])
        engine.close()
