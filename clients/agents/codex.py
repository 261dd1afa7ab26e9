"""Codex: the Responses API, its tools among the items of the input, and code that calls them."""

from __future__ import annotations

import json
from itertools import count
from typing import TYPE_CHECKING, ClassVar

from clients.client import KEY, Client, Packages, Place
from leporello.testing.model_server import Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.testing.model_server import ReceivedRequest


class Codex(Client):
    """`codex exec`, gone on with by `codex exec resume`."""

    name = "Codex"
    folder = "codex"
    packages = Packages(npm=("@openai/codex",))
    dialect = "responses"
    points = "`codex -c openai_base_url='\"http://127.0.0.1:8765/v1\"'`, or the same line in `~/.codex/config.toml`"
    model = "gpt-6.1-sol"
    window = 64_000
    log_tokens = 1_400
    special = "It does not read `OPENAI_BASE_URL`. It asks for a websocket first, is answered 426, and goes on by HTTP."
    own_files: ClassVar[Sequence[str]] = (".codex",)
    _calls = count(1)

    def run(self, place: Place, instructions: Sequence[str]) -> str:
        """Run one process for each instruction."""
        said = ""
        for number, instruction in enumerate(instructions):
            resumed = ["resume", "--last"] if number else []
            said = place.run([place.bin("codex"), *self.options(place), *resumed, instruction], CODEX_API_KEY=KEY)
        return said

    def wrapped(self, place: Place, instruction: str) -> tuple[list[str], dict[str, str]]:
        """Name the address on the command line, where `wrap` finds it."""
        return [place.bin("codex"), *self.options(place), instruction], {"CODEX_API_KEY": KEY}

    def options(self, place: Place) -> list[str]:
        """Return the command with its options."""
        own = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
        return ["exec", "-c", f'openai_base_url="{place.address}/v1"', "-m", place.model, *own]

    def step(self, request: ReceivedRequest, turn: int, command: str) -> Step:
        """Call the tool that runs a script, which runs the command."""
        code = f"const done = await tools.exec_command({json.dumps({'cmd': command})});\ntext(done.output ?? done);"
        call = {"type": "custom_tool_call", "call_id": f"call_exec_{next(self._calls)}", "name": "exec", "input": code}
        return Step(thinking=self.thinking(request, turn), items=[{**call, "id": f"ctc_{turn}", "status": "completed"}])


CLIENTS = [Codex()]
