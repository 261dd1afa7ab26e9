"""A provider's prompt cache, simulated: what a request reads from it and writes to it, by the provider's rules.

What is cached is a prefix of the request's row of blocks, so an entry is the name of everything up to a block. No
provider says how it forgets under load; here an entry lives exactly as long as its rules say, since it was last used.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from hashlib import blake2b
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from leporello.caching.blocks import Block, blocks_of
from leporello.caching.providers import CacheRules
from leporello.errors import RequestRefusedError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["Block", "CacheUse", "ProviderCache", "blocks_of", "refusal"]


@dataclass(frozen=True, kw_only=True)
class CacheUse:
    """What one request took from the cache and left in it, in tokens; `input` is what was neither."""

    read: int = 0
    write_5m: int = 0
    write_1h: int = 0
    input: int = 0

    @property
    def written(self) -> int:
        """Everything that was written."""
        return self.write_5m + self.write_1h

    @property
    def prompt(self) -> int:
        """Everything that the model read."""
        return self.read + self.written + self.input


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """A prefix: when it is forgotten, how long each use keeps it, and whether it can be read, or was only seen."""

    until: float
    lifetime: float
    readable: bool = True


class ProviderCache:
    """The cache of one account at one provider.

    rules   the provider's rules, or a function from a model's name to them (`rules_of`)
    clock   seconds, from anywhere; tests give their own
    """

    def __init__(
        self, rules: CacheRules | Callable[[str], CacheRules], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rules = rules
        self._clock = clock
        self._entries: dict[bytes, _Entry] = {}

    def request(
        self,
        model: str,
        tools: Sequence[Any] | None = None,
        system: Any = None,
        messages: Sequence[Any] = (),
        *,
        blocks: Sequence[Block] | None = None,
    ) -> CacheUse:
        """Take a request, in OpenAI's format or as blocks, and tell what it used.

        Too many marks, or a short lifetime before a long one, are refused as the provider does it.
        """
        rules = self._rules if isinstance(self._rules, CacheRules) else self._rules(model)
        row = blocks_of(messages, tools, system) if blocks is None else blocks
        if problem := refusal(row, rules):
            raise RequestRefusedError(problem, provider=rules.label, status=400)
        self._forget()
        uses = {"marked": self._marked, "managed": self._managed, "stepped": self._stepped, "whole": self._whole}
        use = uses.get(rules.manner)
        return use(rules, model, row) if use else CacheUse(input=sum(block.tokens for block in row))

    def _marked(self, rules: CacheRules, model: str, row: Sequence[Block]) -> CacheUse:
        """Read from the longest entry near a mark; write at every mark behind it."""
        marks = [at for at, block in enumerate(row) if block.mark]
        looked = {at for mark in marks for at in range(mark, max(-1, mark - rules.lookback), -1)}
        return self._use(rules, model, row, looked=looked, written=marks)

    def _managed(self, rules: CacheRules, model: str, row: Sequence[Block]) -> CacheUse:
        """Read from the longest of the newest entries; write at the newest message and at the newest marks."""
        closing = [at for at, block in enumerate(row) if block.closes]
        marks = [at for at, block in enumerate(row) if block.mark]
        looked = sorted({*closing, *marks})[-rules.candidates :]
        newest = closing[-1:]
        written = sorted({*newest, *marks[-(rules.marks - len(newest)) :]})
        return self._use(rules, model, row, looked=set(looked), written=written)

    def _stepped(self, rules: CacheRules, model: str, row: Sequence[Block]) -> CacheUse:
        """Read the longest prefix that was ever sent, in whole steps; keep all of this one."""
        names, sizes = _prefixes(model, row)
        now, lifetime = self._clock(), rules.lifetime("")
        known = next((at for at, name in enumerate(names) if name not in self._entries), len(names))
        read = sizes[known - 1] // rules.step * rules.step if known else 0
        self._entries.update(dict.fromkeys(names, _Entry(until=now + lifetime, lifetime=lifetime)))
        total = sizes[-1] if sizes else 0
        return CacheUse(read=read, input=total - read) if read >= rules.minimum else CacheUse(input=total)

    def _whole(self, rules: CacheRules, model: str, row: Sequence[Block]) -> CacheUse:
        """Read the longest prefix with which a request ended, or which two of them shared; keep those of this one."""
        names, sizes = _prefixes(model, row)
        known = {at: self._entries[name] for at, name in enumerate(names) if name in self._entries}
        hit = max((at for at, entry in known.items() if entry.readable), default=-1)
        shared = max(known, default=-1)
        until, lifetime = self._clock() + rules.lifetime(""), rules.lifetime("")
        for at, name in enumerate(names):
            readable = at in {hit, shared, len(names) - 1} or (at in known and known[at].readable)
            self._entries[name] = _Entry(until=until, lifetime=lifetime, readable=readable)
        read = sizes[hit] if hit >= 0 else 0
        total = sizes[-1] if sizes else 0
        return CacheUse(read=read, input=total - read) if read >= rules.minimum else CacheUse(input=total)

    def _use(
        self, rules: CacheRules, model: str, row: Sequence[Block], *, looked: set[int], written: list[int]
    ) -> CacheUse:
        names, sizes = _prefixes(model, row)
        hit = max((at for at in looked if names[at] in self._entries), default=-1)
        read = sizes[hit] if hit >= 0 else 0
        for at in {hit, *(at for at in written if at <= hit)} - {-1}:
            self._refresh(names[at])
        kept = [at for at in written if at > hit and sizes[at] >= rules.minimum]
        for at in kept:
            self._keep(names[at], rules.lifetime(row[at].mark))
        end = sizes[kept[-1]] if kept else read
        hour = max((sizes[at] for at in kept if row[at].mark == "1h"), default=read)
        total = sizes[-1] if sizes else 0
        return CacheUse(read=read, write_1h=hour - read, write_5m=end - hour, input=total - end)

    def _keep(self, name: bytes, lifetime: float) -> None:
        self._entries[name] = _Entry(until=self._clock() + lifetime, lifetime=lifetime)

    def _refresh(self, name: bytes) -> None:
        if entry := self._entries.get(name):
            self._keep(name, entry.lifetime)

    def _forget(self) -> None:
        now = self._clock()
        for name in [name for name, entry in self._entries.items() if entry.until <= now]:
            del self._entries[name]


def refusal(row: Sequence[Block], rules: CacheRules) -> str:
    """Return why a provider refuses the marks of a request; "" when it takes them."""
    if rules.manner != "marked":
        return ""
    marks = [block.mark for block in row if block.mark]
    if len(marks) > rules.marks:
        return f"A maximum of {rules.marks} blocks with cache_control may be provided. Found {len(marks)}."
    if "1h" in marks and "5m" in marks[: len(marks) - 1 - marks[::-1].index("1h")]:
        return "a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block"
    return ""


def _prefixes(model: str, row: Sequence[Block]) -> tuple[list[bytes], list[int]]:
    """Return for each block the name and the tokens of everything up to it."""
    name = blake2b(model.encode(), digest_size=16).digest()
    names = []
    for block in row:
        name = blake2b(name + block.says.encode(), digest_size=16).digest()
        names.append(name)
    return names, list(accumulate(block.tokens for block in row))
