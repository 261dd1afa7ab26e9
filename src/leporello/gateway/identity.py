"""Reads the name of a conversation from the headers of a request.

Agents send the id of their conversation with every request. A thread id comes before that of its session, a sub-agent
has a conversation of its own, and ids that several conversations share (a parent's id, `prompt_cache_key`) are not
used. A side request, as for a title, has the same id; its history differs, so it becomes another branch. Codex gives
each title a thread of its own, which is no conversation: they are all in one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from leporello.gateway.errors import Refused

if TYPE_CHECKING:
    from collections.abc import Mapping

SESSION: Final = "x-leporello-session"
"""Our own header, in requests and in answers."""

AGENT_HEADERS: Final[tuple[tuple[str, tuple[str, ...]], ...]] = (
    ("codex", ("thread-id",)),
    ("claude-code", ("x-claude-code-session-id", "x-claude-code-agent-id")),
    ("session", ("x-session-id",)),  # opencode
    ("codex", ("conversation_id",)),  # before 2026
    ("codex", ("session_id",)),
)
"""The headers of each agent, in order of preference: the first header is the name, the others are appended."""

_CODEX_TURN: Final = "x-codex-turn-metadata"
_TITLE: Final = re.compile(r'"thread_source"\s*:\s*"thread_title"')
CODEX_TITLES: Final = "codex:titles"

_NAME: Final = re.compile(r"[A-Za-z0-9._:@-]{1,128}")


@dataclass(frozen=True, kw_only=True)
class Identity:
    """The name of a conversation, "" for none; `by_agent` if it comes from an agent's own header.

    `aside` tells that the agent says itself that it asks apart from its work.
    """

    name: str = ""
    by_agent: bool = False
    aside: bool = False


def identity_of(headers: Mapping[str, str]) -> Identity:
    """Return the name in the headers of a request; Refused when our own header has an invalid one."""
    if SESSION in headers:
        return Identity(name=checked_name(headers[SESSION]))
    if _TITLE.search(headers.get(_CODEX_TURN, "")):
        return Identity(name=CODEX_TITLES, by_agent=True, aside=True)
    for agent, names in AGENT_HEADERS:
        if headers.get(names[0]):
            name = ":".join([agent, *(headers[one] for one in names if headers.get(one))])
            return Identity(name=name, by_agent=True) if _NAME.fullmatch(name) else Identity()
    return Identity()


def checked_name(name: str) -> str:
    """Return the name of a conversation; Refused when it is invalid."""
    if not _NAME.fullmatch(name):
        raise Refused(400, "the name of a conversation has 1 to 128 letters, digits and . _ : @ -")
    return name
