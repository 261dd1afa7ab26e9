"""How the agents are led to a gateway: by variables and arguments of one run, never by a file that stays."""

from __future__ import annotations

import json
import os
import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

MARK: Final = "LEPORELLO_WRAP"
"""The variable that every wrapped program has: the address of its gateway."""

_OPENAI_VARIABLES: Final = ("OPENAI_BASE_URL", "OPENAI_API_BASE")
_ANTHROPIC_VARIABLES: Final = ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE")
ADDRESS_VARIABLES: Final = (*_OPENAI_VARIABLES, *_ANTHROPIC_VARIABLES)
"""The variables that lead the official clients, and agents on them, to a provider."""

_HERE: Final = ("127.0.0.1", "localhost")
_CODEX_SETTING: Final = re.compile(r"openai_base_url\s*=\s*[\"']?(?P<address>[^\"']+)[\"']?")


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The address that an agent would use by itself, and where it is set."""

    address: str
    place: str


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
    openai = _codex_origins(command, environ) if agent == "codex" else _from_variables(_OPENAI_VARIABLES, environ)
    anthropic = _from_variables(_ANTHROPIC_VARIABLES, environ)
    if agent == "claude":
        anthropic = [*_claude_origins(environ), *anthropic]
    found = {"openai": next(iter(openai), None), "anthropic": next(iter(anthropic), None)}
    return {name: origin for name, origin in found.items() if origin is not None}


def launch(command: Sequence[str], address: str, environ: Mapping[str, str]) -> Launch:
    """Return how a program is started so that its requests go to the gateway at this address."""
    made = _LAUNCHES.get(agent_of(command), _any)(list(command), address, environ)
    return Launch(command=made.command, variables={**made.variables, **_no_proxy(environ), MARK: address})


def _any(command: list[str], address: str, environ: Mapping[str, str]) -> Launch:
    """Set what the official clients and LiteLLM read."""
    variables = dict.fromkeys(_OPENAI_VARIABLES, f"{address}/v1") | dict.fromkeys(_ANTHROPIC_VARIABLES, address)
    return Launch(command=command, variables=variables)


def _claude(command: list[str], address: str, environ: Mapping[str, str]) -> Launch:
    """Point Claude Code here; its deferred tools, off behind an unknown address, stay on.

    Its settings files beat the environment, and the settings of the command line beat those.
    """
    variables = {"ANTHROPIC_BASE_URL": address, "ENABLE_TOOL_SEARCH": environ.get("ENABLE_TOOL_SEARCH", "true")}
    if any(_claude_origins(environ)):
        settings = json.dumps({"env": {"ANTHROPIC_BASE_URL": address}})
        command = [command[0], "--settings", settings, *command[1:]]
    return Launch(command=command, variables=variables)


def _codex(command: list[str], address: str, environ: Mapping[str, str]) -> Launch:
    """Point Codex here; it does not read the address from its environment."""
    provider = _codex_provider(environ)
    key = f"model_providers.{provider}.base_url" if provider else "openai_base_url"
    return Launch(command=[*command[:1], "-c", f'{key}="{address}/v1"', *_without_setting(command[1:])])


def _opencode(command: list[str], address: str, environ: Mapping[str, str]) -> Launch:
    """Point the providers of opencode here, in the configuration that it reads from its environment."""
    try:
        given = json.loads(environ.get("OPENCODE_CONFIG_CONTENT") or "{}")
    except ValueError:
        given = {}
    own = {"provider": {name: {"options": {"baseURL": f"{address}/v1"}} for name in ("openai", "anthropic")}}
    content = json.dumps(_merged(given if isinstance(given, dict) else {}, own))
    return Launch(command=command, variables={"OPENCODE_CONFIG_CONTENT": content})


_LAUNCHES: Final[dict[str, Callable[[list[str], str, Mapping[str, str]], Launch]]] = {
    "claude": _claude,
    "codex": _codex,
    "opencode": _opencode,
    "aider": _any,
}
AGENTS: Final = tuple(_LAUNCHES)
"""The agents that are known by name."""


def _from_variables(names: Sequence[str], environ: Mapping[str, str]) -> list[Origin]:
    return [Origin(address=environ[name], place=name) for name in names if environ.get(name)]


def _claude_origins(environ: Mapping[str, str]) -> Iterator[Origin]:
    """Yield the addresses in the settings of Claude Code, which beat the environment; the strongest first."""
    home = Path(environ.get("CLAUDE_CONFIG_DIR") or _home(environ) / ".claude")
    for file in (Path(".claude/settings.local.json"), Path(".claude/settings.json"), home / "settings.json"):
        settings = _read(file, json.loads)
        variables = settings.get("env")
        address = variables.get("ANTHROPIC_BASE_URL") if isinstance(variables, dict) else None
        if isinstance(address, str) and address:
            yield Origin(address=address, place=str(file))


def _codex_origins(command: Sequence[str], environ: Mapping[str, str]) -> Iterator[Origin]:
    """Yield the addresses that Codex is given: on its command line, then in its settings."""
    for word in command:
        if found := _CODEX_SETTING.fullmatch(word):
            yield Origin(address=found["address"], place="-c openai_base_url")
    settings, provider = _codex_settings(environ), _codex_provider(environ)
    block = settings["model_providers"][provider] if provider else settings
    address = block.get("base_url" if provider else "openai_base_url")
    if isinstance(address, str) and address:
        yield Origin(address=address, place=str(_codex_file(environ)))


def _codex_provider(environ: Mapping[str, str]) -> str:
    """Return the provider of one's own that Codex is set to; "" for its built-in one."""
    settings = _codex_settings(environ)
    name, providers = settings.get("model_provider"), settings.get("model_providers")
    known = isinstance(name, str) and isinstance(providers, dict) and isinstance(providers.get(name), dict)
    return str(name) if known else ""


def _codex_settings(environ: Mapping[str, str]) -> dict[str, Any]:
    return _read(_codex_file(environ), tomllib.loads)


def _codex_file(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("CODEX_HOME") or _home(environ) / ".codex") / "config.toml"


def _without_setting(words: Sequence[str]) -> list[str]:
    """Leave out the address that the user gave: Codex takes the last one."""
    kept: list[str] = []
    for word in words:
        if _CODEX_SETTING.fullmatch(word) and kept and kept[-1] in ("-c", "--config"):
            kept.pop()
        else:
            kept.append(word)
    return kept


def _read(file: Path, parse: Callable[[str], Any]) -> dict[str, Any]:
    """Return the settings in a file; {} where there are none that can be read: the agent itself will say so."""
    try:
        found = parse(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


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


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or os.path.expanduser("~"))  # noqa: PTH111 - where there is no such folder, "~"
