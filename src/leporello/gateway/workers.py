"""The processes of a gateway: each key has one of its own, as long as there are enough.

Python runs one thread at a time, so the requests of one key slow down the others in its process. A process is started
with the first request of a key, and serves it as long as the gateway runs.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import aiohttp

from leporello.gateway.errors import Refused
from leporello.redact import logger

if TYPE_CHECKING:
    from collections.abc import Sequence

START_SECONDS: Final = 60.0
STOP_SECONDS: Final = 45.0
"""How long a process may take to finish its running turns; then it is killed."""

_log = logger("leporello.gateway")


class WorkerProcess:
    """One process on a port of this machine; started when it is needed, and again when it died.

    It looks at the keys of requests itself, so that its port allows no more than the gateway's.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._process: asyncio.subprocess.Process | None = None
        self._starting = asyncio.Lock()
        self._client: aiohttp.ClientSession | None = None
        self.address: str = ""
        """Where it serves, once it runs."""

    @property
    def is_running(self) -> bool:
        """Whether the process is running."""
        return self._process is not None and self._process.returncode is None

    async def client(self) -> aiohttp.ClientSession:
        """Return the HTTP client for the process, which is started if it is not running."""
        async with self._starting:
            if not self.is_running:
                await self._start()
        assert self._client is not None  # noqa: S101 - made with the process
        return self._client

    async def stop(self) -> None:
        """Stop the process after its running turns."""
        if self._client is not None:
            await self._client.close()
        if self._process is None or self._process.returncode is not None:
            return
        self._process.terminate()
        try:
            await asyncio.wait_for(self._process.wait(), STOP_SECONDS)
        except TimeoutError:
            _log.warning("a process of the gateway did not end, and was killed")
            self._process.kill()
            await self._process.wait()

    async def _start(self) -> None:
        if self._process is not None:
            _log.warning(
                "a process of the gateway ended with the status %s; another is started", self._process.returncode
            )
        # The pipe to its standard input closes with this process, however that ends, and tells it to end too.
        self._process = process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=dict(os.environ),
            start_new_session=True,  # a terminal would tell all processes to stop; the first one does
        )
        assert process.stdout is not None  # noqa: S101 - asked for
        try:
            ready = await asyncio.wait_for(process.stdout.readline(), START_SECONDS)
        except TimeoutError:
            ready = b""
        if not ready:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            raise Refused(503, "the gateway cannot start a process for this key; its log says why.", retry_after=5)
        if self._client is not None:
            await self._client.close()
        self.address = ready.decode().strip()
        self._client = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            timeout=aiohttp.ClientTimeout(),  # the process has limits of its own
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=["accept", "accept-encoding", "content-type", "user-agent"],
            auto_decompress=False,
        )


class Workers:
    """All processes of a gateway, and the process of each key."""

    def __init__(self, most: int, command: Sequence[str]) -> None:
        self._most = most
        self._command = command
        self._workers: list[WorkerProcess] = []
        self._of: dict[str, int] = {}

    @property
    def running(self) -> list[WorkerProcess]:
        """The processes that were started."""
        return [worker for worker in self._workers if worker.is_running]

    def of(self, owner: str) -> WorkerProcess:
        """Return the process of a key: one of its own, or the one with the fewest keys when there are no more."""
        if owner not in self._of:
            if len(self._workers) < self._most:
                purges = [] if self._workers else ["--purges"]
                self._workers.append(WorkerProcess([*self._command, "--worker", *purges]))
            keys = Counter(self._of.values())
            self._of[owner] = min(range(len(self._workers)), key=lambda number: keys[number])
        return self._workers[self._of[owner]]

    async def stop(self) -> None:
        """End all processes."""
        await asyncio.gather(*(worker.stop() for worker in self._workers))
