"""What ours is measured beside; what is not there is left out.

Programs are in environments of their own: `python -m venv .venv/litellm && .venv/litellm/bin/pip install
'litellm[proxy]'`. A plugin of another project is a checkout, such as one of hermes-lcm in `.venv/hermes-lcm`.
"""

from __future__ import annotations

from importlib.metadata import distributions
from pathlib import Path

from leporello.config.engines import MANIFEST
from leporello.plugins.manifest import read_manifest

OFFLINE = {
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_TELEMETRY": "False",
}
"""The environment in which they ask for nothing from elsewhere."""

_VENV = Path(__file__).parent.parent / ".venv"


def python_of(peer: str) -> Path | None:
    """Return the interpreter of a peer's environment; None when it is not installed."""
    python = _VENV / peer / "bin" / "python"
    return python if python.exists() else None


def version_of(peer: str) -> str | None:
    """Return which version of a peer is installed, in its own environment or in ours."""
    own = [str(path) for path in (_VENV / peer).glob("lib/python*/site-packages")]
    found = [*distributions(name=peer, path=own), *distributions(name=peer)]
    if found:
        return found[0].version
    folder = plugin_folder(peer)
    return read_manifest(folder).version if folder else None


def plugin_folder(peer: str) -> Path | None:
    """Return the folder of a plugin for Hermes Agent; None when it is not there."""
    folder = _VENV / peer
    return folder if (folder / MANIFEST).exists() else None
