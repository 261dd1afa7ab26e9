"""An open store, asked by a command: where an id stands, and what the model's own tools answer about it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from leporello.cli.store_options import NothingFoundError, on_store, owners
from leporello.config import Config
from leporello.config.model import Lcm
from leporello.errors import QueryError, StoreError
from leporello.lcm import LCMEngine
from leporello.lcm.artifacts import ArtifactTrail
from leporello.store.sqlite.connection import refuse_special

if TYPE_CHECKING:
    from pathlib import Path

    from leporello.store import Store

FILE: Final = "file:"


def ask(store: Store, tool: str, arguments: dict[str, Any], *, conversation: str, owner: str) -> dict[str, Any]:
    """Call a tool of the lossless engine on a stored conversation and return its answer; what is wrong is raised."""
    settings = Lcm(scope="owner", redact=Config.load().lcm.redact)
    engine = LCMEngine(config=settings, store=store)
    engine.on_session_start(conversation, owner=owner)
    answer: dict[str, Any] = json.loads(engine.handle_tool_call(tool, arguments))
    if "error" in answer:
        raise QueryError(answer["error"])
    return answer


def schema_of(file: Path) -> int:
    """Return the number of a SQLite store's schema; reading it changes nothing."""
    refuse_special(file)
    try:
        with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            return int(connection.execute("PRAGMA user_version").fetchone()[0])
    except sqlite3.Error as error:
        raise StoreError(f"it cannot be read as a SQLite database ({error}).", place=str(file)) from error


def home_of(store: Store, name: str, owner: str | None) -> tuple[str, str]:
    """Return conversation and owner of a node, a message or a file; of a file, the youngest that knows it."""
    for who in owners(store, owner):
        found = _home(store, name, who)
        if found is not None:
            return found, who
    known = "a file that no stored conversation touched" if name.startswith(FILE) else "not there"
    raise NothingFoundError(
        f"{name}: {known}. An id is a node such as n12, a message such as m34, or file:src/app.py; "
        f"`{on_store('leporello grep WORDS')}` finds ids."
    )


def _home(store: Store, name: str, owner: str) -> str | None:
    if name.startswith(FILE):
        return _knows_file(store, name.removeprefix(FILE), owner)
    if stored := store.get([name], owner=owner).get(name):
        return stored.conversation
    return store.conversation_of_node(name, owner=owner)


def _knows_file(store: Store, path: str, owner: str) -> str | None:
    """Return the youngest conversation that touched a file; what a trail still lacks is gathered first."""
    for info in store.conversations(owner=owner) if path else ():
        ArtifactTrail(lambda: store, info.key, owner).catch_up()
        if store.artifacts(info.key, owner=owner, kind="file", query=path, limit=1):
            return info.key
    return None
