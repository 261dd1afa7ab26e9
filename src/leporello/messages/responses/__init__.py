"""OpenAI's Responses API: items to messages and back, what is valid among them, and how a list is made valid."""

from leporello.messages.responses.convert import (
    answer_of,
    compaction_of,
    from_responses,
    items_of,
    messages_of,
    reference_of,
    to_responses,
)
from leporello.messages.responses.items import Item, kind_of
from leporello.messages.responses.rules import ItemViolation, item_violations
from leporello.messages.responses.settle import settled
from leporello.messages.responses.tools import tools_to_responses

__all__ = [
    "Item",
    "ItemViolation",
    "answer_of",
    "compaction_of",
    "from_responses",
    "item_violations",
    "items_of",
    "kind_of",
    "messages_of",
    "reference_of",
    "settled",
    "to_responses",
    "tools_to_responses",
]
