"""What the requests of a conversation cost: the window by parts over time, charges, moved prefixes, heavy entries."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from leporello.caching.prefix import NOT_MOVED
from leporello.events import FOLDED
from leporello.messages import text_of
from leporello.messages.fixed import CLEARED_OUTPUT, FIXED_TEXTS, is_cleared
from leporello.prices import cost_at
from leporello.prices.table import price_in
from leporello.proof.reread import Reread, rereads
from leporello.proof.savings import Savings
from leporello.store import FOLD
from leporello.tokens import count_message
from leporello.view.windows import PARTS, window_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from leporello.store import ConversationInfo, JournalRow, Store, Stored, WindowItem

ROWS: Final = 400
"""Rows of the journal that are shown at once."""
CHARGES: Final = ("cached", "written", "fresh")
MOST_MESSAGES: Final = 20_000
"""The longest conversation of which the whole history is read for what an unfolded one would have cost."""
_HEAVIEST: Final = 8
_MILLION: Final = 1_000_000


@dataclass(frozen=True, kw_only=True)
class RequestCost:
    """One request: its row, the tokens of its window by part, and what the provider charged for."""

    row: JournalRow
    parts: dict[str, int]
    charges: dict[str, int]
    output: int
    missed_usd: float | None
    """What the request cost more than with everything read from the cache; None when the price is not known."""

    @property
    def moved(self) -> bool:
        """Whether something changed that the provider's cache held."""
        return str(self.row.report.get("prefix", NOT_MOVED[0])) not in NOT_MOVED


@dataclass(frozen=True, kw_only=True)
class FoldCost:
    """A fold, and the next request of its branch, which was sent with a prefix that no cache held."""

    row: JournalRow
    after: RequestCost | None

    @property
    def tokens_before(self) -> int:
        """The tokens of the window that was folded."""
        return _count(self.row.report, "tokens_before")

    @property
    def tokens_after(self) -> int:
        """The tokens of the window that it became."""
        return _count(self.row.report, "tokens_after")

    @property
    def sent_anew(self) -> int:
        """The tokens of the next request that were not read from the cache."""
        return self.after.charges["written"] + self.after.charges["fresh"] if self.after else 0

    @property
    def cost_usd(self) -> float | None:
        """What the summaries cost, and the next request more than from the cache; None when that is not known yet."""
        if self.after is None or self.after.missed_usd is None:
            return None
        return (self.row.cost_usd or 0.0) + self.after.missed_usd


@dataclass(frozen=True, kw_only=True)
class Carried:
    """A message or summary of the newest window: its tokens, the requests it was sent with, and what that cost."""

    item: str
    tokens: int
    requests: int
    cost_usd: float | None


@dataclass(frozen=True, kw_only=True)
class Course:
    """A run of the journal: its requests and folds, and the heaviest entries of the window at its end."""

    points: list[RequestCost] = field(default_factory=list)
    folds: list[JournalRow] = field(default_factory=list)
    area: list[tuple[int, dict[str, int]]] = field(default_factory=list)
    """The window by parts over the numbers of the journal: before and after each fold, and at each request."""
    heaviest: list[Carried] = field(default_factory=list)
    first: int = 0
    last: int = 0

    def total(self, charge: str) -> int:
        """Add up a kind of tokens."""
        return sum(point.charges[charge] for point in self.points)

    @property
    def output(self) -> int:
        """The tokens that were written."""
        return sum(point.output for point in self.points)

    @property
    def cost_usd(self) -> float | None:
        """The dollars of requests and folds, as far as prices are known."""
        known = [cost for cost in (one.cost_usd for one in (*(p.row for p in self.points), *self.folds)) if cost]
        return sum(known) if known else None

    @property
    def moves(self) -> list[RequestCost]:
        """The requests whose prefix moved, the dearest first."""
        moved = [point for point in self.points if point.moved]
        return sorted(moved, key=lambda one: (-(one.missed_usd or 0.0), -_count(one.row.report, "tokens_lost")))

    @property
    def causes(self) -> list[tuple[str, int, float]]:
        """Why prefixes moved: each reason with how often, and what that cost, the dearest first."""
        found: dict[str, list[float]] = {}
        for point in self.moves:
            found.setdefault(str(point.row.report.get("prefix", "")), []).append(point.missed_usd or 0.0)
        return sorted(((why, len(costs), sum(costs)) for why, costs in found.items()), key=lambda one: -one[2])

    @property
    def fold_costs(self) -> list[FoldCost]:
        """Every fold with what it cost, the newest first."""
        return [FoldCost(row=fold, after=self._after(fold)) for fold in reversed(self.folds)]

    @property
    def other_moves(self) -> list[RequestCost]:
        """The requests whose prefix moved although nothing was folded before them."""
        folded = {one.after.row.number for one in self.fold_costs if one.after}
        return [point for point in self.moves if point.row.number not in folded]

    def _after(self, fold: JournalRow) -> RequestCost | None:
        later = (one for one in self.points if one.row.number > fold.number and one.row.branch == fold.branch)
        return next(later, None)

    @property
    def cached_share(self) -> float:
        """The share of what the model read that came from the provider's cache."""
        whole = sum(self.total(name) for name in CHARGES)
        return self.total("cached") / whole if whole else 0.0


