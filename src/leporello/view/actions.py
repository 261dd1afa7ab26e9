"""What the page can do beside showing, where that is allowed: fold, pin, export and delete; each is logged."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from leporello.errors import SessionError
from leporello.messages.visible import one_line
from leporello.redact import logger
from leporello.session import Session
from leporello.view.windows import newest_request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leporello.config import Config
    from leporello.store import ConversationInfo, Store

_log = logger("leporello.view")


@dataclass(frozen=True, kw_only=True)
class Actions:
    """Changes conversations in a store; `config` says how they are folded."""

    store: Store
    config: Config

    def fold(self, info: ConversationInfo, focus: str, by: str) -> str:
        """Fold a conversation now, and say what came of it."""
        request = newest_request(self.store, info, info.head)
        report = request.report if request else {}
        length = report.get("context_length")
        with Session.open(
            info.key,
            owner=info.owner,
            store=self.store,
            config=self.config,
            model=report.get("model") or None,
            provider=report.get("provider") or None,
            engine=report.get("engine") or None,
            context_length=length if isinstance(length, int) else None,
        ) as session:
            made = session.compress(focus or None)
        told = f"{made.status}: {made.tokens_before:,} to {made.tokens_after:,} tokens"
        told += f"; {made.reason}" if made.reason else ""
        _note(info, by, f"folded ({told})")
        return told

    def pin(self, info: ConversationInfo, id_: str, by: str, *, pinned: bool) -> str:
        """Let a message survive every fold, or no longer."""
        row = self.store.get([id_], owner=info.owner).get(id_)
        if row is None or row.conversation != info.key:
            raise SessionError("there is no such message in this conversation.")
        if pinned and (row.role not in ("user", "assistant") or row.message.get("tool_calls")):
            raise SessionError("only what a user or the assistant said can be pinned, not a call or its result.")
        self.store.pin(info.key, id_, owner=info.owner, pinned=pinned)
        told = f"{id_} {'stays in every window' if pinned else 'is no longer pinned'}"
        _note(info, by, told)
        return told

    def export(self, info: ConversationInfo, by: str) -> Iterator[str]:
        """Return everything that is stored of a conversation as lines of JSON, secrets too."""
        _note(info, by, f"exported, {info.messages + info.superseded:,} messages")
        return self.store.export(info.key, owner=info.owner)

    def delete(self, info: ConversationInfo, by: str) -> str:
        """Delete a conversation."""
        gone = self.store.delete(info.key, owner=info.owner, reason="deleted on the page")
        told = f"deleted, {gone.messages:,} messages"
        _note(info, by, told)
        return told


def _note(info: ConversationInfo, by: str, told: str) -> None:
    who = one_line(by) or "this machine"
    _log.warning("page, by %s: %s of %r: %s", who, one_line(info.key), one_line(info.owner), one_line(told))
