"""What is remembered: every message, the summaries over them, what the model saw, and what is left to do."""

from leporello.store.address import open_store
from leporello.store.protocol import (
    Artifact,
    Candidate,
    Candidates,
    ConversationInfo,
    Cover,
    Deletion,
    Finding,
    Ingested,
    Job,
    Node,
    PurgeStatus,
    Request,
    SearchFilter,
    Store,
    Stored,
    Window,
    WindowItem,
)

__all__ = [
    "Artifact",
    "Candidate",
    "Candidates",
    "ConversationInfo",
    "Cover",
    "Deletion",
    "Finding",
    "Ingested",
    "Job",
    "Node",
    "PurgeStatus",
    "Request",
    "SearchFilter",
    "Store",
    "Stored",
    "Window",
    "WindowItem",
    "open_store",
]
