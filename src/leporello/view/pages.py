"""The pages: each reads what it shows from the store, and is rendered."""

from __future__ import annotations

from http import HTTPStatus
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from starlette.responses import Response

from leporello.lcm.artifacts import KINDS
from leporello.proof.savings import savings_by_row
from leporello.store import FOLD
from leporello.store.titles import title_of
from leporello.view import conversations, costs
from leporello.view.charts import Mark, share_bar, stacked
from leporello.view.dag import MOST as LAYER, drawn, layers
from leporello.view.page_request import ProblemError
from leporello.view.rendering import LABELS, Here, secured
from leporello.view.text import dollars, said_in, wire_json
from leporello.view.tree import mapped, railway
from leporello.view.windows import (
    PARTS,
    ShownWindow,
    WindowEntry,
    difference,
    folds_between,
    last_number,
    newest_request,
    row_at,
    said_at,
    window_at,
    window_now,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello.store import Artifact, ConversationInfo, JournalRow, Store, Stored
    from leporello.view.page_request import PageRequest
    from leporello.view.rendering import Renderer

    Handler = Callable[[PageRequest], Response]

ENTRIES: Final = 40
"""Entries of a window, or messages, in one piece of a page."""
ARTIFACTS: Final = 200
"""Rows of the artifact trail that are read at once."""
_MARKED_FOLDS: Final = 200
_MOVES: Final = 12  # moved prefixes, or folds, that are shown before one asks for the others
_WORDS: Final = {
    "added": "+ added",
    "folded": "− folded",
    "cleared": "~ shortened",
    "changed": "~ changed",
    "summary": "+ summary",
    "dropped": "− replaced",
    "moved": "↕ moved",
}


class Pages:
    """The pages about what is stored."""

    def __init__(self, renderer: Renderer) -> None:
        self._renderer = renderer
        self.by_path: dict[str, Handler] = {
            "": self._list,
            "/search": self._search,
            "/window": self._book,
            "/entries": self._entries,
            "/entry": self._entry,
            "/node": self._node,
            "/originals": self._originals,
            "/message": self._message,
            "/time": self._time,
            "/raw": self._raw,
            "/news": self._news,
            "/cost": self._cost,
            "/cost/savings": self._savings,
            "/tree": self._tree,
            "/dag": self._dag,
            "/artifacts": self._artifacts,
        }
        """The pages, by their paths under /view."""

    def _list(self, asked: PageRequest) -> Response:
        state = asked.text("state") if asked.text("state") in conversations.STATES else ""
        sees_all = asked.viewer.owner is None
        owner = (asked.text("owner") or None) if sees_all else asked.viewer.owner
        page = conversations.listed(asked.store, owner, number=asked.number("page", 1), state=state)
        template = "_list.html" if asked.is_fragment else "list.html"
        kept = {"state": state, "owner": owner if sees_all else None}
        return self._renderer.page(template, viewer=asked.viewer, page=page, kept=kept)

    def _search(self, asked: PageRequest) -> Response:
        query, key = asked.text("q").strip(), asked.text("c")
        info = asked.conversation() if key else None
        owner = info.owner if info else asked.viewer.owner
        found = conversations.search(
            asked.store,
            query,
            owner,
            conversation=info.key if info else None,
            cursor=asked.text("cursor") or None,
        )
        return self._renderer.page(
            "_hits.html" if asked.is_fragment else "search.html",
            viewer=asked.viewer,
            query=query,
            info=info,
            page=found,
            within=title_of(asked.store, info) if info else "",
        )

    def _book(self, asked: PageRequest) -> Response:
        info = asked.conversation()
        branch = asked.number("branch") or info.head
        window = window_now(asked.store, info, branch)
        return self._renderer.about(
            asked,
            info,
            "book.html",
            window=window,
            branch=branch,
            at=0,
            bar=_bar(window),
            last=last_number(asked.store, info),
            request=_newest(asked.store, info),
            cost=conversations.cost_of(asked.store, info),
            **_page_of(window, 0),
        )

    def _entries(self, asked: PageRequest) -> Response:
        info, window = self._window(asked)
        return self._renderer.about(
            asked,
            info,
            "_entries.html",
            at=asked.number("at"),
            branch=asked.number("branch"),
            window=window,
            **_page_of(window, asked.number("from")),
        )

    def _entry(self, asked: PageRequest) -> Response:
        """Show what one entry says, and what it stands for."""
        info, window = self._window(asked)
        index = asked.number("index")
        if index >= len(window.entries):
            raise ProblemError(HTTPStatus.NOT_FOUND, "There is no such entry.")
        entry = window.entries[index]
        nodes = [node for id_ in entry.nodes if (node := asked.store.node(id_, owner=info.owner))]
        place = {"at": asked.number("at") or None, "branch": asked.number("branch") or None, "index": index}
        return self._renderer.with_text(
            asked,
            info,
            said_in(entry.message),
            ("_entry.html", "_entry.html"),
            place,
            entry=entry,
            nodes=nodes,
            before=_folded_before(asked.store, info, window, entry),
            as_prose=entry.part == "summary" and not entry.nodes,
        )

    def _node(self, asked: PageRequest) -> Response:
        """Show a summary, and what it stands for: summaries, and at the bottom messages."""
        info = asked.conversation()
        node = asked.store.node(asked.text("id"), owner=info.owner)
        if node is None or asked.store.conversation_of_node(node.id, owner=info.owner) != info.key:
            raise ProblemError(HTTPStatus.NOT_FOUND, "There is no such summary.")
        children = [child for id_ in node.children if (child := asked.store.node(id_, owner=info.owner))]
        return self._renderer.with_text(
            asked, info, node.text, ("_node.html", "node.html"), {"id": node.id}, node=node, children=children
        )

    def _originals(self, asked: PageRequest) -> Response:
        """Show a page of messages by their order of arrival."""
        info = asked.conversation()
        first, last = asked.number("first", 1), asked.number("last")
        stop = min(last, first + ENTRIES - 1)
        rows = list(asked.store.messages(info.key, owner=info.owner, first=first, last=stop, superseded=True))
        return self._renderer.about(asked, info, "_originals.html", rows=rows, next=stop + 1, last=last)

    def _message(self, asked: PageRequest) -> Response:
        """Show a message with those around it, or a piece of its text."""
        info = asked.conversation()
        id_ = asked.text("id")
        row = asked.store.get([id_], owner=info.owner).get(id_)
        if row is None or row.conversation != info.key:
            raise ProblemError(HTTPStatus.NOT_FOUND, "There is no such message.")
        around: list[Stored] = []
        leaf, pins = "", tuple[str, ...]()
        if not asked.is_fragment:
            around = asked.store.neighbours([id_], before=4, after=4, owner=info.owner)
            leaf = asked.store.covering([id_], owner=info.owner).get(id_, "")
            pins = asked.store.pins(info.key, owner=info.owner)
        templates = ("_message.html", "message.html")
        return self._renderer.with_text(
            asked, info, said_in(row.message), templates, {"id": id_}, row=row, around=around, leaf=leaf, pins=pins
        )

    def _time(self, asked: PageRequest) -> Response:
        """Show the window of a request, and how it differs from another."""
        info = asked.conversation()
        last = last_number(asked.store, info)
        if not last:
            return self._renderer.about(asked, info, "unsent.html", tab="time")
        at = min(asked.number("at", last) or last, last)
        row = row_at(asked.store, info, at)
        against = min(asked.number("against", _before(asked.store, info, at, row)), last)
        window, earlier = window_at(asked.store, info, at), window_at(asked.store, info, against)
        changed = difference(earlier, window, folds_between(asked.store, info, min(at, against), max(at, against)))
        folded = [id_ for change in changed.of("folded") for id_ in change.entry.ids[:1]]
        asks, answer = said_at(asked.store, info, row, window)
        return self._renderer.about(
            asked,
            info,
            "_step.html" if asked.is_fragment else "time.html",
            at=at,
            against=against,
            last=last,
            row=row,
            window=window,
            asks=asks,
            answer=answer,
            changed=changed,
            leaves=asked.store.covering(folded[:ENTRIES], owner=info.owner),
            folds=[] if asked.is_fragment else [row.number for row in _folds(asked.store, info)],
            most=ENTRIES,
            words=_WORDS,
            bar=_bar(window),
            branch=0,
            **_page_of(window, 0),
        )

    def _news(self, asked: PageRequest) -> Response:
        """Say whether something was sent since a page was made."""
        info, since = asked.conversation(), asked.number("since")
        last = last_number(asked.store, info)
        return self._renderer.about(asked, info, "_news.html", since=since, last=last, page=asked.text("page"))

    def _raw(self, asked: PageRequest) -> Response:
        """Return the messages of a window as they were sent."""
        _, window = self._window(asked)
        text = wire_json(window.wire(), reveal=asked.reveal)
        content = text.encode("utf-8", "backslashreplace")
        return secured(Response(content, media_type="application/json"))

    def _cost(self, asked: PageRequest) -> Response:
        info = asked.conversation()
        run = costs.course(asked.store, info, upto=asked.number("upto") or None)
        if not run.points:
            return self._renderer.about(asked, info, "unsent.html", tab="cost")
        here = Here(info, named=asked.viewer.owner is None)
        numbers = [point.row.number for point in run.points]
        folds = [_fold_mark(fold, here) for fold in run.folds]
        length = max((int(point.row.report.get("context_length") or 0) for point in run.points), default=0)
        area = stacked(
            [parts for _, parts in run.area],
            [number for number, _ in run.area],
            PARTS,
            marks=folds,
            limit=length,
            label="Tokens in the window by part, request by request; folds are marked",
        )
        charged = stacked(
            [point.charges for point in run.points],
            numbers,
            costs.CHARGES,
            marks=folds,
            label="Tokens that the provider charged for, by kind, request by request",
            height=190,
            prefix="charge",
        )
        newest = last_number(asked.store, info)
        return self._renderer.about(
            asked,
            info,
            "cost.html",
            run=run,
            area=area,
            charged=charged,
            parts=PARTS,
            charges=costs.CHARGES,
            newest=newest,
            total=conversations.cost_of(asked.store, info),
            shown=_MOVES,
            messages=asked.store.get([one.item for one in run.heaviest if one.item.startswith("m")], owner=info.owner),
        )

    def _savings(self, asked: PageRequest) -> Response:
        """Show what an unfolded history would have cost, and which files were read again after a fold."""
        info = asked.conversation()
        if info.messages + info.superseded > costs.MOST_MESSAGES:
            return self._renderer.about(asked, info, "_savings.html", saved=None, again=[], most=costs.MOST_MESSAGES)
        saved, places = costs.spending(savings_by_row(asked.store, info))
        here = Here(info, named=asked.viewer.owner is None)
        chart = stacked(
            [{"spent": one.spent, "saved": max(0.0, one.unfolded - one.spent)} for one in places],
            [one.number for one in places],
            ("spent", "saved"),
            marks=[_fold_mark(fold, here) for fold in _folds(asked.store, info)],
            label="Dollars spent so far, and what a history that was never folded would have cost beyond that",
            height=190,
            prefix="money",
            written=dollars,
        )
        again = costs.read_again(asked.store, info)
        return self._renderer.about(
            asked, info, "_savings.html", saved=saved, chart=chart, again=again, most=costs.MOST_MESSAGES
        )

    def _tree(self, asked: PageRequest) -> Response:
        """Show the branches, and how the window of one differs from that of another."""
        info = asked.conversation()
        branches, left_out = mapped(asked.store, info)
        here = Here(info, named=asked.viewer.owner is None)
        first, second = asked.number("first"), asked.number("second", info.head)
        known = {one.info.id for one in branches}
        changed = None
        if first in known and second in known:
            before, after = (window_now(asked.store, info, branch) for branch in (first, second))
            changed = difference(before, after)
        return self._renderer.about(
            asked,
            info,
            "tree.html",
            branches=branches,
            left_out=left_out,
            rail=railway(branches, here),
            first=first,
            second=second,
            changed=changed,
            leaves={},
            words={**_WORDS, "folded": f"only in {first}", "added": f"only in {second}"},
            most=ENTRIES,
        )

    def _dag(self, asked: PageRequest) -> Response:
        """Show the summaries by layers."""
        info = asked.conversation()
        start, opened = asked.number("from"), asked.text("node")
        nodes = asked.store.nodes(info.key, owner=info.owner, branch=info.head)
        shown = layers(nodes, start)
        window = asked.store.window(info.key, owner=info.owner, branch=info.head)
        standing = {item["n"] for item in window.items if "n" in item}
        here = Here(info, named=asked.viewer.owner is None)
        following = max((one.nodes[-1].last_seq + 1 for one in shown if len(one.nodes) == LAYER), default=0)
        return self._renderer.about(
            asked,
            info,
            "dag.html",
            layers=shown,
            drawn=drawn(shown, here, standing=standing, opened=opened),
            node=next((one for one in nodes if one.id == opened), None),
            standing=len(standing),
            start=start,
            following=following,
        )

    def _artifacts(self, asked: PageRequest) -> Response:
        """Show files, commands and errors with what happened to each."""
        info = asked.conversation()
        kind = asked.text("kind") if asked.text("kind") in KINDS else ""
        query = asked.text("q").strip()
        rows = asked.store.artifacts(
            info.key,
            owner=info.owner,
            kind=kind or None,
            query=query or None,
            limit=ARTIFACTS,
            before=asked.number("before") or None,
        )
        stories: dict[tuple[str, str], list[Artifact]] = {}
        for _, one in rows:
            stories.setdefault((one.kind, one.value), []).append(one)
        return self._renderer.about(
            asked,
            info,
            "_artifacts.html" if asked.is_fragment else "artifacts.html",
            stories=stories,
            kind=kind,
            kinds=KINDS,
            query=query,
            before=rows[-1][0] if len(rows) == ARTIFACTS else 0,
        )

    def _window(self, asked: PageRequest) -> tuple[ConversationInfo, ShownWindow]:
        """Return the window that is meant: of a request, or as it would be sent now."""
        info, at = asked.conversation(), asked.number("at")
        if at:
            return info, window_at(asked.store, info, at)
        return info, window_now(asked.store, info, asked.number("branch") or None)


def _page_of(window: ShownWindow, start: int) -> dict[str, Any]:
    """Return a piece of a window's entries, and where the next one begins."""
    heaviest = max((entry.tokens for entry in window.entries), default=1)
    entries = list(islice(window.entries, start, start + ENTRIES))
    following = start + ENTRIES
    following = following if following < len(window.entries) else 0
    return {"entries": entries, "following": following, "heaviest": heaviest, "page_size": ENTRIES}


def _bar(window: ShownWindow) -> Any:
    return share_bar(window.parts(), window.free, LABELS)


def _newest(store: Store, info: ConversationInfo) -> JournalRow | None:
    rows = store.journal(info.key, owner=info.owner, reason="request", last=1)
    return rows[0] if rows else None


def _folded_before(store: Store, info: ConversationInfo, window: ShownWindow, entry: WindowEntry) -> int:
    """Return the seq up to which messages stand behind a summary without nodes, 0 for other entries."""
    if entry.part != "summary" or entry.nodes:
        return 0
    shown = [id_ for one in window.entries if one.part in ("masked", "tail") for id_ in one.ids]
    return max((row.seq for row in store.get(shown, owner=info.owner).values()), default=info.messages)


def _folds(store: Store, info: ConversationInfo) -> list[JournalRow]:
    """Return the newest folds."""
    return store.journal(info.key, owner=info.owner, reason=FOLD, last=_MARKED_FOLDS)


def _before(store: Store, info: ConversationInfo, at: int, row: JournalRow | None) -> int:
    """Return what a row is compared with: a request with the request before it, anything else with the row before."""
    if row is None or row.reason != "request":
        return at - 1
    found = newest_request(store, info, row.branch, upto=at - 1)
    return found.number if found else 0


def _fold_mark(fold: JournalRow, here: Here) -> Mark:
    before, after = fold.report.get("tokens_before") or 0, fold.report.get("tokens_after") or 0
    return Mark(
        at=fold.number, label=f"Fold #{fold.number}: {before:,} to {after:,} tokens", href=here("time", at=fold.number)
    )
