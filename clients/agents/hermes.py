"""Hermes Agent: chat completions, with an engine of its own for long conversations."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from clients.client import KEY, Client, Packages, Place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.testing.model_server import ReceivedRequest


class Hermes(Client):
    """`hermes chat -q`, gone on with by `--continue`."""

    name = "hermes-agent"
    folder = "hermes-agent"
    packages = Packages(pip=("hermes-agent==0.19.0",))
    dialect = "openai"
    points = "`model.provider: custom` and `model.base_url: http://127.0.0.1:8765/v1` in `~/.hermes/config.yaml`"
    window = 64_000
    log_tokens = 1_400
    tool = "terminal"

    def run(self, place: Place, instructions: Sequence[str]) -> str:
        """Run one process for each instruction."""
        folder = place.home / ".hermes"
        folder.mkdir()
        model = {"default": place.model, "provider": "custom", "base_url": f"{place.address}/v1", "api_key": KEY}
        told = {"model": {**model, "context_length": 400_000}}
        (folder / "config.yaml").write_text(json.dumps(told), encoding="utf-8")
        said = ""
        for number, instruction in enumerate(instructions):
            went_on = ["--continue"] if number else []
            command = [place.bin("hermes"), "chat", *went_on, "-q", instruction, "-Q", "--yolo", "-t", "terminal"]
            said = place.run(command, HERMES_HOME=str(folder), OPENAI_API_KEY=KEY)
        return said

    def is_side(self, request: ReceivedRequest) -> bool:
        """Take requests without tools for titles."""
        return not request.tools

    def arguments(self, command: str) -> dict[str, Any]:
        """Run it in the terminal."""
        return {"command": command}


CLIENTS = [Hermes()]
