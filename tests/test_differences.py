"""Every row of the page about differences from Hermes Agent's documentation says what happens."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import tomllib
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from leporello import (
    Config,
    ContextCompressor,
    ContextEngine,
    Session,
    apply_anthropic_cache_control,
    load_engine,
)
from leporello.cli.main import COMMANDS
from leporello.compressor import budgets
from leporello.compressor.boundaries import find_boundaries
from leporello.errors import ConfigError, EngineFallbackWarning, NetworkError, PluginWarning
from leporello.llm import ScriptedLLM
from leporello.messages import is_system, repair, text_of, violations
from leporello.messages.fixed import CLEARED_OUTPUT, is_cleared
from leporello.plugins import PluginContext, hermes
from leporello.session import hygiene
from leporello.summary import Summariser
from leporello.summary.extract.name_list import MOST_NAMES, names_of
from leporello.summary.masking import masked_stop
from leporello.summary.placement import is_marked, strip_summary
from leporello.summary.refire import SAFE_SHARE
from leporello.testing import ContractSuite, check_engine
from leporello.tokens import count_messages, count_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello.messages import Message

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "explanation" / "differences-from-hermes-agent.md").read_text(encoding="utf-8")
GOOD = "## Goal\nKeep the port running.\n\n## Progress\n### Done\n- Read the log."
WINDOW = 16_000
ENGINE = """
from leporello import ContextEngine

class Engine(ContextEngine):
    name = "NAME"

    def update_from_response(self, usage):
        pass

    def should_compress(self, prompt_tokens=None):
        return False

    def compress(self, messages, current_tokens=None, focus_topic=None):
        return list(messages)
"""
REGISTER = "\ndef register(ctx):\n    ctx.register_context_engine(Engine())\n"
CHECKS: dict[str, Callable[[Path], None]] = {}


def check(function: Callable[[Path], None]) -> Callable[[Path], None]:
    """Make a function the check of the row of its name."""
    CHECKS[function.__name__.replace("_", "-")] = function
    return function


def rows(page: str) -> list[list[str]]:
    """Return the points of the page: their keys and what stands beside them."""
    found = re.findall(r"^\| `([\w-]+)` \|(.*)\|$", page, re.MULTILINE)
    return [[key, *(cell.strip() for cell in cells.split(" | "))] for key, cells in found]


def work(turns: int, words: int = 60) -> list[Message]:
    """Return a tool session; every output and every answer has a value of its own."""
    messages: list[Message] = [{"role": "system", "content": "You watch over a port."}]
    for n in range(turns):
        function = {"name": "read_log", "arguments": json.dumps({"page": n})}
        messages += [
            {"role": "user", "content": f"Read page {n}."},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"c{n}", "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": f"c{n}", "content": f"ticket PORT-{n:04d} " + f"crane {n} moved " * words},
            {"role": "assistant", "content": f"Page {n} is in order."},
        ]
    return [*messages, {"role": "user", "content": "And now?"}]


def write_plugin(folder: Path, name: str, more: str = "") -> None:
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(ENGINE.replace("NAME", name) + more)
    (folder / "plugin.yaml").write_text(f"name: {folder.name}\ndescription: For a test.\nversion: 1.0\n")


def loaded(name: str, **config: Any) -> tuple[ContextEngine, list[Any]]:
    """Load an engine; return it and what was said."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        engine = load_engine({"context": {"engine": name}, **config}, context_length=1_000)
    return engine, [(one.category, str(one.message)) for one in said]


def quiet(**options: Any) -> ContextCompressor:
    engine = ContextCompressor(WINDOW, **options)
    engine.on_event = lambda _: None
    return engine


@check
def import_name(home: Path) -> None:
    script = home / "script.py"
    script.write_text("import leporello, agent.context_engine as c; assert c.ContextEngine is leporello.ContextEngine")
    plain = subprocess.run([sys.executable, script], cwd=home, capture_output=True, text=True, check=False)
    assert "ModuleNotFoundError: No module named 'agent'" in plain.stderr
    subprocess.run([sys.executable, "-m", "leporello.plugins.hermes", script], cwd=home, check=True)
    assert not (ROOT / "src" / "agent").exists()


