"""What a command sees of our environment: what programs need, and no secret."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leporello.config.keys import VARIABLES
from leporello.redact import redact
from leporello.redact.names import kind_of_name

if TYPE_CHECKING:
    from collections.abc import Mapping

PASSED_ON: Final = frozenset({
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "TEMP", "TMP",
    "VIRTUAL_ENV", "CONDA_PREFIX", "CONDA_DEFAULT_ENV", "PYTHONPATH", "PYENV_ROOT", "NODE_PATH", "NVM_DIR",
    "GOPATH", "GOROOT", "CARGO_HOME", "RUSTUP_HOME", "JAVA_HOME", "GEM_HOME", "GEM_PATH", "LD_LIBRARY_PATH",
    "DYLD_LIBRARY_PATH", "PKG_CONFIG_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME",
    "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "CC", "CXX", "MAKEFLAGS",
})  # fmt: skip
"""The variables that are handed on, together with those that begin with LC_. Everything else stays with us: a list of
what may pass is complete, a list of what is secret never is."""

_QUIET: Final = {
    "TERM": "dumb",
    "NO_COLOR": "1",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "DEBIAN_FRONTEND": "noninteractive",
}
"""Programs shall neither colour, page nor ask: no person sits at this terminal."""

_SHORTEST_SECRET: Final = 8
_SET_DUMPABLE: Final = 4
_ENVIRONMENT_START, _ENVIRONMENT_END = 47, 48  # places in /proc/self/stat, behind the program's name


def command_environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment for commands."""
    handed = {name: value for name, value in environ.items() if name in PASSED_ON or name.startswith("LC_")}
    return {name: value for name, value in handed.items() if redact(value) == value} | _QUIET


def own_secrets(environ: Mapping[str, str] = os.environ) -> frozenset[str]:
    """Return the secrets in our environment: the keys of providers, and whatever is called like a secret."""
    named = set(VARIABLES.values())
    return frozenset(
        value.strip()
        for name, value in environ.items()
        if (name in named or kind_of_name(name)) and len(value.strip()) >= _SHORTEST_SECRET
    )


def without_secrets(text: str, secrets: frozenset[str]) -> str:
    """Return a text with our own secrets taken out, should a command have got hold of one."""
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, "[key]")
    return text


def deny_inspection() -> None:
    """Keep other processes of this user from reading our memory and our first environment, where the system can.

    Linux can, but for processes of root.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_DUMPABLE, 0, 0, 0, 0)


def blank_environment(environ: Mapping[str, str] = os.environ) -> None:
    """Overwrite our secrets in the environment that the system shows of this process; `os.environ` keeps them.

    Programs that are started without an environment of their own do not get them either.
    """
    if sys.platform != "linux":
        return
    secrets = {secret.encode("utf-8", "surrogateescape") for secret in own_secrets(environ)}
    numbers = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
    start, end = int(numbers[_ENVIRONMENT_START]), int(numbers[_ENVIRONMENT_END])
    at = start
    for entry in ctypes.string_at(start, end - start).split(b"\0"):
        name, _, value = entry.partition(b"=")
        if value.strip() in secrets:
            ctypes.memset(at + len(name) + 1, 0, len(value))
        at += len(entry) + 1
