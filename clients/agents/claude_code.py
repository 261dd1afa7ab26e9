"""Claude Code: Anthropic's messages, with system messages in the middle and cache marks of its own."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from clients.client import KEY, Client, Packages, Place
from clients.session import UNKNOWN
from clients.terminal import in_terminal
from leporello.messages import text_of
from leporello.testing.model_server import Step, Use

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from leporello.testing.model_server import ReceivedRequest

AGENT = "x-claude-code-agent-id"
_WITH_AGENT = 10  # the turn in which a sub-agent is sent out
_ENDS = ("It hangs at", UNKNOWN)
_SECONDS = 300.0
_SUMMARY = """<analysis>
The user wants the logs of the harbour read.
</analysis>
<summary>
1. The first half of the logs was read, one after the other, each with a command of its own.
2. They tell of cranes, berths and containers, and nothing in them had to be changed.
3. Next: whatever the user asks for.
</summary>"""
_COMPACTION = "CRITICAL: Respond with TEXT ONLY"


class ClaudeCode(Client):
    """`claude -p`, gone on with by `claude -p --continue`."""

    name = "Claude Code"
    folder = "claude-code"
    packages = Packages(npm=("@anthropic-ai/claude-code",))
    dialect = "anthropic"
    points = "`ANTHROPIC_BASE_URL=http://127.0.0.1:8765 claude`"
    special = (
        "Behind an address that is not Anthropic's it sends all tools at once; `ENABLE_TOOL_SEARCH=true` defers them."
    )
    model = "claude-sonnet-5"
    window = 110_000
    log_tokens = 2_400
    tool = "Bash"
    own_files: ClassVar[Sequence[str]] = (
        ".claude",
        ".claude.json",
        ".cache/claude-cli-nodejs",
        ".local/share/claude",
        ".local/state/claude",
    )

    def run(self, place: Place, instructions: Sequence[str]) -> str:
        """Run one process for each instruction."""
        said = ""
        for number, instruction in enumerate(instructions):
            went_on = ["--continue"] if number else []
            own = ["--model", place.model, "--allowedTools", "Bash"]
            command = [place.bin("claude"), "-p", instruction, *went_on, *own]
            said = place.run(command, ANTHROPIC_BASE_URL=place.address, ANTHROPIC_API_KEY=KEY)
        return said

    def wrapped(self, place: Place, instruction: str) -> tuple[list[str], dict[str, str]]:
        """Name the address in the environment, where `wrap` finds it."""
        command = [place.bin("claude"), "-p", instruction, "--model", place.model, "--allowedTools", "Bash"]
        return command, {"ANTHROPIC_BASE_URL": place.address, "ANTHROPIC_API_KEY": KEY}

    def is_side(self, request: ReceivedRequest) -> bool:
        """Take requests without tools for titles and the like."""
        return not request.tools

    def arguments(self, command: str) -> dict[str, Any]:
        """Say what the command is for, as its tool wants."""
        return {"command": command, "description": "Read a log"}


class ClaudeCodeTerminal(ClaudeCode):
    """The same in its terminal: titles, a sub-agent, `/compact`, and the engine's tools to find what that left out."""

    name = "Claude Code (terminal, `/compact`)"
    window = 120_000
    conversations = 2
    compacts = True
    own_files: ClassVar[Sequence[str]] = ()
    special = (
        "It runs with the lossless engine and its tools. In auto mode its requests carry `safeguards`, which pass"
        " through; if the provider does not answer them, Claude Code makes checks of its own, and says so."
    )
    settings: ClassVar[Mapping[str, Any]] = {"context": {"engine": "lcm"}, "gateway": {"tools": True}}
    apart = (_COMPACTION,)

    def run(self, place: Place, instructions: Sequence[str]) -> str:
        """Type everything into one process; the history is compacted between the instructions."""
        trusted = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
        told = {"hasCompletedOnboarding": True, "projects": {str(place.workspace): trusted}}
        (place.home / ".claude.json").write_text(json.dumps(told), encoding="utf-8")
        own = {"ANTHROPIC_BASE_URL": place.address, "ANTHROPIC_AUTH_TOKEN": KEY, "ENABLE_TOOL_SEARCH": "true"}
        command = [place.bin("claude"), "--model", place.model, "--permission-mode", "default"]
        command += ["--allowedTools", "Bash,Agent"]
        with in_terminal(command, {**place.variables(), **own}, place.workspace) as terminal:
            terminal.wait_for("❯")
            terminal.say(instructions[0])
            terminal.wait_for(f"Done: {self.turns // 2} logs", _SECONDS)
            terminal.say("/compact")
            terminal.wait_for("Compacted", _SECONDS)
            terminal.say(instructions[1])
            terminal.wait_for(f"Done: {self.turns} logs", _SECONDS)
            terminal.say(instructions[2])
            terminal.wait_until(lambda: any(word in terminal.screen for word in _ENDS), "the answer", _SECONDS)
            said = terminal.screen
            terminal.say("/exit")
            terminal.end()
        return said

    def is_side(self, request: ReceivedRequest) -> bool:
        """Keep titles, the sub-agent and the compaction apart."""
        return super().is_side(request) or AGENT in request.headers or _is_compaction(request)

    def side(self, request: ReceivedRequest) -> Step:
        """Summarise, as the compaction asks; the sub-agent has an answer, and the rest is titles."""
        if _is_compaction(request):
            return Step(text=_SUMMARY)
        return Step(text="It is a harbour." if AGENT in request.headers else '{"title": "Harbour logs"}')

    def step(self, request: ReceivedRequest, turn: int, command: str) -> Step:
        """Send a sub-agent out beside one of the commands."""
        said = super().step(request, turn, command)
        if turn != _WITH_AGENT:
            return said
        prompt = {"description": "Look around", "prompt": "You look around in the harbour and say what it is."}
        agent = Use(name="Agent", arguments={**prompt, "subagent_type": "general-purpose"})
        return replace(said, tool_calls=[*said.tool_calls, agent])


def _is_compaction(request: ReceivedRequest) -> bool:
    return any(_COMPACTION in text_of(message) for message in request.messages[-3:])


CLIENTS = [ClaudeCode(), ClaudeCodeTerminal()]
