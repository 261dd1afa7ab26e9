"""Our engines inside of a real Hermes Agent 0.19.0, in an environment of its own, against the model server."""

from __future__ import annotations

import json
import re
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.fixtures.hermes import KEY, WINDOW, HermesHome

from leporello.lcm import verify
from leporello.messages.types import text_of
from leporello.store import open_store
from leporello.testing.model_server import ModelServer, Step, Use

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leporello.store import Store
    from leporello.testing.model_server import ReceivedRequest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]  # an environment may have to be installed

PROGRAM = Path(__file__).parents[2] / "clients" / "programs" / "hermes_engine.py"
LOGS = 16
PLACE = "beside the blue door"
QUESTION = "Where does the spare lamp hang?"
FOCUS = "the lamps of the quay"
LCM_TOOLS = {"lcm_artifacts", "lcm_describe", "lcm_expand", "lcm_expand_query", "lcm_grep", "lcm_status"}


class Model:
    """Reads the logs one by one, as it is told, and asks its memory for what is not in the request."""

    def __init__(self) -> None:
        self.read = 0

    def __call__(self, request: ReceivedRequest) -> Step:
        if not request.tools:
            return Step(text="## Goal\nRead the logs of the harbour.\n\n## Done\nLogs were read, each with a command.")
        newest = next(text_of(one) for one in reversed(request.messages) if one["role"] == "user")
        if QUESTION in newest:
            return self._answer(request)
        told = re.search(r"Read the logs (\d+) to (\d+)", newest)
        if told is None or self.read >= int(told[2]):
            return Step(text=f"Done: {self.read} logs.")
        self.read = max(self.read, int(told[1]) - 1) + 1
        call = Use(name="terminal", arguments={"command": f"cat logs/{self.read:02}.txt"})
        return Step(text=f"Log {self.read}.", tool_calls=[call])

    def _answer(self, request: ReceivedRequest) -> Step:
        last = request.messages[-1]
        if last["role"] != "tool":
            return Step(tool_calls=[Use(name="lcm_grep", arguments={"query": "spare lamp hangs"})])
        return Step(text=f"It hangs {PLACE}." if PLACE in text_of(last) else "I do not know.")


@dataclass(frozen=True, kw_only=True)
class Story:
    """What was seen: by the program in Hermes Agent, by the model, and in the Hermes home."""

    seen: dict[str, Any]
    resumed: str
    requests: list[ReceivedRequest]
    home: Path
    before: str
    after: str

    def did(self, what: str) -> dict[str, Any]:
        """Return what was noted when this was done first."""
        return next(note for note in self.seen["done"] if note["did"] == what)


def told_story(environment: Path, folder: Path, engine: str, *do: list[str], resume: bool) -> Story:
    """Install an engine, do what is told, ask once more after a restart, and take the engine out again."""
    with ModelServer(then=Model(), window=WINDOW, accepts_key=lambda key: key == KEY) as server:
        home = HermesHome(environment, folder, server.openai_url)
        (folder / "leporello" / "config.yaml").write_text("lcm: {threshold: 0.3}\ncompression: {threshold: 0.3}\n")
        write_logs(home.workspace)
        before = home.config.read_text("utf-8")
        home.run("leporello", "hermes", "install", "--engine", engine, "--yes")
        told = {"base_url": server.openai_url, "api_key": KEY, "model": "gpt-5.4-mini", "session": "s1", "do": do}
        seen = json.loads(home.run("python", str(PROGRAM), json.dumps(told)).splitlines()[-1])
        chat = ("chat", "--resume", "s1", "-q", QUESTION, "-Q", "--yolo", "-t", "terminal,context_engine")
        resumed = home.run("hermes", *chat) if resume else ""
        home.run("leporello", "hermes", "uninstall", "--yes")
        after = home.config.read_text("utf-8")
        requests = server.requests
    return Story(seen=seen, resumed=resumed, requests=requests, home=home.folder, before=before, after=after)


def write_logs(workspace: Path) -> None:
    """Write what is read; one thing is said in the second log only."""
    (workspace / "logs").mkdir()
    for number in range(1, LOGS + 1):
        fact = f"The spare lamp hangs {PLACE}. " if number == 2 else ""
        rows = (f"{number}.{row} berth {row * number % 97} crane {row * 31 % 89}: quiet." for row in range(330))
        (workspace / "logs" / f"{number:02}.txt").write_text(f"{fact}{' '.join(rows)}\n", encoding="utf-8")


