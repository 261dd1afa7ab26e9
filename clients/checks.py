"""What must hold for a client, from the recordings on both sides of the gateway and from its store."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from clients.session import PLANTED, RECALL
from leporello.messages import NO_REPLY

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from clients.client import Client
    from clients.recording import Record, Relay
    from clients.session import Session
    from leporello.store import Store

_USAGE = b'"stream_options":{"include_usage":true},'
_HISTORY = {
    "openai": {"messages"},
    "anthropic": {"messages", "system", "cache_control"},
    "responses": {"input", "previous_response_id"},
}
"""The fields that a fold may change; a mark on a whole request of Anthropic's goes into its messages."""

_NOT_SAID = frozenset({"id", "call_id", "tool_call_id", "tool_use_id", "cache_control", "status", "type", "role"})
"""Fields of a message that a gateway may write differently: nothing of what is said is in them."""

_OF_MODEL = re.compile(r"reasoning|compaction|.*_call|program|mcp_.*")
_ERROR = 400


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A request as the client sent it, and as the provider got it."""

    dialect: str
    sent: Record
    got: Record

    @cached_property
    def before(self) -> dict[str, Any]:
        """The body that the client sent."""
        return _body(self.sent)

    @cached_property
    def after(self) -> dict[str, Any]:
        """The body that the provider got."""
        return _body(self.got)

    @property
    def is_verbatim(self) -> bool:
        """Tell whether the provider got the client's bytes, but for the count that a stream is asked for."""
        start = self.sent.body.find(b"{") + 1
        counted = self.sent.body[:start] + _USAGE + self.sent.body[start:]
        return self.got.body in (self.sent.body, counted) or self._is_counted

    @property
    def _is_counted(self) -> bool:
        """Tell whether `stream_options` alone differ, because the client sends some that ask for no count."""
        options = self.before.get("stream_options") if self.dialect == "openai" else None
        if not options or options.get("include_usage"):
            return False
        return _without(self.before, {"stream_options"}) == _without(self.after, {"stream_options"})


@dataclass
class Findings:
    """What was found about a client: figures for the table, and everything that is wrong."""

    requests: int = 0
    verbatim: int = 0
    folded: int = 0
    folds: int = 0
    sides: int = 0
    conversations: int = 0
    branches: int = 0
    streamed: bool | None = None
    answer: str = ""
    own_refused: int = 0
    """Requests that the provider refused as the client itself wrote them."""
    recalled: bool = False
    problems: list[str] = field(default_factory=list)


def examine(client: Client, session: Session, before: Relay, behind: Relay, store: Store, said: str) -> Findings:
    """Look at everything that was recorded and stored."""
    found = Findings(sides=session.sides, streamed=behind.streamed, recalled=session.recalled)
    found.problems += session.problems
    lines = ["", *said.strip().splitlines()]
    found.answer = next((line for line in reversed(lines) if session.fact in line), lines[-1])
    pairs = list(_pairs(client, before, behind, found.problems))
    found.requests = len(pairs)
    _refused(pairs, before, found)
    found.problems += _too_early(client, pairs)
    for number, pair in enumerate(pairs, 1):
        for wrong in _examined(client, pair, found):
            found.problems.append(f"request {number}: {wrong}")
    if session.turn < client.turns:
        found.problems.append(f"{session.turn} of {client.turns} turns were made")
    if session.fact not in said:
        found.problems.append(f"the fact of log {PLANTED} was not found again: {found.answer[:120]!r}")
    if behind.streamed is False:
        found.problems.append("nothing of a streamed answer came before its end")
    _stored(client, session, store, found)
    return found


def _pairs(client: Client, before: Relay, behind: Relay, problems: list[str]) -> Iterator[Pair]:
    """Yield every request of the provider with that of the client for which it was made."""
    asked = [record for record in before.records if record.is_completion]
    for got in (record for record in behind.records if record.is_completion):
        running = [sent for sent in asked if sent.began < got.began and (not sent.ended or got.began < sent.ended)]
        after = Pair(dialect=client.dialect, sent=got, got=got).after
        same = [sent for sent in running if _unread(client, _body(sent)) == _unread(client, after)]
        if not (same or running):
            problems.append("the provider got a request that no client made")
            continue
        yield Pair(dialect=client.dialect, sent=(same or running)[-1], got=got)


def _examined(client: Client, pair: Pair, found: Findings) -> Iterator[str]:
    """Yield what is wrong with one request; not of a round that the engine answers, which no client sees."""
    if client.with_engine_tools and (RECALL in _calls(pair.after) or RECALL.encode() in pair.got.answer):
        return
    yield from _answered(pair)
    if pair.is_verbatim:
        found.verbatim += 1
        return
    refers = bool(pair.before.get("previous_response_id")) or b'"item_reference"' in pair.sent.body
    found.folded += 1
    if len(pair.got.body) >= len(pair.sent.body) and not refers and not client.with_engine_tools:
        yield "it was changed, and is not shorter"
    counted = {"stream_options"} if pair.dialect == "openai" else set()
    if _without(pair.before, counted) == _without(pair.after, counted):
        yield "no field differs, but the bytes do"
    tools = {"tools"} if client.with_engine_tools else set()
    if (own := pair.before.get("tools") or []) != (pair.after.get("tools") or [])[: len(own)]:
        yield "the client's tools are not as it sent them"
    exempt = _HISTORY[pair.dialect] | tools | counted
    if (one := _without(pair.before, exempt)) != (other := _without(pair.after, exempt)):
        yield f"another field than the history differs: {_different(one, other)}"
    if _unread(client, pair.before) != _unread(client, pair.after):
        yield "what the model has not read yet is not as the client sent it"
    newest = _newest(pair.before, pair.dialect)
    if newest and newest not in [_words(item) for item in _history(pair.after, pair.dialect)]:
        yield "the newest message of the user is not as the client sent it"


