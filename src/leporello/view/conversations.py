"""The list of conversations and what a search found in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from leporello.errors import QueryError
from leporello.messages.visible import one_line
from leporello.store import FOLD
from leporello.store.titles import title_of
from leporello.view.text import marked
from leporello.view.windows import newest_request

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello.store import ConversationInfo, Hit, Store

PAGE: Final = 25
REASONS: Final = ("request", "fold", "lcm_expand_query")
"""Rows of the journal that may have a price."""
HITS: Final = 20
STATES: Final[dict[str, Callable[[ConversationInfo], bool]]] = {
    "": lambda _: True,
    "open": lambda info: not info.ended,
    "ended": lambda info: bool(info.ended),
    "branched": lambda info: info.branches > 1,
}
"""The filters of the list."""
_MOST_OWNERS: Final = 50


@dataclass(frozen=True, kw_only=True)
class ListedConversation:
    """A conversation in the list."""

    info: ConversationInfo
    title: str
    cost_usd: float | None
    engine: str
    model: str
    folded: bool

    @property
    def state(self) -> str:
        """Whether it goes on, was ended, and whether it is folded."""
        return ("ended" if self.info.ended else "open") + (", folded" if self.folded else "")


@dataclass(frozen=True, kw_only=True)
class ListPage:
    """A page of the list; `number` counts from 1, `filtered` tells that a filter left some out."""

    conversations: list[ListedConversation]
    number: int
    pages: int
    total: int


def listed(store: Store, owner: str | None, *, number: int = 1, state: str = "") -> ListPage:
    """Return a page of conversations, the newest first; `state` is one of STATES."""
    infos = [info for info in store.conversations(owner=owner) if STATES[state](info)]
    pages = max(1, -(-len(infos) // PAGE))
    number = min(max(1, number), pages)
    shown = infos[(number - 1) * PAGE : number * PAGE]
    return ListPage(
        conversations=[_listed(store, info) for info in shown], number=number, pages=pages, total=len(infos)
    )


def cost_of(store: Store, info: ConversationInfo) -> float | None:
    """Return what the conversation cost as far as prices are known; None when none is."""
    cost, _ = store.spent(info.key, REASONS, owner=info.owner)
    return cost or None


def _listed(store: Store, info: ConversationInfo) -> ListedConversation:
    request = newest_request(store, info)
    report = request.report if request else {}
    return ListedConversation(
        info=info,
        title=title_of(store, info),
        cost_usd=cost_of(store, info),
        engine=one_line(str(report.get("engine") or ("lcm" if info.nodes else ""))),
        model=one_line(str(report.get("model") or "")),
        folded=bool(info.nodes or store.journal(info.key, owner=info.owner, reason=FOLD, last=1)),
    )


# search


@dataclass(frozen=True, kw_only=True)
class FoundMessage:
    """A hit, with the pieces of its text that the query asks for marked."""

    hit: Hit
    owner: str
    title: str
    pieces: list[tuple[str, bool]]


@dataclass(frozen=True, kw_only=True)
class SearchPage:
    """A page of hits; `problem` says what is wrong with the query."""

    found: list[FoundMessage]
    cursor: str | None = None
    complete: bool = True
    problem: str = ""


def search(
    store: Store, query: str, owner: str | None, *, conversation: str | None = None, cursor: str | None = None
) -> SearchPage:
    """Search the conversations that a viewer may see; an empty query finds nothing."""
    if not query:
        return SearchPage(found=[])
    owners = [owner] if owner is not None else _owners(store)
    found: list[FoundMessage] = []
    titles: dict[tuple[str, str], str] = {}
    next_cursor, complete = None, True
    try:
        for one in owners:
            result = store.search(query, owner=one, conversation=conversation, limit=HITS, cursor=cursor)
            complete = complete and result.complete
            next_cursor = result.cursor if len(owners) == 1 else None
            for hit in result.hits:
                key = (one, hit.conversation)
                if key not in titles:
                    info = store.info(hit.conversation, owner=one)
                    titles[key] = title_of(store, info) if info else one_line(hit.conversation)
                pieces = marked(one_line(hit.snippet), query)
                found.append(FoundMessage(hit=hit, owner=one, title=titles[key], pieces=pieces))
    except QueryError as error:
        return SearchPage(found=[], problem=str(error))
    if len(owners) > 1:
        found = sorted(found, key=lambda one: -one.hit.score)[:HITS]
    return SearchPage(found=found, cursor=next_cursor, complete=complete)


def _owners(store: Store) -> list[str]:
    """Return the owners of the newest conversations."""
    return list(dict.fromkeys(["", *(info.owner for info in store.conversations())]))[:_MOST_OWNERS]
