"""Libraries that agents are built on, each in a program of a few lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from clients.agents.sdks import Program
from clients.client import Client, Packages, Place

if TYPE_CHECKING:
    from leporello.messages import Dialect


class OpenAIAgents(Program):
    """The Agents SDK as it is by default, with the history that a program keeps by `to_input_list`."""

    name = "openai-agents"
    folder = "openai-agents"
    packages = Packages(pip=("openai-agents",))
    dialect = "responses"
    points = "`OPENAI_BASE_URL=http://127.0.0.1:8765/v1`, or `set_default_openai_client`"
    program = "openai_agents.py"


class OpenAIAgentsWithSession(OpenAIAgents):
    """The same with a session, which keeps the history."""

    name = "openai-agents (session)"
    words = ("session",)


class OpenAIAgentsChained(OpenAIAgents):
    """The same with `auto_previous_response_id`, which sends only what is new."""

    name = "openai-agents (`previous_response_id`)"
    words = ("chained",)
    refers = True


class PydanticAI(Program):
    """pydantic-ai with OpenAI's chat completions."""

    name = "pydantic-ai (OpenAI)"
    folder = "pydantic-ai"
    packages = Packages(pip=("pydantic-ai-slim[openai,anthropic]",))
    dialect: ClassVar[Dialect] = "openai"
    points = "`OPENAI_BASE_URL`, or `OpenAIProvider(base_url=...)`"
    program = "pydantic_ai_agent.py"
    prefix = "openai-chat"

    def pointed(self, place: Place) -> dict[str, str]:
        """Name the model as pydantic-ai does."""
        return {**super().pointed(place), "MODEL": f"{self.prefix}:{place.model}"}


class PydanticAIAnthropic(PydanticAI):
    """The same with Anthropic's messages."""

    name = "pydantic-ai (Anthropic)"
    dialect = "anthropic"
    points = "`ANTHROPIC_BASE_URL`, or `AnthropicProvider(base_url=...)`"
    model = "claude-sonnet-5"
    prefix = "anthropic"


class LangChain(Program):
    """`ChatOpenAI`."""

    name = "LangChain (OpenAI)"
    folder = "langchain"
    packages = Packages(pip=("langchain-openai", "langchain-anthropic", "langchain"))
    dialect: ClassVar[Dialect] = "openai"
    points = "`ChatOpenAI(base_url=...)`, or `OPENAI_BASE_URL`"
    program = "langchain_agent.py"
    words = ("openai",)


class LangChainAnthropic(LangChain):
    """`ChatAnthropic`."""

    name = "LangChain (Anthropic)"
    packages = Packages(pip=("langchain-anthropic", "langchain-openai", "langchain"))
    dialect = "anthropic"
    points = "`ChatAnthropic(base_url=...)`, or `ANTHROPIC_BASE_URL`"
    model = "claude-sonnet-5"
    words = ("anthropic",)


class LiteLLM(Program):
    """`litellm.completion`."""

    name = "LiteLLM"
    folder = "litellm"
    packages = Packages(pip=("litellm", "mcp"))
    dialect: ClassVar[Dialect] = "openai"
    points = "`api_base=`, or `OPENAI_API_BASE`"
    program = "litellm_loop.py"
    special = "With tools it imports `mcp`, which it does not install."

    def pointed(self, place: Place) -> dict[str, str]:
        """Name the model and the address as LiteLLM does."""
        own = super().pointed(place)
        return {**own, "OPENAI_API_BASE": own["OPENAI_BASE_URL"], "MODEL": f"openai/{place.model}"}


class VercelAI(Program):
    """`streamText` with the default `openai()`."""

    name = "Vercel AI SDK (`openai()`)"
    folder = "vercel-ai"
    packages = Packages(npm=("ai", "@ai-sdk/openai", "zod"))
    dialect = "responses"
    points = '`createOpenAI({ baseURL: "http://127.0.0.1:8765/v1" })`'
    program = "vercel_ai.mjs"
    refers = True


CLIENTS: list[Client] = [
    OpenAIAgents(),
    OpenAIAgentsWithSession(),
    OpenAIAgentsChained(),
    PydanticAI(),
    PydanticAIAnthropic(),
    LangChain(),
    LangChainAnthropic(),
    LiteLLM(),
    VercelAI(),
]
