"""A lock on a conversation: one terminal talks in it at a time.

Each process has a window of its own in its memory. Two that talk in one conversation do not see each other's messages,
and what one takes back is gone from under the other.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from leporello.errors import SessionError
from leporello.store.address import MEMORY

FOLDER: Final = "locks"
_SECONDS: Final = 0.2  # long enough to try again when another terminal removes the file meanwhile


class ChatLock:
    """At most one conversation of a store, in which no other terminal can talk meanwhile.

    It is a locked file in the home folder; when a process ends in any way, the system releases its locks.
    """

    def __init__(self, home: Path, store_url: str) -> None:
        self._folder = home / FOLDER
        self._store_url = store_url
        self._held: FileLock | None = None

    def acquire(self, session_id: str) -> None:
        """Lock a conversation and release the one before; a `SessionError` says that another terminal has it."""
        file = self._file(session_id)
        if self._store_url == MEMORY or (self._held and self._held.lock_file == str(file)):
            return
        lock = FileLock(file, timeout=_SECONDS, mode=0o600, thread_local=False)
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock.acquire()
            file.write_text(str(os.getpid()), encoding="ascii")
        except Timeout as error:
            raise SessionError(
                f"the conversation {session_id!r} is open in another terminal{_holder(file)}. "
                "Leave it there first, or begin another one."
            ) from error
        except OSError:  # a home that cannot be written to: no reason not to talk
            return
        self.release()
        self._held = lock

    def release(self) -> None:
        """Release the conversation that is locked, if any."""
        held, self._held = self._held, None
        if held is not None:
            Path(held.lock_file).unlink(missing_ok=True)
            held.release()

    def _file(self, session_id: str) -> Path:
        key = f"{self._store_url}\0{session_id}".encode("utf-8", "surrogatepass")
        return self._folder / hashlib.sha256(key).hexdigest()[:32]


def _holder(file: Path) -> str:
    """Say which process has a file locked."""
    with suppress(OSError):  # released just now
        if number := file.read_text(encoding="ascii"):
            return f" (process {number})"
    return ""
