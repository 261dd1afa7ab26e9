"""The tools as the model sees them: JSON schemas in OpenAI's bare format, which calls are checked against too."""

from __future__ import annotations

from typing import Any

from leporello.lcm.artifacts import KINDS


def _tool(name: str, description: str, **properties: dict[str, Any]) -> dict[str, Any]:
    """Return a tool; what has to be filled in is required."""
    required = [key for key, rules in properties.items() if "minLength" in rules]
    parameters = {"type": "object", "properties": properties, "required": required}
    return {"name": name, "description": description, "parameters": parameters}


def _text(meaning: str, **rules: Any) -> dict[str, Any]:
    return {"type": "string", "description": meaning, **rules}


def _number(meaning: str, default: int, least: int, most: int) -> dict[str, Any]:
    return {"type": "integer", "description": meaning, "minimum": least, "maximum": most, "default": default}


_CURSOR = _text("Where an earlier answer ended: its `cursor`.")

SCHEMAS = (
    _tool(
        "lcm_grep",
        "Search the context knowledge graph: every message of this conversation, also those that are "
        "folded out of the window. Finds words, identifiers, paths, numbers, in any language. Each hit names the "
        "message and the node that covers it; unfold either with lcm_expand.",
        query=_text("What to look for; quote an exact phrase.", minLength=1),
        limit=_number("How many results to return.", 10, 1, 200),
        cursor=_CURSOR,
        sort=_text("Best hits first, or newest first.", enum=["relevance", "recency"], default="relevance"),
        role=_text("Only messages of this role.", enum=["user", "assistant", "tool", "system"]),
        tool=_text("Only calls and results of this tool."),
        since=_text("Only messages from this time on (ISO-8601)."),
        until=_text("Only messages up to this time (ISO-8601)."),
        conversation=_text("Another conversation of yours; `*` for all, if allowed."),
        regex={
            "type": "boolean",
            "description": "Take the query as a regular expression; slower.",
            "default": False,
        },
    ),
    _tool(
        "lcm_describe",
        "Describe a node (n12), a message (m34) or a file (file:src/app.py): what it covers, its children, "
        "time span and size, and how to go on. For a file: everything that happened to it.",
        id=_text("A node id, a message id, or file:PATH.", minLength=1),
    ),
    _tool(
        "lcm_expand",
        "Return the original messages under a node, or one message, word for word, within a token budget. "
        "When not everything fits, the answer says so and its cursor continues.",
        id=_text("A node id (n12) or a message id (m34).", minLength=1),
        max_tokens=_number("The budget.", 4_000, 100, 100_000),
        cursor=_CURSOR,
    ),
    _tool(
        "lcm_expand_query",
        "Answer a question from the folded history, citing message ids. Use it when you need a fact from "
        "earlier turns and do not know where it stands.",
        question=_text("The question.", minLength=1),
        max_tokens=_number("The budget.", 2_000, 100, 20_000),
    ),
    _tool(
        "lcm_artifacts",
        "List what this conversation did, exactly: files read and written, commands and their outcome, "
        "errors, decisions, values; newest first, each with the message where it happened.",
        kind=_text("Only this kind.", enum=list(KINDS)),
        query=_text("Only those that contain this text."),
        limit=_number("How many to return.", 30, 1, 200),
        cursor=_CURSOR,
    ),
    _tool(
        "lcm_status",
        "Tell the state of the context: stored messages, nodes, window, backlog, last folds, cost.",
    ),
)