def _too_early(client: Client, pairs: list[Pair]) -> Iterator[str]:
    """Yield whether a request was changed that is shorter than one that went on as it was: it was not folded."""
    if client.refers or client.compacts:
        return
    whole = max((len(pair.sent.body) for pair in pairs if pair.is_verbatim), default=0)
    if any(len(pair.sent.body) < whole for pair in pairs if not pair.is_verbatim):
        yield "a request was changed that is shorter than one that went on as it was"


def _answered(pair: Pair) -> Iterator[str]:
    """Yield what is wrong with the answer: the client gets its bytes, but for a count that it did not ask for."""
    if pair.sent.answer == pair.got.answer or pair.sent.status >= _ERROR:
        return
    events = [event for event in pair.got.answer.split(b"\n\n") if b'"choices": []' not in event]
    if pair.dialect != "openai" or pair.sent.answer != b"\n\n".join(events):
        yield "the client got other bytes than the provider sent"


def _stored(client: Client, session: Session, store: Store, found: Findings) -> None:
    """Look at the store: one conversation, which holds every output once, and nothing that was asked apart."""
    from leporello.proof.savings import savings_of, total_of

    infos = list(store.conversations())
    found.conversations, found.branches = len(infos), sum(info.branches for info in infos)
    found.folds = total_of(savings_of(store, info) for info in infos).compactions
    if found.conversations != client.conversations:
        found.problems.append(f"{found.conversations} conversations were made, not {client.conversations}")
    if not infos:
        return
    main = max(infos, key=lambda info: info.messages)
    rows = store.messages(main.key, owner=main.owner)
    path = [json.dumps(row.message, ensure_ascii=False) for row in rows]
    kept = path
    if client.compacts:
        rows = store.messages(main.key, owner=main.owner, superseded=True)
        kept = [json.dumps(row.message, ensure_ascii=False) for row in rows if not row.replaced]
    for number in range(1, client.turns + 1):
        times = sum(session.mark(number) in text for text in kept)
        if not times or (times > 1 and not client.compacts):
            found.problems.append(f"the output of turn {number} is stored {times} times")
            break
    if any(mark in text for text in path for mark in client.apart):
        found.problems.append("a request that was made apart is on the main branch")


def _refused(pairs: list[Pair], before: Relay, found: Findings) -> None:
    """Note what was refused: by the provider, unless it got the client's own bytes, and by the gateway."""
    of_provider = [pair for pair in pairs if pair.got.status >= _ERROR]
    found.own_refused = sum(pair.is_verbatim for pair in of_provider)
    wrong = [pair.got for pair in of_provider if not pair.is_verbatim]
    asked = [pair.sent for pair in of_provider]
    wrong += [one for one in before.records if one.is_completion and one.status >= _ERROR and one not in asked]
    found.problems += [f"{one.status}: {one.answer[:300].decode(errors='replace')}" for one in wrong[:3]]


def _calls(body: dict[str, Any]) -> str:
    """Return the end of a history, where the rounds are that the engine answered."""
    return json.dumps((body.get("messages") or body.get("input") or [])[-2:])


def _body(record: Record) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(record.body)
    return told


def _history(body: dict[str, Any], dialect: str) -> list[Any]:
    items = body.get("input" if dialect == "responses" else "messages") or []
    return items if isinstance(items, list) else [{"role": "user", "content": items}]


def _unread(client: Client, body: dict[str, Any]) -> list[str]:
    """Return what is said behind the newest words of the model."""
    items = _history(body, client.dialect)
    last = max((at for at, item in enumerate(items) if _is_of_model(item)), default=-1)
    return [word for item in items[last + 1 :] for word in _words(item) if word != NO_REPLY]


def _newest(body: dict[str, Any], dialect: str) -> list[str]:
    """Return the words of the user's newest message."""
    said = [item for item in _history(body, dialect) if isinstance(item, dict) and _is_of_user(item)]
    return _words(said[-1]) if said else []


def _is_of_user(item: dict[str, Any]) -> bool:
    content = item.get("content")
    results = isinstance(content, list) and all(part.get("type") == "tool_result" for part in content)
    return item.get("role") == "user" and not results


def _is_of_model(item: Any) -> bool:
    if _words(item) == [NO_REPLY]:  # a line between two messages of the user, written by the gateway
        return False
    return item.get("role") == "assistant" or bool(_OF_MODEL.fullmatch(str(item.get("type", ""))))


def _words(value: Any) -> list[str]:
    """Return everything that is said in a message, however it is written."""
    if isinstance(value, str):
        return [value] if value else []
    if isinstance(value, list):
        return [word for one in value for word in _words(one)]
    if isinstance(value, dict):
        return [word for key, one in sorted(value.items()) if key not in _NOT_SAID for word in _words(one)]
    return []


def _without(body: dict[str, Any], names: set[str]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in names}


def _different(one: dict[str, Any], other: dict[str, Any]) -> str:
    keys: Callable[[str], bool] = lambda key: one.get(key) != other.get(key)  # noqa: E731
    return ", ".join(filter(keys, sorted({*one, *other})))
