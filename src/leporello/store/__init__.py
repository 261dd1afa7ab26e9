"""What is remembered: every message, the summaries over them, what the model saw, and what is left to do."""

from leporello.store.address import open_store
from leporello.store.branch import Branch, Proposal
from leporello.store.protocol import Store
from leporello.store.records import (
    FOLD,
    ROOT,
    Artifact,
    BranchInfo,
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
    Stored,
    Window,
    WindowItem,
)

__all__ = [
    "FOLD",
    "ROOT",
    "Artifact",
    "Branch",
    "BranchInfo",
    "Candidate",
    "Candidates",
    "ConversationInfo",
    "Cover",
    "Deletion",
    "Finding",
    "Ingested",
    "Job",
    "Node",
    "Proposal",
    "PurgeStatus",
    "Request",
    "SearchFilter",
    "Store",
    "Stored",
    "Window",
    "WindowItem",
    "open_store",
]