@check
def command(home: Path) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["scripts"].keys() == {"leporello"}


@check
def contract_tests(home: Path) -> None:
    assert not (ROOT / "tests" / "agent" / "test_context_engine.py").exists()
    (result,) = check_engine(ContextCompressor, conversations=2, checks=["input"])
    assert result.status == "passed"
    assert ContractSuite.__doc__
    assert "plugins" in COMMANDS


@check
def hygiene_place(home: Path) -> None:
    assert SAFE_SHARE == 0.85
    assert hygiene.compact_if_full.__module__ == "leporello.session.hygiene"
    assert importlib.util.find_spec("leporello.gateway.run") is None


@check
def compress_context(home: Path) -> None:
    assert importlib.util.find_spec("run_agent") is None
    with Session.open(store=":memory:", context_length=WINDOW, engine="compressor", llm=None) as session:
        for message in work(12):
            session.add(message)
        assert session.compress().status == "folded"


@check
def align_boundary(home: Path) -> None:
    assert not hasattr(ContextCompressor, "_align_boundary_backward")
    messages = work(20)
    found = find_boundaries(
        messages, [count_messages([m]) for m in messages], protect_first_n=3, protect_last_n=2, tail_budget=1
    )
    assert messages[found.tail_start]["role"] != "tool"


@check
def generate_summary(home: Path) -> None:
    assert not hasattr(ContextCompressor, "_generate_summary")
    assert Summariser.__module__ == "leporello.summary.summariser"


@check
def summary_ratio(home: Path) -> None:
    assert not hasattr(budgets, "_SUMMARY_RATIO")
    assert budgets.SUMMARY_SHARE == 0.20
    assert budgets.CompressorBudgets.of(200_000, threshold=0.5, target_ratio=0.2).summary_tokens(20_000) == 4_000


@check
def sanitize_pairs(home: Path) -> None:
    assert not hasattr(ContextCompressor, "_sanitize_tool_pairs")
    broken = [message for message in work(3) if message.get("tool_call_id") != "c1"]
    assert violations(broken, "openai")
    assert violations(repair(broken).messages, "openai") == []


@check
def previous_summary(home: Path) -> None:
    assert not hasattr(quiet(), "_previous_summary")
    llm = ScriptedLLM("## Goal\nFind the marker AAA-1.")
    folded = quiet(llm=llm).compress(work(20))
    restarted = ScriptedLLM(GOOD)
    again = quiet(llm=restarted).compress([*folded, *work(20)[1:]])
    assert "Find the marker AAA-1." in restarted.prompts[0]
    assert len([message for message in again if is_marked(message)]) == 1
    assert "begins like an earlier summary, quoted" in restarted.prompts[0]


@check
def plugin_folder(home: Path) -> None:
    folder = home / "here" / "plugins" / "context_engine"
    write_plugin(folder / "mine", "mine")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(home / "here")
        engine, said = loaded("mine")
        assert engine.name == "compressor"
        assert said[0][0] is EngineFallbackWarning
        assert loaded("mine", plugins={"paths": [str(folder)]})[0].name == "mine"


@check
def name_mismatch(home: Path) -> None:
    write_plugin(home / "plugins" / "context_engine" / "mine", "other")
    engine, said = loaded("mine")
    assert engine.name == "other"
    assert [kind for kind, _ in said] == [PluginWarning]
    assert "the folder's name counts" in said[0][1]


@check
def second_engine(home: Path) -> None:
    write_plugin(home / "plugins" / "p1", "first", REGISTER)
    write_plugin(home / "plugins" / "p2", "second", REGISTER)
    for order in (["p1", "p2"], ["p2", "p1"]):
        engine, said = loaded("second", plugins={"enabled": order})
        assert engine.name == "second"
        assert any("'first'" in text and "is kept" in text for _, text in said)


