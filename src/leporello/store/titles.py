"""What a conversation is called where people read it."""

from __future__ import annotations

import re
from itertools import islice
from typing import TYPE_CHECKING, Final

from leporello.messages import text_of
from leporello.messages.visible import visible
from leporello.redact import redact_part

if TYPE_CHECKING:
    from leporello.store.protocol import TranscriptStore
    from leporello.store.records import ConversationInfo

LENGTH: Final = 90
_LOOKED_AT: Final = 8  # messages at the beginning, among which the first request is looked for
_CHARACTERS: Final = 20_000  # of a message
_LONGEST_WORD: Final = 24
_TAGGED: Final = re.compile(r"\s*<(?P<tag>[A-Za-z][\w.-]{0,60})(?:\s[^<>]*)?>.*?</(?P=tag)>\s*", re.DOTALL)


def title_of(store: TranscriptStore, info: ConversationInfo, length: int = LENGTH) -> str:
    """Return the title of a conversation: the one it was given, else its first request, shortened; else its name.

    It is one line without secrets. What agents put before a request between tags is not the request.
    """
    if info.title.strip():
        return shortened(info.title, length)
    beginning = islice(store.messages(info.key, owner=info.owner), _LOOKED_AT)
    texts = (_request(text_of(row.message)[:_CHARACTERS]) for row in beginning if row.role == "user")
    first = next(filter(None, texts), "")
    return shortened(first or info.key, length)


def shortened(text: str, length: int) -> str:
    """Return the beginning of a text on one line, without secrets, cut between words if it can be."""
    head = text[:_CHARACTERS]
    looked_at = min(len(head), 4 * length)
    words = " ".join(visible(redact_part(head, 0, looked_at)).split())
    if len(words) <= length and looked_at == len(text):
        return words
    cut = words[: length - 1]
    last = cut.rfind(" ")
    return (cut[:last] if last > max(0, length - _LONGEST_WORD) else cut).rstrip() + "…"


def _request(text: str) -> str:
    """Return a text without the tagged blocks at its beginning."""
    at = 0
    while found := _TAGGED.match(text, at):
        at = found.end()
    return text[at:].strip()
