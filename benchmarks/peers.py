"""Programs that ours are measured beside, each in an environment of its own; one that is not installed is left out.

python -m venv .venv/litellm && .venv/litellm/bin/pip install 'litellm[proxy]'
"""

from __future__ import annotations

from importlib.metadata import distributions
from pathlib import Path

OFFLINE = {"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_TELEMETRY": "False"}
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
    return found[0].version if found else None
