"""What stays so that the result fits: the ordinary boundaries when they do, tighter ones when they must.

Tightened in the order of what matters least: large payloads inside head and tail are shortened, oldest first; only
then are fewer than `protect_last_n` messages kept. The newest user message is never touched.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

from leporello.compressor.boundaries import Boundaries, find_boundaries, newest
from leporello.compressor.prune import prune
from leporello.messages import Message, is_system
from leporello.summary.payloads import shorten

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leporello.summary.sizes import Sizes

PAYLOAD_LIMITS = (4_000, 800, 200)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What stays and what is folded.

    `source` holds the originals that the summary must cover: folded turns, pruned results and shortened payloads, in
    order.
    """

    head: list[Message]
    tail: list[Message]
    source: list[Message]
    newest_user_in_head: bool
    kept_tokens: int


@dataclass(frozen=True, kw_only=True)
class Missing:
    """Messages that were left out of a list, and the index in front of which they belong."""

    place: int
    messages: Sequence[Message] = ()


class _Tokens(Sequence[int]):
    """The tokens of each message, counted when they are asked for: of a long list only the end is."""

    def __init__(self, messages: list[Message], sizes: Sizes) -> None:
        self._messages = messages
        self._sizes = sizes

    def __len__(self) -> int:
        return len(self._messages)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        found = self._messages[index]
        return [self._sizes.of(message) for message in found] if isinstance(found, list) else self._sizes.of(found)


def make_plan(
    messages: list[Message],
    sizes: Sizes,
    *,
    protect_first_n: int,
    protect_last_n: int,
    tail_budget: int,
    room: int | None,
    missing: Missing | None = None,
) -> Plan | None:
    """Plan a compaction whose kept messages have at most `room` tokens, as nearly as can be; None: any number.

    `missing` are messages that are folded in any case. The plan is None when head or tail would reach over their place.
    """
    tokens = _Tokens(messages, sizes)
    missing = missing or Missing(place=len(messages))
    plan = None
    for last_n in _halvings(protect_last_n):
        bounds = find_boundaries(
            messages,
            tokens,
            protect_first_n=protect_first_n,
            protect_last_n=last_n,
            tail_budget=tail_budget,
        )
        if missing.messages and not bounds.head_end <= missing.place < bounds.tail_start:
            return None
        for limit in (None, *PAYLOAD_LIMITS):
            plan = _plan(messages, sizes, bounds, limit, room, missing)
            if room is None or plan.kept_tokens <= room:
                return plan
    assert plan is not None  # noqa: S101 - there is always a first round
    return plan


def _halvings(number: int) -> Iterator[int]:
    while number > 1:
        yield number
        number //= 2
    yield 1


def _plan(
    messages: list[Message], sizes: Sizes, bounds: Boundaries, limit: int | None, room: int | None, missing: Missing
) -> Plan:
    tail_indexes = bounds.tail(len(messages))
    pruned = prune(messages, bounds.head_end)[: bounds.head_end]
    kept = dict(enumerate(pruned)) | {index: messages[index] for index in tail_indexes}
    user = newest(messages, "user")
    if limit is not None and room is not None:
        _shorten(kept, sizes, limit, room, spared=user)
    changed = [index for index, message in kept.items() if message is not messages[index]]
    folded = sorted([*bounds.folded, *changed])
    source = [messages[index] for index in folded]
    before = bisect_left(folded, missing.place)
    source[before:before] = missing.messages
    return Plan(
        head=[kept[index] for index in range(bounds.head_end)],
        tail=[kept[index] for index in tail_indexes],
        source=source,
        newest_user_in_head=user < bounds.head_end,
        kept_tokens=sizes.total(kept.values()),
    )


def _shorten(kept: dict[int, Message], sizes: Sizes, limit: int, room: int, *, spared: int) -> None:
    """Shorten the payloads of kept messages, oldest first, until they fit into `room`."""
    excess = sizes.total(kept.values()) - room
    for index in sorted(kept):
        if excess <= 0:
            break
        message = kept[index]
        if index != spared and not is_system(message):
            kept[index] = shorten(message, limit)
            excess += sizes.of(kept[index]) - sizes.of(message)
