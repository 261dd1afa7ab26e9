"""The official packages of both providers, for Python and for Node, each in a tool loop of a few lines."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, ClassVar

from clients.client import KEY, Client, Packages, Place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.messages import Dialect

OPENAI = '`OpenAI(base_url="http://127.0.0.1:8765/v1")`, or `OPENAI_BASE_URL`'
ANTHROPIC = '`Anthropic(base_url="http://127.0.0.1:8765")`, or `ANTHROPIC_BASE_URL`'


class Program(Client):
    """One of our programs on a library; it reads address, key, model and instructions from its environment."""

    program: ClassVar[str]
    words: ClassVar[tuple[str, ...]] = ()

    def run(self, place: Place, instructions: Sequence[str]) -> str:
        """Run the program once, with all instructions."""
        run = place.node if self.program.endswith(".mjs") else place.python
        return run(self.program, *self.words, **self.pointed(place), INSTRUCTIONS=json.dumps(list(instructions)))

    def pointed(self, place: Place) -> dict[str, str]:
        """Return the variables that lead the library to the gateway."""
        openai = {"OPENAI_BASE_URL": f"{place.address}/v1", "OPENAI_API_KEY": KEY}
        anthropic = {"ANTHROPIC_BASE_URL": place.address, "ANTHROPIC_API_KEY": KEY}
        return {**openai, **anthropic, "MODEL": place.model}


class PythonChat(Program):
    """`client.chat.completions.stream`."""

    name = "openai for Python (Chat)"
    folder = "python-sdks"
    packages = Packages(pip=("openai", "anthropic"))
    dialect: ClassVar[Dialect] = "openai"
    points = OPENAI
    program = "openai_chat.py"


class PythonResponses(PythonChat):
    """`client.responses.stream` with whole histories."""

    name = "openai for Python (Responses)"
    dialect = "responses"
    program = "openai_responses.py"


class PythonChained(PythonResponses):
    """The same with `previous_response_id`."""

    name = "openai for Python (`previous_response_id`)"
    words = ("chained",)
    refers = True


class PythonAnthropic(PythonChat):
    """`client.messages.stream`."""

    name = "anthropic for Python"
    packages = Packages(pip=("anthropic", "openai"))
    folder = "python-sdks"
    dialect = "anthropic"
    points = ANTHROPIC
    model = "claude-sonnet-5"
    program = "anthropic_messages.py"


class NodeChat(Program):
    """The same for Node."""

    name = "openai for Node (Chat)"
    folder = "node-openai"
    packages = Packages(npm=("openai", "@anthropic-ai/sdk"))
    dialect: ClassVar[Dialect] = "openai"
    points = '`new OpenAI({ baseURL: "http://127.0.0.1:8765/v1" })`, or `OPENAI_BASE_URL`'
    program = "node_sdks.mjs"
    words = ("chat",)


class NodeResponses(NodeChat):
    """`client.responses.stream`."""

    name = "openai for Node (Responses)"
    dialect = "responses"
    words = ("responses",)


class NodeAnthropic(NodeChat):
    """`client.messages.stream`."""

    name = "anthropic for Node"
    folder = "node-anthropic"
    packages = Packages(npm=("@anthropic-ai/sdk", "openai"))
    dialect = "anthropic"
    points = '`new Anthropic({ baseURL: "http://127.0.0.1:8765" })`, or `ANTHROPIC_BASE_URL`'
    model = "claude-sonnet-5"
    words = ("messages",)


CLIENTS: list[Client] = [
    PythonChat(),
    PythonResponses(),
    PythonChained(),
    PythonAnthropic(),
    NodeChat(),
    NodeResponses(),
    NodeAnthropic(),
]
