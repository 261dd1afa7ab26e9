"""A stored conversation in the formats of other programs."""

from __future__ import annotations

import json
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leporello.errors import StoreError
from leporello.messages import leading_systems
from leporello.session.saved_branch import load
from leporello.store import Branch
from leporello.transcripts.write import (
    anthropic_conversation,
    claude_code_folder,
    claude_code_log,
    claude_code_session,
    openai_conversation,
)

if TYPE_CHECKING:
    from leporello.messages import Message
    from leporello.store import ConversationInfo, Store

FORMATS: Final = ("openai", "anthropic", "claude-code")


@dataclass(frozen=True, kw_only=True)
class ConversationFile:
    """The lines of an export, how many messages they hold, where they belong, and what the user does next."""

    lines: list[str]
    messages: int
    place: Path | None = None
    next_step: str = ""


def written(store: Store, info: ConversationInfo, form: str, *, window: bool, project: Path | None) -> ConversationFile:
    """Return a conversation in a format: every message on the path of its head, or its folded window."""
    messages = _window(store, info) if window else _messages(store, info)
    count = len(messages) - leading_systems(messages)
    if form != "claude-code":
        whole = openai_conversation(messages) if form == "openai" else anthropic_conversation(messages)
        return ConversationFile(lines=[json.dumps(whole)], messages=count)
    folder = (project or Path()).resolve()
    session = claude_code_session(info.key)
    noted = info.meta.get("imported")
    model = str(noted.get("model") or "") if isinstance(noted, dict) else ""
    place = _log_of(folder, session) if project else None
    return ConversationFile(
        lines=list(claude_code_log(messages, session, str(folder), model)),
        messages=count,
        place=place,
        next_step=f"to go on: cd {shlex.quote(str(folder))} && claude --resume {session}" if place else "",
    )


def _window(store: Store, info: ConversationInfo) -> list[Message]:
    saved = load(Branch(store, info.key, info.owner, info.head))
    return [entry.message for entry in (*saved.entries, *saved.later)]


def _messages(store: Store, info: ConversationInfo) -> list[Message]:
    """Return the messages on the path of the head, each with its time."""
    rows = list(store.messages(info.key, owner=info.owner, system=True))
    rows.sort(key=lambda row: not row.system)
    return [row.message if "timestamp" in row.message else {**row.message, "timestamp": row.time} for row in rows]


def _log_of(project: Path, session: str) -> Path:
    """Return the file in which Claude Code looks for a session, in a folder that is made where it is missing."""
    home = Path(os.environ.get("CLAUDE_CONFIG_DIR") or Path.home() / ".claude")
    folder = home / "projects" / claude_code_folder(str(project))
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StoreError(f"the folder cannot be made ({error.strerror}).", place=str(folder)) from error
    return folder / f"{session}.jsonl"
