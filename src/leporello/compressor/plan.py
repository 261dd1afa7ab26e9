"""What stays so that the result fits: the ordinary boundaries when they do, tighter ones when they must.

Before the tail stands the masked zone: what was said and called as it is, long tool results cleared. It takes what
head, tail and summary leave below the threshold, up to its share. Where they leave nothing, the boundaries are
tightened, in the order of what matters least: large payloads inside head and tail are shortened, oldest first; only
then are fewer than `protect_last_n` messages kept. What the model has not read yet is shortened only when the request
would not fit into the model's window otherwise. The newest user message is never touched.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, cast

from leporello.compressor.boundaries import Boundaries, find_boundaries
from leporello.compressor.prune import prune
from leporello.messages import Message, leading_systems, tool_calls_of, unread_start
from leporello.messages.types import newest_of
from leporello.summary.artifacts.call_lines import marks_of
from leporello.summary.masking import zone_start
from leporello.summary.payloads import shorten
from leporello.summary.squeeze import PAYLOAD_LIMITS, squeeze, squeeze_unread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leporello.summary.sizes import Sizes
    from leporello.summary.squeeze import Room


@dataclass(frozen=True, kw_only=True)
class FoldPlan:
    """What stays and what is folded.

    `source` holds the originals that the summary must cover: folded turns, pruned results and shortened payloads, in
    order. `done_for_newest` tells that some of them stood behind the newest user message, `cut` holds unread messages
    that had to be shortened.
    """

    head: list[Message]
    tail: list[Message]
    source: list[Message]
    kept_tokens: int
    spare: int = 0
    done_for_newest: bool = False
    cut: tuple[Message, ...] = ()


def make_plan(
    messages: list[Message],
    sizes: Sizes,
    *,
    protect_first_n: int,
    protect_last_n: int,
    tail_budget: int,
    zone_budget: int,
    room: Room | None,
) -> FoldPlan:
    """Plan a compaction whose kept messages fit into `room`, as nearly as can be; None: any number of tokens fits."""
    planner = _Planner(messages, sizes)
    room = room and room.beside_unread(planner.unread_tokens, tail_budget)
    plan = None
    for last_n in _halvings(protect_last_n):
        bounds = find_boundaries(
            messages,
            planner.tokens,
            protect_first_n=protect_first_n,
            protect_last_n=last_n,
            tail_budget=tail_budget,
        )
        for limit in (None, *PAYLOAD_LIMITS):
            plan = planner.plan(bounds, limit, room)
            if room is None or plan.kept_tokens <= room.wanted:
                left = zone_budget if room is None else min(zone_budget, room.wanted - plan.kept_tokens)
                zone = planner.zone(bounds, left)
                zoned = planner.plan(bounds, limit, room, zone=zone) if zone else plan
                return replace(zoned, spare=max(0, left - (zoned.kept_tokens - plan.kept_tokens)))
    assert plan is not None  # noqa: S101 - there is always a first round
    assert room is not None  # noqa: S101 - without one the first plan fits
    return plan if plan.kept_tokens <= room.most else planner.plan(bounds, PAYLOAD_LIMITS[-1], room, cut_unread=True)


def _halvings(number: int) -> Iterator[int]:
    while number > 1:
        yield number
        number //= 2
    yield 1


class _Planner:
    """Plans of one list of messages, for one pair of boundaries after the other."""

    def __init__(self, messages: list[Message], sizes: Sizes) -> None:
        self.tokens = [sizes.of(message) for message in messages]
        self._messages = messages
        self._sizes = sizes
        self._user = newest_of(messages, "user")
        self._unread = unread_start(messages)

    @property
    def unread_tokens(self) -> int:
        """The tokens of what the model has not read yet."""
        return self._sizes.total(self._messages[self._unread :])

    def zone(self, bounds: Boundaries, budget: int) -> range:
        """Return the places of the masked zone; of a short history a part is folded in any case."""
        middle = self._messages[bounds.head_end : bounds.tail_start]
        start = bounds.head_end + zone_start(middle, len(middle), budget, self._sizes.of)
        return range(start, bounds.tail_start)

    def plan(
        self,
        bounds: Boundaries,
        limit: int | None,
        room: Room | None,
        *,
        zone: range = range(0),
        cut_unread: bool = False,
    ) -> FoldPlan:
        """Return the plan for these boundaries, with payloads of at most `limit` characters where it must be."""
        bounds = bounds.with_zone(zone)
        indexes = [*range(bounds.head_end), *bounds.tail(len(self._messages))]
        pruned = prune(self._messages, bounds.head_end, zone)
        kept = [pruned[index] for index in indexes]
        if limit is not None and room is not None:
            kept = self._squeezed(indexes, kept, limit, room, cut_unread=cut_unread)
        changed = [i for i, message in zip(indexes, kept, strict=True) if message is not self._messages[i]]
        folded = sorted([*bounds.folded, *changed])
        return FoldPlan(
            head=kept[: bounds.head_end],
            tail=kept[bounds.head_end :],
            source=self._with_files(folded),
            kept_tokens=self._sizes.total(kept),
            done_for_newest=any(index > self._user and index not in zone for index in folded),
            cut=tuple(kept[indexes.index(index)] for index in changed if index >= self._unread),
        )

    def _with_files(self, folded: list[int]) -> list[Message]:
        """Return messages for the summary; a result whose call stays in the window knows what the call did."""
        inside = set(folded)
        calls = [call for i, message in enumerate(self._messages) if i not in inside for call in tool_calls_of(message)]
        marks = {call.id: found for call in calls if call.id and (found := marks_of(call))}
        source = [self._messages[index] for index in folded]
        about = [marks.get(str(message.get("tool_call_id"))) for message in source]
        return [
            cast("Message", {**message, **found}) if found else message
            for message, found in zip(source, about, strict=True)
        ]

    def _squeezed(
        self, indexes: list[int], kept: list[Message], limit: int, room: Room, *, cut_unread: bool
    ) -> list[Message]:
        """Shorten what was read as far as it must be, and what is unread only with `cut_unread`."""

        def short(place: int, limit: int) -> Message:
            return shorten(kept[place], limit)

        prompt = leading_systems(self._messages)
        foldable = [place for place, index in enumerate(indexes) if index >= prompt and index != self._user]
        read = [place for place in foldable if indexes[place] < self._unread]
        squeezed = squeeze(kept, read, limit, room.wanted, self._sizes, short)
        if cut_unread:
            unread = [place for place in foldable if indexes[place] >= self._unread]
            squeezed = squeeze_unread(squeezed, unread, room, self._sizes, short)
        return squeezed
