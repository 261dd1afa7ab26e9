"""Who talks in a conversation: one terminal at a time.

Each process has a window of its own in its memory. Two that talk in one conversation do not see each other's messages,
and what one takes back is gone from under the other.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from typing import TYPE_CHECKING, Final

from leporello.errors import SessionError
from leporello.store.address import MEMORY

if TYPE_CHECKING:
    from pathlib import Path

FOLDER: Final = "locks"
_OPEN: Final = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC


class Claim:
    """At most one conversation of a store, where nobody else can talk meanwhile.

    It is a locked file in the home folder: when a process ends, however that comes, the system takes its locks away.
    """

    def __init__(self, home: Path, store_url: str) -> None:
        self._folder = home / FOLDER
        self._store_url = store_url
        self._held: tuple[Path, int] | None = None

    def take(self, session_id: str) -> None:
        """Claim a conversation and give back the one before; a `SessionError` says that another terminal has it."""
        file = self._file(session_id)
        if self._store_url == MEMORY or (self._held and self._held[0] == file):
            return
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = _locked(file)
        except BlockingIOError as error:
            raise SessionError(
                f"the conversation {session_id!r} is open in another terminal{_holder(file)}. "
                "Leave it there first, or begin another one."
            ) from error
        except OSError:  # a home that cannot be written to, a file system without locks: no reason not to talk
            return
        os.truncate(descriptor, 0)
        os.write(descriptor, str(os.getpid()).encode())
        self.give_back()
        self._held = file, descriptor

    def give_back(self) -> None:
        """Let others have it."""
        held, self._held = self._held, None
        if held is not None:
            held[0].unlink(missing_ok=True)
            os.close(held[1])

    def _file(self, session_id: str) -> Path:
        key = f"{self._store_url}\0{session_id}".encode("utf-8", "surrogatepass")
        return self._folder / hashlib.sha256(key).hexdigest()[:32]


def _locked(file: Path) -> int:
    """Open a file and lock it; once more if whoever had it removed it in between."""
    while True:
        descriptor = os.open(file, _OPEN, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_nlink:
                return descriptor
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _holder(file: Path) -> str:
    """Say which process has a file locked."""
    try:
        number = file.read_text(encoding="ascii")
    except OSError:  # given back just now
        return ""
    return f" (process {number})" if number else ""
