"""aider: chat completions without tools; it writes its history anew in every turn."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from clients.client import KEY, Client, Packages, Place
from leporello.testing.model_server import Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.testing.model_server import ReceivedRequest


class Aider(Client):
    """aider at a pipe: the output of a command, then a message about it, in every turn."""

    name = "aider"
    folder = "aider"
    packages = Packages(pip=("aider-chat",))
    dialect = "openai"
    points = "`OPENAI_API_BASE=http://127.0.0.1:8765/v1 aider --model openai/MODEL`"
    own_files: ClassVar[Sequence[str]] = (
        ".aider",
        "../workspace/.aider.chat.history.md",
        "../workspace/.aider.input.history",
        ".cache",
    )
    special = (
        "It shortens its own history from 8,000 tokens on, by a model; `--max-chat-history-tokens` with a large number"
        " leaves that to the gateway."
    )

    def run(self, place: Place, instructions: Sequence[str]) -> str:
        """Type everything into one process."""
        typed: list[str] = []
        for number in range(1, self.turns + 1):
            typed += [f"/run cat logs/{number:02}.txt", f"Read the logs {number} to {number}: what do they say?"]
        own = "--yes-always --no-git --no-pretty --no-fancy-input --no-check-update --no-show-model-warnings"
        quiet = (
            "--analytics-disable --no-show-release-notes --no-auto-lint --no-suggest-shell-commands --no-detect-urls"
        )
        command = [place.bin("aider"), "--model", f"openai/{place.model}", *own.split(), *quiet.split()]
        return place.run(
            [*command, "--max-chat-history-tokens", "1000000", "--map-tokens", "0"],
            typed="\n".join([*typed, instructions[-1], "/exit"]) + "\n",
            OPENAI_API_BASE=f"{place.address}/v1",
            OPENAI_API_KEY=KEY,
        )

    def wrapped(self, place: Place, instruction: str) -> tuple[list[str], dict[str, str]]:
        """Let it carry out a file of commands; the address is in the environment, where `wrap` finds it."""
        half = int(instruction.partition(" to ")[2].split(maxsplit=1)[0])
        asked = [f"/ask Read the logs {number} to {number}: what do they say?" for number in range(1, half + 1)]
        (place.workspace / "commands").write_text("\n".join([*asked, "/exit"]), encoding="utf-8")
        own = "--yes-always --no-git --no-check-update --no-show-model-warnings --analytics-disable --map-tokens 0"
        command = [place.bin("aider"), "--model", f"openai/{place.model}", *own.split(), "--load", "commands"]
        return command, {"OPENAI_API_BASE": f"{place.address}/v1", "OPENAI_API_KEY": KEY}

    def step(self, request: ReceivedRequest, turn: int, command: str) -> Step:
        """Answer with words, about the output that the user added."""
        return Step(text=f"Log {turn} tells about cranes and berths; nothing is to be changed for that in turn {turn}.")


CLIENTS = [Aider()]
