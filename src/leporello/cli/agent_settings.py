"""The addresses that agents use by themselves: from their command line, their settings and their environment."""

from __future__ import annotations

import json
import os
import re
import tomllib
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from leporello.config.untrusted_files import read_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

OPENAI_VARIABLES: Final = ("OPENAI_BASE_URL", "OPENAI_API_BASE")
ANTHROPIC_VARIABLES: Final = ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE")

CODEX_SETTING: Final = re.compile(r"openai_base_url\s*=\s*[\"']?(?P<address>[^\"']+)[\"']?")
_CODEX_PROVIDER: Final = re.compile(r"model_provider\s*=\s*[\"']?(?P<name>[^\"']+)[\"']?")
_OPENCODE_FILES: Final = ("opencode.json", "opencode.jsonc")
AIDER_OPTION: Final = "--openai-api-base"
_AIDER_VARIABLE: Final = "AIDER_OPENAI_API_BASE"
_NOT_JSON: Final = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/|,(?=(?:\s|//[^\n]*|/\*.*?\*/)*[}\]])', re.DOTALL)
_LONGEST: Final = 1024 * 1024  # bytes of a file of settings
_FROM_ENVIRONMENT: Final = re.compile(r"\{env:(\w+)\}")


@dataclass(frozen=True, kw_only=True)
class Origin:
    """The address that an agent would use by itself, and where it is set."""

    address: str
    place: str


def from_variables(names: Sequence[str], environ: Mapping[str, str]) -> list[Origin]:
    """Return the addresses in the environment."""
    return [Origin(address=environ[name], place=name) for name in names if environ.get(name)]


def claude_origins(environ: Mapping[str, str]) -> Iterator[Origin]:
    """Yield the addresses in the settings of Claude Code, which beat the environment; the strongest first."""
    home = Path(environ.get("CLAUDE_CONFIG_DIR") or _home(environ) / ".claude")
    for file in (Path(".claude/settings.local.json"), Path(".claude/settings.json"), home / "settings.json"):
        settings = _read(file, json.loads)
        variables = settings.get("env")
        address = variables.get("ANTHROPIC_BASE_URL") if isinstance(variables, dict) else None
        if isinstance(address, str) and address:
            yield Origin(address=address, place=str(file))


def codex_origins(command: Sequence[str], environ: Mapping[str, str]) -> Iterator[Origin]:
    """Yield the addresses that Codex is given: on its command line, then in its settings."""
    for word in command:
        if found := CODEX_SETTING.fullmatch(word):
            yield Origin(address=found["address"], place="-c openai_base_url")
    settings, provider = _codex_settings(environ), codex_provider(command, environ)
    block = settings["model_providers"][provider] if provider else settings
    address = block.get("base_url" if provider else "openai_base_url")
    if isinstance(address, str) and address:
        yield Origin(address=address, place=str(_codex_file(environ)))


def codex_provider(command: Sequence[str], environ: Mapping[str, str]) -> str:
    """Return the provider of one's own that Codex is told to use; "" for its built-in one.

    Its command line names one, or a profile, which comes before the settings as a whole.
    """
    settings = _codex_settings(environ)
    named = [found["name"] for word in command if (found := _CODEX_PROVIDER.fullmatch(word))]
    profile = _option(command, "-p", "--profile") or settings.get("profile")
    chosen = [_block(settings, "profiles", profile).get("model_provider")] if isinstance(profile, str) else []
    name = next((one for one in (*named[-1:], *chosen, settings.get("model_provider")) if isinstance(one, str)), "")
    return name if _block(settings, "model_providers", name) else ""


def _codex_settings(environ: Mapping[str, str]) -> dict[str, Any]:
    return _read(_codex_file(environ), tomllib.loads)


def _codex_file(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("CODEX_HOME") or _home(environ) / ".codex") / "config.toml"


def opencode_content(environ: Mapping[str, str]) -> dict[str, Any]:
    """Return the settings that opencode reads from its environment."""
    try:
        given = json.loads(environ.get("OPENCODE_CONFIG_CONTENT") or "{}")
    except ValueError:
        given = {}
    return given if isinstance(given, dict) else {}


def opencode_providers(command: Sequence[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return opencode's provider for each API: its own, or one with an address that the chosen model is from."""
    settings = [settings for _, settings in _opencode_settings(environ)]
    models = [model for one in settings if isinstance(model := one.get("model"), str)]
    chosen = _option(command, "-m", "--model") or next(iter(models), "")
    name = chosen.partition("/")[0]
    providers = {"openai": "openai", "anthropic": "anthropic"}
    blocks = [block for one in settings if (block := _block(one, "provider", name))]
    if name and name not in providers and any(_block(block, "options").get("baseURL") for block in blocks):
        package = next((str(block["npm"]) for block in blocks if block.get("npm")), "")
        providers["anthropic" if package.endswith("/anthropic") else "openai"] = name
    return providers


def opencode_origins(command: Sequence[str], environ: Mapping[str, str]) -> dict[str, list[Origin]]:
    """Return the addresses in the settings of opencode, the strongest first, then those in the environment."""
    variables = {"openai": OPENAI_VARIABLES[:1], "anthropic": ANTHROPIC_VARIABLES[:1]}
    found: dict[str, list[Origin]] = {}
    for api, provider in opencode_providers(command, environ).items():
        found[api] = []
        for place, settings in _opencode_settings(environ):
            address = _block(settings, "provider", provider, "options").get("baseURL")
            if isinstance(address, str) and address:
                known = _FROM_ENVIRONMENT.sub(lambda name: environ.get(name[1], ""), address)
                found[api].append(Origin(address=known, place=place))
        if provider == api:
            found[api] += from_variables(variables[api], environ)
    return found


def _opencode_settings(environ: Mapping[str, str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the settings of opencode, each with its place: those of the folder beat those of the user."""
    if content := opencode_content(environ):
        yield "OPENCODE_CONFIG_CONTENT", content
    own = Path(environ.get("XDG_CONFIG_HOME") or _home(environ) / ".config") / "opencode"
    folders = _folders_of_project()
    files = [folder / part / name for part in (".opencode", "") for folder in folders for name in _OPENCODE_FILES]
    files += [Path(environ["OPENCODE_CONFIG"])] if environ.get("OPENCODE_CONFIG") else []
    for file in [*files, *(own / name for name in (*_OPENCODE_FILES, "config.json"))]:
        if settings := _read(file, _loads_with_comments):
            yield str(file), settings


def aider_origins(command: Sequence[str], environ: Mapping[str, str]) -> Iterator[Origin]:
    """Yield the addresses that aider is given; its files beat the environment."""
    if given := _option(command, AIDER_OPTION):
        yield Origin(address=given, place=AIDER_OPTION)
    yield from _aider_files(_AIDER_VARIABLE, ".env", environ)
    yield from from_variables([_AIDER_VARIABLE], environ)
    yield from _aider_files(AIDER_OPTION.removeprefix("--"), ".aider.conf.yml", environ)
    yield from _aider_files(OPENAI_VARIABLES[1], ".env", environ)
    yield from from_variables(OPENAI_VARIABLES, environ)


def _aider_files(name: str, file_name: str, environ: Mapping[str, str]) -> Iterator[Origin]:
    setting = re.compile(rf"^\s*(?:export\s+)?{name}\s*[:=]\s*[\"']?([^\"'\s#]+)", re.MULTILINE)
    for folder in (*_folders_of_project(), _home(environ)):
        if found := setting.findall(_text(folder / file_name)):
            yield Origin(address=found[-1], place=str(folder / file_name))


def _option(command: Sequence[str], *names: str) -> str:
    """Return the value of an option on a command line; "" without it."""
    found = [word for option, word in pairwise(command) if option in names]
    return next(iter([*found, *(word.partition("=")[2] for word in command if word.partition("=")[0] in names)]), "")


def _folders_of_project() -> list[Path]:
    """Return the current folder and those around it up to the root of its repository; without one, itself alone."""
    here = Path.cwd()
    around = [here, *here.parents]
    root = next((at for at, folder in enumerate(around) if (folder / ".git").exists()), 0)
    return around[: root + 1]


def _loads_with_comments(text: str) -> Any:
    """Parse JSON in which there may be comments, and commas behind the last of several."""
    return json.loads(_NOT_JSON.sub(lambda found: found[0] if found[0].startswith('"') else "", text))


def _block(settings: Any, *names: str) -> dict[str, Any]:
    """Return a block inside of settings; {} where there is none."""
    for name in names:
        settings = settings.get(name) if isinstance(settings, dict) else None
    return settings if isinstance(settings, dict) else {}


def _read(file: Path, parse: Callable[[str], Any]) -> dict[str, Any]:
    """Return the settings in a file; {} where there are none that can be read: the agent itself will say so."""
    try:
        found = parse(_text(file))
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _text(file: Path) -> str:
    try:
        return (read_regular(file, most=_LONGEST) or b"").decode()
    except (OSError, UnicodeDecodeError):
        return ""


def _home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or os.path.expanduser("~"))  # noqa: PTH111 - where there is no such folder, "~"