@pytest.fixture(scope="module")
def lossless(hermes_environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Story:
    """Return what the lossless engine did; `/compress` is part of it, `/new`, and a restart of the real command."""
    return told_story(
        hermes_environment,
        tmp_path_factory.mktemp("lossless"),
        "lcm",
        ["say", f"Read the logs 1 to {LOGS}, each with one command."],
        ["say", QUESTION],
        ["another"],
        ["compress", FOCUS],
        ["new", "s2"],
        ["say", QUESTION],
        resume=True,
    )


@pytest.fixture
def store(lossless: Story) -> Iterator[Store]:
    with closing(open_store(lossless.home / "leporello.db")) as opened:
        yield opened


def test_the_engine_is_chosen_and_brings_its_tools(lossless: Story) -> None:
    assert (lossless.seen["engine"], lossless.seen["class"]) == ("leporello", "LosslessForHermes")
    assert set(lossless.seen["tools"]) == {"terminal", "process"} | LCM_TOOLS


def test_a_turn_is_folded_three_times_and_every_request_is_valid(lossless: Story) -> None:
    turn = lossless.did("say")
    assert (turn["compactions"] >= 3, turn["answer"]) == (True, f"Done: {LOGS} logs.")
    assert [one.refused for one in lossless.requests if one.refused] == []


def test_what_was_folded_is_found_by_the_engines_tool(lossless: Story) -> None:
    assert lossless.seen["done"][1]["answer"] == f"It hangs {PLACE}."
    asked = [one for one in lossless.requests if QUESTION in json.dumps(one.messages[-1])]
    assert asked
    assert PLACE not in json.dumps(asked[0].messages), "it was not in the window any more"


def test_summaries_are_written_by_the_auxiliary_model(lossless: Story, store: Store) -> None:
    asked = [one for one in lossless.requests if not one.tools]
    assert asked
    assert any(FOCUS in json.dumps(one.messages) for one in asked), "the focus of /compress reaches it"
    items = store.window("s1").items
    nodes = [node for item in items if "n" in item and (node := store.node(item["n"])) is not None]
    assert any(node.made_by == "model" for node in nodes)


def test_compress_folds_at_once(lossless: Story) -> None:
    before, after = lossless.did("compress")["messages"]
    assert after < before


def test_each_agent_has_an_engine_of_its_own(lossless: Story) -> None:
    assert (lossless.did("another")["same"], lossless.did("another")["class"]) == (False, "LosslessForHermes")


def test_new_begins_another_conversation(lossless: Story, store: Store) -> None:
    assert lossless.did("compress")["stored_as"] == "s1"
    assert lossless.did("new")["stored_as"] == "s2"
    assert lossless.seen["done"][-1]["answer"] == "I do not know.", "the other conversation is out of reach"
    assert [row.role for row in store.messages("s2")] == ["user", "assistant", "tool", "assistant"]


def test_after_a_restart_the_conversation_goes_on_where_it_was(lossless: Story, store: Store) -> None:
    assert PLACE in lossless.resumed
    info = store.info("s1")
    assert info is not None
    assert (info.branches, info.superseded) == (1, 0), "the list that Hermes Agent loads again is the stored one"
    assert info.messages == 1 + 2 * LOGS + 1 + 4 + 4
    assert verify(store, "s1") == []


def test_nothing_but_what_was_stored_is_left(lossless: Story) -> None:
    assert lossless.after == lossless.before
    assert not (lossless.home / "plugins" / "leporello").exists()
    assert (lossless.home / "leporello.db").exists()


def test_the_compressor_folds_there_too(hermes_environment: Path, tmp_path: Path) -> None:
    story = told_story(
        hermes_environment,
        tmp_path,
        "compressor",
        ["say", f"Read the logs 1 to {LOGS}, each with one command."],
        ["compress", FOCUS],
        resume=False,
    )
    assert (story.seen["class"], set(story.seen["tools"])) == ("CompressorForHermes", {"terminal", "process"})
    assert story.did("say")["compactions"] >= 2
    assert story.did("say")["answer"] == f"Done: {LOGS} logs."
    assert [one.refused for one in story.requests if one.refused] == []
    assert [one for one in story.requests if not one.tools], "the auxiliary model wrote the summary"


def test_it_asks_our_mcp_server_as_any_agent_can(hermes_environment: Path, folded: Path, tmp_path: Path) -> None:
    """The agent has an engine of its own, and an older version of the official client; the server runs beside it."""

    def model(request: ReceivedRequest) -> Step:
        last = request.messages[-1]
        if last["role"] == "tool":
            return Step(text="It is PORT-2291." if "PORT-2291" in text_of(last) else "I do not know.")
        names = [tool["function"]["name"] for tool in request.tools]
        search = next((name for name in names if name.endswith("lcm_grep")), "")
        return (
            Step(tool_calls=[Use(name=search, arguments={"query": "booking ticket"})]) if search else Step(text="Hm.")
        )

    command = ["-m", "leporello", "mcp", "--session", "harbour", "--store", str(folded)]
    server = {"memory": {"command": sys.executable, "args": command, "env": {"LEPORELLO_HOME": str(tmp_path)}}}
    with ModelServer(then=model, window=WINDOW, accepts_key=lambda key: key == KEY) as provider:
        home = HermesHome(hermes_environment, tmp_path / "agent", provider.openai_url, mcp_servers=json.dumps(server))
        said = home.run("hermes", "chat", "-q", "Which ticket has the booking?", "-Q", "--yolo", "-t", "mcp-memory")
        offered = {tool["function"]["name"] for tool in provider.requests[0].tools}
    assert "It is PORT-2291." in said
    assert {f"mcp__memory__{name}" for name in LCM_TOOLS} <= offered
