"""The agents of frameworks with our adapters, each in an environment of its own, against the model server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.fixtures.environments import environment, unknown_types
from tests.pages.reader import Reader

from leporello.messages.types import text_of
from leporello.testing.model_server import ModelServer, Step, Use

if TYPE_CHECKING:
    from leporello.testing.model_server import ReceivedRequest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]  # an environment may have to be installed

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "clients" / "programs"
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
FRAMEWORKS = {
    "claude-agent-sdk": ("claude-agent-sdk>=0.2", *EXTRAS["gateway"]),
    "langchain": ("langchain>=1", "langchain-openai"),
    "openai-agents": ("openai-agents>=0.24",),
    "litellm": ("litellm[mcp]>=1.106",),
    "pydantic-ai": ("pydantic-ai-slim[openai]>=2.66",),
}
SETTINGS = {"LITELLM_LOCAL_MODEL_COST_MAP": "True"}
"""Variables that keep a framework from asking the network for something."""
UNSEEN = {"claude-agent-sdk"}
"""Frameworks that do not see the calls of the engine's tools: the gateway answers them."""
TURNS = 200
WINDOW = 12_000
QUESTION = "Where does the spare lamp hang?"
PLACE = "beside the blue door"


class Model:
    """Reads one log after the other, and asks its memory for what is not in the request."""

    def __init__(self) -> None:
        self.read = 0

    def __call__(self, request: ReceivedRequest) -> Step:
        newest = instruction(request)
        last = request.messages[-1]
        if newest == QUESTION:
            if last["role"] == "tool":
                return Step(text=f"It hangs {PLACE}." if PLACE in text_of(last) else "I do not know.")
            return Step(tool_calls=[Use(name="lcm_grep", arguments={"query": "spare lamp hangs"})])
        wanted = re.search(r"Read the logs 1 to (\d+)", newest)
        assert wanted, "the instruction is in every request, as it was said"
        if self.read >= int(wanted[1]):
            return Step(text="Done.")
        self.read += 1
        return Step(tool_calls=[Use(name=offered(request, "read_log"), arguments={"number": self.read})])


def instruction(request: ReceivedRequest) -> str:
    """Return what the user said last; an agent may have notes of its own behind it."""
    return next(text_of(one) for one in reversed(request.messages) if one["role"] == "user")


def offered(request: ReceivedRequest, name: str) -> str:
    """Return a tool's name in the request: some frameworks put the name of its server before it."""
    names = [str((tool.get("function") or tool)["name"]) for tool in request.tools]
    return next(one for one in names if one.endswith(name))


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What the program and the model saw."""

    name: str
    told: dict[str, Any]
    requests: list[ReceivedRequest]
    read: int


def run(
    name: str, folder: Path, model: Model, *, turns: int = TURNS, window: int = WINDOW
) -> tuple[subprocess.CompletedProcess[str], list[ReceivedRequest]]:
    """Run the program of a framework, against a provider that takes requests of so many tokens."""
    python = environment(name, *FRAMEWORKS[name]) / "bin" / "python"
    program = PROGRAMS / f"{name.replace('-', '_')}_folding.py"
    variables = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "LEPORELLO_HOME": str(folder / "leporello"),
    } | SETTINGS
    with ModelServer(then=model, window=window) as server:
        arguments: list[str | Path] = [python, program, server.openai_url, folder / "store.db", str(turns)]
        done = subprocess.run(arguments, env=variables, capture_output=True, text=True, timeout=1_500, check=False)
        return done, server.requests


@pytest.fixture(scope="module", params=FRAMEWORKS)
def seen(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    name, model = request.param, Model()
    done, requests = run(name, tmp_path_factory.mktemp(name), model)
    assert done.returncode == 0, done.stderr[-3_000:]
    return Seen(name=name, told=json.loads(done.stdout.splitlines()[-1]), requests=requests, read=model.read)


ON_THE_PAGE = {
    "LangChain": "langchain",
    "the OpenAI Agents SDK": "openai-agents",
    "Pydantic AI": "pydantic-ai",
    "LiteLLM": "litellm",
    "the Claude Agent SDK": "claude-agent-sdk",
}


@pytest.mark.parametrize(("needs", "name"), ON_THE_PAGE.items())
def test_the_code_of_the_page_runs_as_printed(needs: str, name: str, tmp_path: Path) -> None:
    page = (PROGRAMS.parents[1] / "docs" / "how-to" / "frameworks.md").read_text("utf-8")
    python = environment(name, *FRAMEWORKS[name]) / "bin" / "python"
    with ModelServer() as server:
        there = {"OPENAI_BASE_URL": server.openai_url, "OPENAI_API_KEY": "any", "OPENAI_AGENTS_DISABLE_TRACING": "1"}
        there |= {"ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": "any"} | SETTINGS
        with Reader(tmp_path, python, there) as reader:
            assert reader.read(page, needs) == []
        assert "Fix the failing tests" in str(server.requests)


def test_every_request_is_valid_and_fits(seen: Seen) -> None:
    assert (seen.read, [one.refused for one in seen.requests if one.refused]) == (TURNS, [])
    assert seen.told["compactions"] >= TURNS // 30


@pytest.mark.parametrize("name", FRAMEWORKS)
def test_a_request_that_does_not_fit_is_seen(name: str, tmp_path: Path) -> None:
    """The adapter believes in a window four times as large as the provider's."""
    _, requests = run(name, tmp_path, Model(), turns=TURNS // 5, window=WINDOW // 4)
    assert [one.refused for one in requests if one.refused] != []


def test_the_frameworks_own_history_stays_whole(seen: Seen) -> None:
    said = 2 + 2 * TURNS + 2 * (2 if seen.name in UNSEEN else 4)
    assert seen.told["kept"] == said
    assert max(len(one.messages) for one in seen.requests) < said / 2


def test_an_early_value_is_found_again_also_after_a_restart(seen: Seen) -> None:
    assert seen.told["answers"] == [f"It hangs {PLACE}."] * 2
    asked = next(one for one in seen.requests if instruction(one) == QUESTION)
    assert PLACE not in json.dumps(asked.messages), "it was folded"
    assert seen.told["branches"] == 1, "the restarted agent goes on in the same conversation"


def test_the_last_instruction_is_in_every_request_as_it_was_said(seen: Seen) -> None:
    said = {f"Read the logs 1 to {TURNS}.", QUESTION}
    assert set(map(instruction, seen.requests)) == said


def test_the_types_are_known_where_the_framework_is_installed(seen: Seen, tmp_path: Path) -> None:
    module = f"leporello.adapters.{seen.name.replace('-', '_')}"
    unknown, public = unknown_types(environment(seen.name, *FRAMEWORKS[seen.name]), module, tmp_path)
    assert (unknown, public > 5) == ([], True)


def test_the_cost_is_reported(seen: Seen) -> None:
    assert seen.told["cost"] > 0