class Eager(ContextEngine):
    """Always wants to fold."""

    name = "eager"
    context_length = 1_000

    def __init__(self) -> None:
        self.folds = 0

    def update_from_response(self, usage: dict[str, Any]) -> None:
        pass

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        return True

    def compress(
        self, messages: list[Any], current_tokens: int | None = None, focus_topic: str | None = None
    ) -> list[Any]:
        self.folds += 1
        return messages[-1:]


@check
def compression_enabled(home: Path) -> None:
    for enabled, folds in ((True, 1), (False, 0)):
        engine = Eager()
        with Session.open(store=":memory:", engine=engine, config={"compression": {"enabled": enabled}}) as session:
            for message in work(2):
                session.add(message)
            session.request()
            assert engine.folds == folds
            session.compress()
            assert engine.folds == folds + 1


@check
def hooks(home: Path) -> None:
    context = PluginContext("p")
    for name in ("on_session_finalize", "on_session_reset", "subagent_stop"):
        context.register_hook(name, lambda *_: pytest.fail("the hook was called"))
    assert [note.partition(": ")[2] for note in context.notes] == ["the hook is never called"]


@check
def threshold_zero(home: Path) -> None:
    with pytest.raises(ConfigError, match=r"compression\.threshold"):
        Config.coerce({"compression": {"threshold": 0.0}})
    assert Config.coerce({"compression": {"threshold": 1.0}}).compression.threshold == 1.0


@check
def chat_platforms(home: Path) -> None:
    context = PluginContext("p")
    context.register_platform("telegram")
    assert "the platform is not connected" in context.notes[0]
    assert (ROOT / "examples" / "gateway_bot.py").exists()


@check
def rough_estimate(home: Path) -> None:
    hermes.install()
    estimate_messages_tokens_rough = importlib.import_module("agent.model_metadata").estimate_messages_tokens_rough
    chinese = [{"role": "user", "content": "把昨天的日志读完，然后告诉我结果。" * 20}]
    assert estimate_messages_tokens_rough(chinese) == count_messages(chinese)
    assert estimate_messages_tokens_rough(chinese) > 2 * len(chinese[0]["content"]) / 4


@check
def protect_last_n(home: Path) -> None:
    messages = work(10, words=1_200)
    assert count_messages(messages[-20:]) > WINDOW
    result = quiet(config={"compression": {"protect_last_n": 20}}).compress(messages)
    assert sum(message in result for message in messages[-20:]) < 20
    assert count_messages(result) < WINDOW // 2
    assert result[-1] == messages[-1]


@check
def placeholders(home: Path) -> None:
    llm = ScriptedLLM(GOOD)
    messages = work(20)
    result = quiet(llm=llm).compress(messages)
    assert "ticket PORT-0005" in "".join(llm.prompts)
    assert CLEARED_OUTPUT not in "".join(llm.prompts)
    summary = next(at for at, message in enumerate(result) if is_marked(message))
    zone = masked_stop(result, summary + 1)
    assert any(is_cleared(text_of(message)) for message in result[summary:zone])
    assert result[zone:] == messages[zone - len(result) :]


@check
def masked_zone(home: Path) -> None:
    messages = work(20)
    documented = quiet(config={"masked_zone": 0}, llm=ScriptedLLM(GOOD)).compress(messages)
    default = quiet(llm=ScriptedLLM(GOOD)).compress(messages)
    behind = next(at for at, message in enumerate(documented) if is_marked(message)) + 1
    assert documented[behind:] == messages[behind - len(documented) :]
    assert len(default) > len(documented)
    assert default[behind - len(documented) :] == documented[behind:]


