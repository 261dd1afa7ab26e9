"""Answer tool calls: check the arguments, do it, and stay inside the budget; what is wrong becomes an error JSON."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from functools import cache, partial
from hashlib import blake2b
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING, Any

from leporello.errors import LeporelloError, ModelError, ToolError
from leporello.lcm.dag import flat_text
from leporello.lcm.tools.reader import Reader
from leporello.lcm.tools.schemas import SCHEMAS
from leporello.llm.client import cost_of
from leporello.redact import redact
from leporello.summary.blocks import moment, span
from leporello.summary.calls import ASSUMED_WINDOW
from leporello.summary.template import cut
from leporello.tokens import count_text
from leporello.tool_arguments import checked

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from leporello.config.model import Lcm
    from leporello.lcm.artifacts import ArtifactTrail
    from leporello.redact import Redacted
    from leporello.store import Branch
    from leporello.store.search import Hit
    from leporello.summary import Summariser

MOST_ANSWER_TOKENS = 12_000  # of lcm_grep and lcm_artifacts; what is beyond it is behind the cursor
PASSAGES = 12
_PASSAGE_TOKENS, _SMALLEST_PASSAGE = 600, 40
_PROMPT_SHARE = 0.7  # of the model's window, for passages and answer
_ANSWER_TIMEOUT = 60.0
ANSWER = "lcm_expand_query"  # the reason in the journal


class LCMTools:
    """The tools of one conversation."""

    def __init__(
        self,
        branch: Branch,
        settings: Lcm,
        summariser: Summariser,
        trail: ArtifactTrail,
        status: Callable[[], dict[str, Any]],
    ) -> None:
        self._branch = branch
        self._settings = settings
        self._summariser = summariser
        self._reader = Reader(branch, settings, trail)
        self._trail = trail
        self._status = status
        self._parameters = {tool["name"]: {**tool["parameters"], "additionalProperties": False} for tool in SCHEMAS}

    def call(self, name: str, given: Any) -> str:
        """Return the answer as JSON; an error names what is right."""
        parameters = self._parameters.get(name)
        if parameters is None:
            return _json({"error": f"Unknown tool: {redact(name)}"})
        do: Callable[..., dict[str, Any]] = getattr(self, f"_{name.removeprefix('lcm_')}")
        try:
            return _json(do(**checked(name, parameters, given)))
        except LeporelloError as error:
            return _json({"error": redact(str(error))})

    def _grep(
        self, query: str, limit: int, since: str | None, until: str | None, conversation: str | None, **wanted: Any
    ) -> dict[str, Any]:
        """Search; `wanted` are the other arguments, which the schema names as the store does."""
        find = partial(
            self._branch.store.search,
            query,
            **wanted,
            conversation=self._conversation(conversation),
            owner=self._branch.owner,
            since=_time("since", since),
            until=_time("until", until),
            without=self._asking(),
            hide_secrets=self._settings.redact,
        )
        while True:
            found = find(limit=limit)
            covering = self._reader.leaves((hit.id, hit.other_branch) for hit in found.hits)
            results = [self._hit(hit, covering.get(hit.id)) for hit in found.hits]
            fitting = _fitting(results, MOST_ANSWER_TOKENS)
            if fitting == len(results):
                break
            limit = fitting
        return {
            "results": results,
            "nodes": self._nodes([(covering[hit.id], hit) for hit in found.hits if hit.id in covering]),
            "complete": found.complete and found.cursor is None,
            "cursor": found.cursor,
        }

    def _asking(self) -> tuple[str, ...]:
        """Return the call that is being answered and what led to it, which is no answer to itself."""
        branch = self._branch
        return branch.store.asking(branch.conversation, self._parameters, **branch.here)

    def _conversation(self, wanted: str | None) -> str | None:
        """Return the conversation to search, None for all of the owner; what the scope forbids is an error."""
        own = self._branch.conversation
        if wanted in (None, "", own):
            return own
        if self._settings.scope != "owner":
            raise ToolError("only this conversation may be searched here (lcm.scope is conversation)")
        return None if wanted == "*" else wanted

    def _hit(self, hit: Hit, node: str | None) -> dict[str, Any]:
        return {
            "id": hit.id,
            **self._reader.home(hit.conversation),
            **({"branch": hit.other_branch} if hit.other_branch else {}),
            "seq": hit.seq,
            "rank": hit.rank,
            "node": node,
            "role": hit.role,
            "name": self._reader.text(hit.name),
            "time": moment(hit.time),
            "snippet": hit.snippet,
        }

    def _nodes(self, hits: Sequence[tuple[str, Hit]]) -> dict[str, Any]:
        homes = {name: hit.conversation for name, hit in hits}
        found = {name: self._branch.node_anywhere(name) for name in homes}
        return {
            name: {
                **self._reader.home(homes[name]),
                "covers": f"{node.messages} messages, seq {node.first_seq} to {node.last_seq}",
                "time": span(node.time_from, node.time_to),
                "hits": sum(other == name for other, _ in hits),
            }
            for name, node in found.items()
            if node is not None
        }

    def _describe(self, id: str) -> dict[str, Any]:  # noqa: A002 - its name in the schema
        return self._reader.describe(id)

    def _expand(self, id: str, max_tokens: int, cursor: str | None) -> dict[str, Any]:  # noqa: A002 - the same
        return self._reader.expand(id, max_tokens, cursor)

    def _expand_query(self, question: str, max_tokens: int) -> dict[str, Any]:
        branch = self._branch
        found = branch.store.search(
            question, conversation=branch.conversation, owner=branch.owner, without=self._asking(), limit=PASSAGES
        )
        hits = found.hits
        rows = self._branch.get_anywhere(hit.id for hit in hits)
        texts = {hit.id: redact(flat_text(rows[hit.id].message)) for hit in hits if hit.id in rows}
        answer, why = self._answered(question, texts, max_tokens) if texts else (None, "")
        if answer is not None:
            return {"answer": answer, "sources": [name for name in texts if f"[{name}]" in answer] or list(texts)}
        passages, complete = self._passages(texts, max_tokens)
        passages = [passage | self._reader.branch(rows[passage["id"]]) for passage in passages]
        result: dict[str, Any] = {"passages": passages, "complete": complete}
        if not complete:
            result["next"] = "lcm_expand with a message id returns all of it"
        if why:
            result["note"] = f"the model could not be asked ({why}); these are the best matching passages"
        return result

    def _answered(self, question: str, texts: dict[str, Redacted], max_tokens: int) -> tuple[str | None, str]:
        llm, state = self._summariser.llm, self._summariser.status()
        if llm is None or not state["available"]:
            return None, state["last_error"]
        room = int((llm.context_length or ASSUMED_WINDOW) * _PROMPT_SHARE) - max_tokens
        each = max(_SMALLEST_PASSAGE, min(_PASSAGE_TOKENS, room // len(texts)))
        shown = {name: cut(text, each) for name, text in texts.items()}
        boundary = "passage-" + blake2b("".join(shown.values()).encode(errors="replace"), digest_size=8).hexdigest()
        passages = "\n\n".join(f"<{boundary}>\n[{name}]\n{text}\n</{boundary}>" for name, text in shown.items())
        prompt = _prompt().substitute(
            budget=max_tokens, question=redact(question), boundary=boundary, passages=passages
        )
        try:
            completion = llm.complete(
                [{"role": "user", "content": prompt}], max_tokens=max_tokens, timeout=_ANSWER_TIMEOUT
            )
        except ModelError as error:
            return None, redact(str(error))
        self._branch.note_cost(ANSWER, completion.usage, cost_of(llm, completion))
        return redact(completion.text), ""

    def _passages(self, texts: dict[str, Redacted], max_tokens: int) -> tuple[list[dict[str, Any]], bool]:
        """Return the best passages within a budget, and whether they are all there in full."""
        passages: list[dict[str, Any]] = []
        left, complete = max_tokens, True
        for name, text in texts.items():
            if left < _SMALLEST_PASSAGE:
                return passages, False
            shown = cut(text, min(left, max(_PASSAGE_TOKENS, max_tokens // 4)))
            complete = complete and shown == text
            passages.append({"id": name, "text": shown})
            left -= count_text(shown) + 12
        return passages, complete

    def _artifacts(self, kind: str | None, query: str | None, limit: int, cursor: str | None) -> dict[str, Any]:
        if cursor is not None and not cursor.isdecimal():
            raise ToolError("this cursor belongs to another tool; leave it out to start with the newest")
        branch = self._branch
        self._trail.catch_up()
        before = int(cursor) if cursor else None
        rows = branch.store.artifacts(
            branch.conversation, owner=branch.owner, kind=kind, query=query or None, limit=limit + 1, before=before
        )
        branches = self._reader.branches([found.message for _, found in rows[:limit]])
        entries = [
            {
                "kind": found.kind,
                "value": self._reader.text(found.value),
                "note": self._reader.text(found.note),
                "message": found.message,
                **branches[found.message],
                "time": moment(found.time),
            }
            for _, found in rows[:limit]
        ]
        shown = entries[: _fitting(entries, MOST_ANSWER_TOKENS)]
        complete = len(shown) == len(rows)
        return {
            "artifacts": shown,
            "complete": complete,
            "cursor": None if complete or not shown else str(rows[len(shown) - 1][0]),
        }


def _time(name: str, given: str | None) -> float | None:
    """Return a time in seconds; a time that cannot be read is an error."""
    if given is None:
        return None
    try:
        found = datetime.fromisoformat(given.strip())
    except ValueError:
        raise ToolError(
            f"{name} must be a time such as 2026-11-15 or 2026-11-15T09:30:00Z, in UTC when nothing else is said"
        ) from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()


def _fitting(entries: Sequence[dict[str, Any]], budget: int) -> int:
    """Return how many entries fit into a budget, at least one when there is one."""
    used = 0
    for number, entry in enumerate(entries):
        used += count_text(_json(entry))
        if number and used > budget:
            return number
    return len(entries)


def _json(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)


@cache
def _prompt() -> Template:
    return Template(files("leporello.lcm").joinpath("prompts", "answer.md").read_text("utf-8").strip())
