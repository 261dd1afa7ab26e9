"""What `lcm_status` tells: window, DAG, backlog, last folds, cost. What it reads does not grow with the history."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from leporello.lcm.fold import unfolded
from leporello.lcm.node_writer import REMAKE
from leporello.lcm.tools.toolbox import ANSWER
from leporello.store import FOLD
from leporello.store.branch import tops_of
from leporello.summary.blocks import block_tokens, moment

if TYPE_CHECKING:
    from leporello.store import Branch, JournalRow

_LAST_FOLDS = 5
_OF_A_FOLD = ("tokens_before", "tokens_after", "model_calls")


def status(branch: Branch, engine: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a conversation and of the engine."""
    store, conversation, owner = branch.store, branch.conversation, branch.owner
    info = store.info(conversation, owner=owner)
    window = branch.window()
    tops = [node for id_ in tops_of(window) if (node := branch.node(id_)) is not None]
    blocks = sum(map(block_tokens, tops))
    messages, tokens = unfolded(branch, window, tops)
    levels = store.levels(conversation, REMAKE, owner=owner, branch=branch.number)
    prepared = store.prepared_nodes(conversation, owner=owner)
    folds = store.journal(conversation, owner=owner, reason=FOLD, last=_LAST_FOLDS)
    cost_usd, unpriced = store.spent(conversation, (FOLD, ANSWER), owner=owner)
    return {
        "conversation": branch.conversation,
        "messages": info.messages if info else 0,
        "superseded": info.superseded if info else 0,
        "nodes": sum(level.nodes for level in levels),
        "levels": {str(level.level): level.nodes for level in levels},
        "window_tokens": engine["last_prompt_tokens"] or blocks + tokens,
        "threshold_tokens": engine["threshold_tokens"],
        "context_length": engine["context_length"],
        "threshold": engine["threshold"],
        "blocks": {"count": len(tops), "tokens": blocks},
        "unfolded": {"messages": messages, "tokens": tokens},
        "backlog": {
            "prepared": sum(not node.meta.get("replaces") for node in prepared),
            "to_improve": sum(level.noted for level in levels),
            "improved": sum(bool(node.meta.get("replaces")) for node in prepared),
        },
        "last_folds": [_told(row) for row in folds],
        "cost_usd": None if unpriced else cost_usd,
        "summariser": engine["summariser"],
    }


def _told(row: JournalRow) -> dict[str, Any]:
    """Tell when a fold was made, what it cost and what it came to."""
    known = {key: row.report[key] for key in _OF_A_FOLD if key in row.report}
    return {"time": moment(row.time), "cost_usd": row.cost_usd, **known}
