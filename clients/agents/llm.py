"""llm: chat completions from the command line, with a function as a tool."""

from __future__ import annotations

from typing import TYPE_CHECKING

from clients.client import KEY, PROGRAMS, Client, Packages, Place

if TYPE_CHECKING:
    from collections.abc import Sequence


class Llm(Client):
    """`llm prompt`, gone on with by `llm --continue`."""

    name = "llm"
    folder = "llm"
    packages = Packages(pip=("llm",))
    dialect = "openai"
    points = "`api_base: http://127.0.0.1:8765/v1` and `api_key_name: openai` of a model in `extra-openai-models.yaml`"

    def run(self, place: Place, instructions: Sequence[str]) -> str:
        """Run one process for each instruction."""
        folder = place.home / "llm"
        folder.mkdir()
        told = f"- model_id: harbour\n  model_name: {place.model}\n  api_base: {place.address}/v1\n"
        told += "  supports_tools: true\n  api_key_name: openai\n"
        (folder / "extra-openai-models.yaml").write_text(told, encoding="utf-8")
        said = ""
        for number, instruction in enumerate(instructions):
            went_on = ["--continue"] if number else ["--system", "You look after a harbour."]
            tools = ["--functions", str(PROGRAMS / "llm_functions.py"), "--chain-limit", "0"]
            command = [place.bin("llm"), "prompt", instruction, "-m", "harbour", *went_on, *tools]
            said = place.run([*command, "--key", KEY], LLM_USER_PATH=str(folder))
        return said


CLIENTS = [Llm()]
