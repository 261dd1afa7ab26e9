"""What a conversation was held with (model, address, engine, folder), so that it goes on with it.

It is noted in the home folder, not in the store: a conversation that is imported or shared must not decide where the
user's key is sent, or in which folder tools work.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from pathlib import Path

FOLDER: Final = "chats"


@dataclass(frozen=True, kw_only=True)
class KeptSettings:
    """The settings of one conversation; "" is left to the configuration."""

    model: str = ""
    provider: str = ""
    base_url: str = ""
    engine: str = ""
    workspace: str = ""

    def save(self, home: Path, store_url: str, session_id: str) -> None:
        """Note them, without an address that holds a password. A home that cannot be written to stays as it is."""
        kept = asdict(self)
        if "@" in urlsplit(self.base_url).netloc:
            kept |= {"base_url": "", "provider": "", "model": ""}
        file = _file(home, store_url, session_id)
        with suppress(OSError):
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
                json.dump(kept, out)

    @classmethod
    def load(cls, home: Path, store_url: str, session_id: str) -> KeptSettings:
        """Return those of a conversation, or empty ones."""
        try:
            noted = json.loads(_file(home, store_url, session_id).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return cls()
        known = {field.name for field in fields(cls)}
        texts = noted.items() if isinstance(noted, dict) else ()
        return cls(**{name: value for name, value in texts if name in known and isinstance(value, str)})


def forget(home: Path, store_url: str, session_id: str) -> None:
    """Remove what was noted about a conversation."""
    with suppress(OSError):
        _file(home, store_url, session_id).unlink(missing_ok=True)


def _file(home: Path, store_url: str, session_id: str) -> Path:
    key = f"{store_url}\0{session_id}".encode("utf-8", "surrogatepass")
    return home / FOLDER / f"{hashlib.sha256(key).hexdigest()[:32]}.json"