@check
def name_list(home: Path) -> None:
    messages = work(60)
    documented = quiet(config={"masked_zone": 0}).compress(messages)
    default = quiet().compress(messages)
    assert not any(names_of(text_of(message)) for message in documented)
    (listed,) = [found for message in default if (found := names_of(text_of(message)))]
    assert re.search(r"PORT-00\d\d", listed)
    assert count_text(listed) <= WINDOW // 2 * MOST_NAMES


@check
def summariser_window(home: Path) -> None:
    llm = ScriptedLLM(GOOD, context_length=4_000)
    engine = quiet(llm=llm)
    engine.compress(work(60))
    assert engine.last_compaction
    assert engine.last_compaction.status == "folded"
    assert engine.last_compaction.model_calls > 1


@check
def one_call(home: Path) -> None:
    for window, several in ((0, False), (4_000, True)):
        llm = ScriptedLLM(GOOD, context_length=window)
        quiet(llm=llm).compress(work(40))
        assert (len(llm.calls) > 1) is several


@check
def failed_summary(home: Path) -> None:
    told: list[str] = []
    engine = quiet(llm=ScriptedLLM(NetworkError("down")))
    engine.on_event = lambda event: told.append(str(event))
    result = engine.compress(work(20))
    assert engine.last_compaction
    assert engine.last_compaction.status == "fallback"
    assert "PORT-" in strip_summary(result, result).previous
    assert any("the summariser failed" in text for text in told)


@check
def hints(home: Path) -> None:
    llm = ScriptedLLM(GOOD)
    quiet(llm=llm).compress(work(20))
    titles = (
        "## Goal",
        "## Constraints & Preferences",
        "## Progress",
        "### Done",
        "### In Progress",
        "### Blocked",
        "## Key Decisions",
        "## Relevant Files",
        "## Next Steps",
        "## Critical Context",
    )
    places = [llm.prompts[0].index(title) for title in titles]
    assert places == sorted(places)
    assert "[What the user is trying to accomplish]" not in llm.prompts[0]


@check
def tail_unmodified(home: Path) -> None:
    messages = work(8, words=60)
    large = next(message for message in messages if message.get("tool_call_id") == "c7")
    large["content"] += " container" * 12_000  # read already: an answer stands behind it
    result = quiet().compress(messages)
    shown = next((message for message in result if message.get("tool_call_id") == "c7"), None)
    assert shown is None or len(shown["content"]) < len(large["content"])
    assert count_messages(result) < WINDOW // 2


@check
def deep_copy(home: Path) -> None:
    messages = work(5)
    before = json.dumps(messages)
    marked = apply_anthropic_cache_control(messages)
    same = [one is other for one, other in zip(messages, marked, strict=True)]
    assert json.dumps(messages) == before
    assert same.count(False) <= 4
    assert not any(same[at] for at, message in enumerate(messages) if is_system(message))


@pytest.mark.slow
@pytest.mark.parametrize("key", [row[0] for row in rows(PAGE)])
def test_a_row_says_what_happens(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEPORELLO_HOME", str(tmp_path))
    CHECKS[key](tmp_path)


def test_every_row_is_whole_and_has_its_check() -> None:
    found = rows(PAGE)
    assert [row[0] for row in found if len(row) != 4 or not all(row)] == []
    assert sorted(row[0] for row in found) == sorted(CHECKS)
    assert f"these {len(found)} points" in PAGE


def test_planted_a_row_without_a_check_or_a_reason_is_caught() -> None:
    planted = rows("| `new-point` | They say so. | We do not. |  |\n")
    assert planted[0][0] not in CHECKS
    assert not all(planted[0])


def test_planted_behaviour_that_is_not_the_stated_one_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budgets, "SUMMARY_SHARE", 0.30)
    with pytest.raises(AssertionError):
        CHECKS["summary-ratio"](tmp_path)


def test_planted_a_window_without_the_list_of_names_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leporello.compressor.engine.room_for_names", lambda *_: 0)
    with pytest.raises(ValueError, match="not enough values"):
        CHECKS["name-list"](tmp_path)
