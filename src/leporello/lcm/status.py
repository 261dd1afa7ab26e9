"""What `lcm_status` tells: window, DAG, backlog, last folds, cost."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from leporello.lcm.compaction import FOLD
from leporello.lcm.dag import Coverage, roots
from leporello.lcm.tools.toolbox import ANSWER
from leporello.lcm.window import block_tokens, moment
from leporello.lcm.writing import REMAKE

if TYPE_CHECKING:
    from leporello.lcm.keeping import Keeping

_LAST_FOLDS = 5


def status(keeping: Keeping, engine: dict[str, Any]) -> dict[str, Any]:
    """Return the state of a conversation and of the engine."""
    info = keeping.store.info(keeping.conversation, owner=keeping.owner)
    window = keeping.window()
    published, prepared = keeping.nodes(window)
    waiting = keeping.uncovered(window, published, Coverage(published))
    blocks = sum(map(block_tokens, roots(published)))
    journal = keeping.store.requests(keeping.conversation, owner=keeping.owner)
    folds = [row for row in journal if row.reason == FOLD]
    answers = [row for row in journal if row.reason == ANSWER]
    return {
        "conversation": keeping.conversation,
        "messages": info.messages if info else 0,
        "superseded": info.superseded if info else 0,
        "nodes": len(published),
        "levels": dict(sorted(Counter(str(node.level) for node in published).items())),
        "window_tokens": engine["last_prompt_tokens"] or blocks + sum(row.tokens for row in waiting),
        "threshold_tokens": engine["threshold_tokens"],
        "context_length": engine["context_length"],
        "threshold": engine["threshold"],
        "blocks": {"count": len(roots(published)), "tokens": blocks},
        "unfolded": {"messages": len(waiting), "tokens": sum(row.tokens for row in waiting)},
        "backlog": {
            "prepared": sum(not node.meta.get("replaces") for node in prepared),
            "to_improve": sum(bool(node.meta.get(REMAKE)) for node in published),
            "improved": sum(bool(node.meta.get("replaces")) for node in prepared),
        },
        "last_folds": [
            {"time": moment(row.time), "cost_usd": row.cost_usd, **row.report} for row in folds[-_LAST_FOLDS:]
        ],
        "cost_usd": _sum([row.cost_usd for row in (*folds, *answers)]),
        "summariser": engine["summariser"],
    }


def _sum(costs: list[float | None]) -> float | None:
    """Add up what folds and answers cost; None when the price of one is not known."""
    known = [cost for cost in costs if cost is not None]
    return sum(known) if len(known) == len(costs) else None
