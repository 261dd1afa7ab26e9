"""The processes of `leporello worker` beside a gateway, for one machine: started with it, again when one dies."""

from __future__ import annotations

import os
import subprocess
import threading
from typing import TYPE_CHECKING, Final

from leporello.redact import logger

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

STOP_SECONDS: Final = 45.0
"""How long a process may take to finish what it has begun; then it is killed."""

_AGAIN_SECONDS: Final = 1.0
_log = logger("leporello.gateway")


class JobWorkers:
    """A number of processes that run a command, as long as this is entered."""

    def __init__(self, count: int, command: Sequence[str]) -> None:
        self._command = list(command)
        self._ending = threading.Event()
        self._threads = [
            threading.Thread(target=self._keep_running, name="leporello-workers", daemon=True) for _ in range(count)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End them after what they have begun."""
        self._ending.set()
        for thread in self._threads:
            thread.join()

    def _keep_running(self) -> None:
        while not self._ending.is_set():
            # The pipe to its standard input closes with this process, however that ends, and tells it to end too.
            with subprocess.Popen(  # noqa: S603 - this program itself
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                env=dict(os.environ),
                start_new_session=True,  # a terminal would tell all processes to stop; the gateway does
            ) as process:
                ended = threading.Thread(target=self._end_with_us, args=[process], daemon=True)
                ended.start()
                status = process.wait()
            if not self._ending.is_set():
                _log.warning("a worker ended with the status %s; another is started", status)
                self._ending.wait(_AGAIN_SECONDS)

    def _end_with_us(self, process: subprocess.Popen[bytes]) -> None:
        self._ending.wait()
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                _log.warning("a worker did not end, and was killed")
                process.kill()
