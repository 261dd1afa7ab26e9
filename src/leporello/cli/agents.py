"""How the agents are led to a gateway: by variables and arguments of one run, never by a file that stays."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from leporello.cli.agent_settings import (
    AIDER_OPTION,
    ANTHROPIC_VARIABLES,
    CODEX_SETTING,
    OPENAI_VARIABLES,
    Origin,
    aider_origins,
    claude_origins,
    codex_origins,
    codex_provider,
    from_variables,
    opencode_content,
    opencode_origins,
    opencode_providers,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

MARK: Final = "LEPORELLO_WRAP"
"""The variable that every wrapped program has: the address of its gateway."""

ADDRESS_VARIABLES: Final = (*OPENAI_VARIABLES, *ANTHROPIC_VARIABLES)
"""The variables that lead the official clients, and agents on them, to a provider."""

_HERE: Final = ("127.0.0.1", "localhost")


@dataclass(frozen=True, kw_only=True)
class Launch:
    """How a program is started: its command, and what is set for it besides its environment."""

    command: list[str]
    variables: dict[str, str] = field(default_factory=dict)

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """Return the whole environment."""
        return {**environ, **self.variables}


def agent_of(command: Sequence[str]) -> str:
    """Return the name of the agent that a command starts; "" for any other program."""
    name = Path(command[0]).name.removesuffix(".exe").removesuffix(".cmd")
    return name if name in _LAUNCHES else ""


def origins(command: Sequence[str], environ: Mapping[str, str]) -> dict[str, Origin]:
    """Return the addresses of its providers that a program would use by itself, where they are not the public ones."""
    agent = agent_of(command)
    found: dict[str, list[Origin]] = {
        "openai": from_variables(OPENAI_VARIABLES, environ),
        "anthropic": from_variables(ANTHROPIC_VARIABLES, environ),
    }
    if agent == "claude":
        found["anthropic"][:0] = claude_origins(environ)
    elif agent == "codex":
        found["openai"] = list(codex_origins(command, environ))
    elif agent == "opencode":
        found = opencode_origins(command, environ)
    elif agent == "aider":
        found["openai"] = list(aider_origins(command, environ))
    return {name: strongest[0] for name, strongest in found.items() if strongest}


def launch(command: Sequence[str], address: str, environ: Mapping[str, str]) -> Launch:
    """Return how a program is started so that its requests go to the gateway at this address."""
    made = _LAUNCHES.get(agent_of(command), _any)(list(command), address, environ)
    return Launch(command=made.command, variables={**made.variables, **_no_proxy(environ), MARK: address})


def _any(command: list[str], address: str, environ: Mapping[str, str]) -> Launch:
    """Set what the official clients and LiteLLM read."""
    variables = dict.fromkeys(OPENAI_VARIABLES, f"{address}/v1") | dict.fromkeys(ANTHROPIC_VARIABLES, address)
    return Launch(command=command, variables=variables)


def _claude(command: list[str], address: str, environ: Mapping[str, str]) -> Launch:
    """Point Claude Code here; its deferred tools, off behind an unknown address, stay on.

    Its settings files beat the environment, and the settings of the command line beat those.
    """
    variables = {"ANTHROPIC_BASE_URL": address, "ENABLE_TOOL_SEARCH": environ.get("ENABLE_TOOL_SEARCH", "true")}
    if any(claude_origins(environ)):
        settings = json.dumps({"env": {"ANTHROPIC_BASE_URL": address}})
        command = [command[0], "--settings", settings, *command[1:]]
    return Launch(command=command, variables=variables)


def _codex(command: list[str], address: str, environ: Mapping[str, str]) -> Launch:
    """Point Codex here; it does not read the address from its environment."""
    provider = codex_provider(command, environ)
    key = f"model_providers.{provider}.base_url" if provider else "openai_base_url"
    return Launch(command=[*command[:1], "-c", f'{key}="{address}/v1"', *_without_setting(command[1:])])


def _without_setting(words: Sequence[str]) -> list[str]:
    """Leave out the address that the user gave: Codex takes the last one."""
    kept: list[str] = []
    for word in words:
        if CODEX_SETTING.fullmatch(word) and kept and kept[-1] in ("-c", "--config"):
            kept.pop()
        else:
            kept.append(word)
    return kept


def _opencode(command: list[str], address: str, environ: Mapping[str, str]) -> Launch:
    """Point the providers of opencode here, in the configuration that it reads from its environment."""
    names = opencode_providers(command, environ).values()
    own = {"provider": {name: {"options": {"baseURL": f"{address}/v1"}} for name in names}}
    content = json.dumps(_merged(opencode_content(environ), own))
    return Launch(command=command, variables={"OPENCODE_CONFIG_CONTENT": content})


def _aider(command: list[str], address: str, environ: Mapping[str, str]) -> Launch:
    """Set what LiteLLM reads; an option beats the files of aider, which beat the environment."""
    made = _any(command, address, environ)
    if all(origin.place in OPENAI_VARIABLES for origin in aider_origins(command, environ)):
        return made
    return Launch(command=[*command, AIDER_OPTION, f"{address}/v1"], variables=made.variables)


_LAUNCHES: Final[dict[str, Callable[[list[str], str, Mapping[str, str]], Launch]]] = {
    "claude": _claude,
    "codex": _codex,
    "opencode": _opencode,
    "aider": _aider,
}
AGENTS: Final = tuple(_LAUNCHES)
"""The agents that are known by name."""


def _merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return one object with another laid over it."""
    both = {
        key: _merged(one[key], value) if isinstance(value, dict) and isinstance(one.get(key), dict) else value
        for key, value in other.items()
    }
    return {**one, **both}


def _no_proxy(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that keep requests to this machine from a proxy."""
    return {
        name: ",".join(dict.fromkeys([*filter(None, environ.get(name, "").split(",")), *_HERE]))
        for name in ("NO_PROXY", "no_proxy")
    }