class _Weight(NamedTuple):
    tokens: int
    system: bool
    written: bool
    masked: bool


def course(store: Store, info: ConversationInfo, *, upto: int | None = None) -> Course:
    """Return the newest rows of the journal up to a number, with what each request consisted of."""
    rows = store.journal(info.key, owner=info.owner, last=ROWS, upto=upto)
    if not rows:
        return Course()
    windows: dict[int, list[WindowItem]] = {}
    since: dict[int, list[int]] = {}
    points: list[RequestCost] = []
    area: list[tuple[int, dict[str, int]]] = []
    began: dict[str, int] = {}
    weigh = _Weigher(store, info, rows)
    for row in rows:
        items, seen = windows.setdefault(row.branch, []), since.setdefault(row.branch, [])
        if not items:
            items[:] = store.window_at(info.key, row.number, owner=info.owner)
            weigh.read(items)
            seen[:] = [began.setdefault(_name(item), len(points)) for item in items]
        else:
            items[row.keep :] = row.added
            seen[row.keep :] = [began.setdefault(_name(item), len(points)) for item in row.added]
        if row.reason == "request" and "error" not in row.report:
            points.append(_point(row, _parts(items, weigh)))
            area.append((row.number, points[-1].parts))
        elif row.reason == FOLD and area:
            area += [(row.number, area[-1][1]), (row.number, {**_parts(items, weigh), "tools": area[-1][1]["tools"]})]
    newest = rows[-1].branch
    heaviest = _heaviest(windows[newest], since[newest], weigh, points)
    folds = [row for row in rows if row.reason == FOLD and row.report.get("status", FOLDED[0]) in FOLDED]
    return Course(points=points, folds=folds, area=area, heaviest=heaviest, first=rows[0].number, last=rows[-1].number)


def _name(item: WindowItem) -> str:
    """Name what an item shows; a message that is shown otherwise than before is another."""
    return f"{item.get('m') or item.get('n')} {item.get('as', item.get('t', ''))}"


class _Weigher:
    """Weighs the items of windows; every stored message is read once."""

    def __init__(self, store: Store, info: ConversationInfo, rows: Sequence[JournalRow]) -> None:
        self._store, self._info = store, info
        self._known: dict[str, Stored] = {}
        self._weights: dict[int, tuple[WindowItem, _Weight]] = {}
        self.read([item for row in rows for item in row.added])

    def read(self, items: Sequence[WindowItem]) -> None:
        """Read the messages that items speak of."""
        ids = {item["m"] for item in items if "m" in item} - self._known.keys()
        self._known |= self._store.get(ids, owner=self._info.owner)

    def __call__(self, item: WindowItem) -> _Weight:
        known = self._weights.get(id(item))
        if known is None:
            known = self._weights[id(item)] = (item, self._weighed(item))
        return known[1]

    def _weighed(self, item: WindowItem) -> _Weight:
        shown = item.get("as", item)
        if "m" in item:
            row = self._known.get(item["m"])
            if row is None or shown is None:
                return _Weight(0, system=False, written=False, masked=False)
            if shown is item:
                return _Weight(row.tokens, system=row.system, written=False, masked=_is_masked(row.message))
            return _Weight(count_message(shown), system=row.system, written=False, masked=_is_masked(shown))
        if "n" in item and shown is item:  # the first node of a block has the text of all
            return _Weight(0, system=False, written=True, masked=False)
        message = {"role": item.get("role", "user"), "content": item.get("t")} if shown is item else shown
        written = text_of(message or {}) not in FIXED_TEXTS
        return _Weight(count_message(message), system=False, written=written, masked=False)


