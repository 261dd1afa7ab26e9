"""opencode, with each of the three APIs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar

from clients.client import KEY, Client, Packages, Place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.messages import Dialect
    from leporello.testing.model_server import ReceivedRequest


class OpenCode(Client):
    """`opencode run` with its provider `openai`."""

    name = "opencode (`openai`)"
    folder = "opencode"
    packages = Packages(npm=("opencode-ai",))
    dialect: ClassVar[Dialect] = "responses"
    points = "`provider.openai.options.baseURL: http://127.0.0.1:8765/v1` in `opencode.json`"
    model = "gpt-5.4"
    window = 40_000
    log_tokens = 1_100
    tool = "bash"
    provider = "openai"
    own_files: ClassVar[Sequence[str]] = (
        ".config/opencode",
        ".local/share/opencode",
        ".local/state/opencode",
        ".cache/opencode",
        ".npm",
    )
    apart = ("You are a title generator",)

    def run(self, place: Place, instructions: Sequence[str]) -> str:
        """Run one process for each instruction."""
        said = ""
        content = json.dumps(self.configuration(place))
        for number, instruction in enumerate(instructions):
            went_on = ["--continue"] if number else []
            command = [place.bin("opencode"), "run", *went_on, "--auto", "--model", self.chosen(place), instruction]
            said = place.run(command, OPENCODE_CONFIG_CONTENT=content, OPENCODE_DISABLE_AUTOUPDATE="1")
        return said

    def wrapped(self, place: Place, instruction: str) -> tuple[list[str], dict[str, str]]:
        """Name the address in the environment, where `wrap` finds it."""
        command = [place.bin("opencode"), "run", "--auto", "--model", self.chosen(place), instruction]
        return command, {"OPENAI_BASE_URL": f"{place.address}/v1", "OPENAI_API_KEY": KEY}

    def chosen(self, place: Place) -> str:
        """Return the model as opencode names it."""
        return f"{self.provider}/{place.model}"

    def configuration(self, place: Place) -> dict[str, Any]:
        """Return the configuration that points it."""
        options = {"baseURL": f"{place.address}/v1", "apiKey": KEY}
        return {"provider": {self.provider: {"options": options}}, "permission": "allow"}

    def is_side(self, request: ReceivedRequest) -> bool:
        """Take requests without tools for titles."""
        return not request.tools

    def arguments(self, command: str) -> dict[str, Any]:
        """Say what the command is for, as its tool wants."""
        return {"command": command, "description": "Reads a log"}


class OpenCodeAnthropic(OpenCode):
    """The same with its provider `anthropic`."""

    name = "opencode (`anthropic`)"
    dialect = "anthropic"
    points = "`provider.anthropic.options.baseURL: http://127.0.0.1:8765/v1` in `opencode.json`"
    model = "claude-sonnet-5"
    provider = "anthropic"
    own_files: ClassVar[Sequence[str]] = ()
    special = "Its `baseURL` ends with `/v1` for Anthropic too."


class OpenCodeCompatible(OpenCode):
    """The same with a provider of one's own, by `@ai-sdk/openai-compatible`."""

    name = "opencode (compatible)"
    dialect = "openai"
    points = "`provider.leporello` with `npm: @ai-sdk/openai-compatible` and `options.baseURL` in `opencode.json`"
    model = "gpt-5.4-mini"
    provider = "leporello"
    special = (
        "Its request for a title has two messages of the user side by side; servers that insist on turns refuse that,"
        " with or without a gateway."
    )
    own_files: ClassVar[Sequence[str]] = ()

    def configuration(self, place: Place) -> dict[str, Any]:
        """Return a provider with its model."""
        told = super().configuration(place)
        limit = {"context": 400_000, "output": 32_000}
        models = {place.model: {"name": place.model, "tool_call": True, "limit": limit}}
        own = {"npm": "@ai-sdk/openai-compatible", "name": "Leporello", "models": models}
        told["provider"][self.provider] |= own
        return told


CLIENTS = [OpenCode(), OpenCodeAnthropic(), OpenCodeCompatible()]