def _is_masked(message: Mapping[str, Any]) -> bool:
    text = text_of(message)
    return message.get("role") == "tool" and text.startswith(CLEARED_OUTPUT) and is_cleared(text)


def _parts(items: Sequence[WindowItem], weigh: _Weigher) -> dict[str, int]:
    weights = [weigh(item) for item in items]
    behind = max((at + 1 for at, one in enumerate(weights) if one.written), default=0)
    stop = max((at + 1 for at, one in enumerate(weights) if one.masked and at >= behind), default=behind)
    parts: dict[str, int] = dict.fromkeys(PARTS, 0)
    for at, one in enumerate(weights):
        zone = "masked" if behind <= at < stop else "tail"
        parts["system" if one.system else "summary" if one.written else zone] += one.tokens
    return parts


def _point(row: JournalRow, parts: dict[str, int]) -> RequestCost:
    usage = row.usage
    parts["tools"] = _count(row.report, "tools")
    prompt, read, written = (_count(usage, f"{name}_tokens") for name in ("prompt", "cache_read", "cache_write"))
    charges = {"cached": read, "written": written, "fresh": max(0, prompt - read - written)}
    return RequestCost(
        row=row,
        parts=parts,
        charges=charges,
        output=_count(usage, "completion_tokens"),
        missed_usd=_missed(row, prompt),
    )


def _missed(row: JournalRow, prompt: int) -> float | None:
    price = price_in(row.report)
    if price is None or row.cost_usd is None:
        return None
    output = _count(row.usage, "completion_tokens")
    read = {"prompt_tokens": prompt, "cache_read_tokens": prompt, "completion_tokens": output}
    return max(0.0, row.cost_usd - cost_at(read, price))


def _heaviest(
    items: Sequence[WindowItem], since: Sequence[int], weigh: _Weigher, points: Sequence[RequestCost]
) -> list[Carried]:
    price = price_in(points[-1].row.report) if points else None
    rate = None if price is None else price.cache_read if price.cache_read is not None else price.input
    found = []
    for item, first in zip(items, since, strict=True):
        tokens, requests = weigh(item).tokens, len(points) - first
        cost = None if rate is None else tokens * requests * rate / _MILLION
        found.append(
            Carried(item=item.get("m") or item.get("n") or "", tokens=tokens, requests=requests, cost_usd=cost)
        )
    return sorted(found, key=lambda one: -one.tokens)[:_HEAVIEST]


@dataclass(frozen=True, kw_only=True)
class Spending:
    """The dollars of a conversation up to a row of the journal, and what they would be had it never been folded."""

    number: int
    spent: float
    unfolded: float


def spending(rows: Iterable[tuple[JournalRow, Savings]]) -> tuple[Savings, list[Spending]]:
    """Add up the rows of a journal; return the sum, and at most as many places on the way as a chart can show."""
    total, places = Savings(), list[Spending]()
    for row, one in rows:
        total += one
        places.append(Spending(number=row.number, spent=total.cost_usd, unfolded=total.unfolded_usd))
    every = -(-len(places) // ROWS) or 1
    return total, places[:-1:every] + places[-1:]


@dataclass(frozen=True, kw_only=True)
class ReadAgain:
    """A file that was read again after a fold, and the message that holds what was read."""

    fold: int
    file: Reread
    message: str


def read_again(store: Store, info: ConversationInfo) -> list[ReadAgain]:
    """Return the files that the agent read again within the next calls after each fold, the newest fold first."""
    rows = list(store.messages(info.key, owner=info.owner))
    places = {row.id: at for at, row in enumerate(rows)}
    messages = [row.message for row in rows]
    found: list[ReadAgain] = []
    for fold in store.journal(info.key, owner=info.owner, reason=FOLD):
        window = window_at(store, info, fold.number)
        known = [places[id_] for entry in window.entries for id_ in entry.ids if id_ in places]
        if known:
            shown = [entry.message for entry in window.entries]
            files = rereads(messages, max(known) + 1, shown)
            found += [ReadAgain(fold=fold.number, file=one, message=rows[one.result].id) for one in files]
    return found[::-1]


def _count(counts: Mapping[str, Any], key: str) -> int:
    value = counts.get(key)
    return int(value) if isinstance(value, (int, float)) else 0
