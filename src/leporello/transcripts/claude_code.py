"""Session logs of Claude Code: a record per content block, in the order of the file; sub-agents in files of their own.

The links between records are not followed: a walk along them loses the results of parallel calls. Records of unknown
kinds are progress, snapshots and the like, and say nothing to the model.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from leporello.messages import text_of
from leporello.transcripts.blocks import Joined
from leporello.transcripts.model import RecordedCompaction, Skipped, Transcript, as_count, as_text, timed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from leporello.messages import Message
    from leporello.transcripts.model import OnSkip
    from leporello.transcripts.records import Record

_KINDS = frozenset({"user", "assistant"})
_OWN = ("sessionId", "uuid", "parentUuid", "isSidechain")
_SUBAGENTS = "subagents"


def knows(value: Any) -> bool:
    """Tell whether a value is a record of such a log."""
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        return False
    if value["type"] in _KINDS:
        return isinstance(value.get("message"), dict) and any(key in value for key in _OWN)
    return value.get("subtype") == "compact_boundary"


def subagent_logs(path: Path) -> list[Path]:
    """Return the logs of a session's sub-agents."""
    return sorted((path.parent / path.stem / _SUBAGENTS).rglob("agent-*.jsonl"))


def parent_log(path: Path) -> Path | None:
    """Return the log of the session that a sub-agent's log belongs to by its place; None for any other file."""
    folder = next((folder for folder in path.parents if folder.name == _SUBAGENTS), None)
    return folder.parent.with_suffix(".jsonl") if folder else None


def read(values: Iterable[Record], path: Path, on_skip: OnSkip) -> Iterator[Transcript]:
    """Yield the session of a log, then the sub-agents whose records stand in the same file."""
    logs: dict[str, _Log] = {}
    seen: set[str] = set()
    for number, value in values:
        if not isinstance(value, dict):
            on_skip(Skipped(file=str(path), line=number, reason="not a record"))
            continue
        if (uuid := as_text(value.get("uuid"))) in seen:
            continue
        if uuid:
            seen.add(uuid)
        agent = str(value.get("agentId") or "side") if value.get("isSidechain") else ""
        logs.setdefault(agent, _Log()).take(value)
    session = next((log.session for log in logs.values() if log.session), "")
    alone = len(logs) == 1
    for agent, log in logs.items():
        name = path.stem if alone or not agent else f"{path.stem}/{agent}"
        parent = (session if alone else path.stem) if agent else ""
        if log.joined.messages:
            yield log.transcript(name, parent)


class _Log:
    """One agent's records, put together."""

    def __init__(self) -> None:
        self.joined = Joined()
        self.compactions: list[RecordedCompaction] = []
        self.session = self.model = ""
        self.meta: dict[str, Any] = {}

    def take(self, record: dict[str, Any]) -> None:
        kind, message = as_text(record.get("type")), record.get("message")
        self.session = self.session or str(record.get("sessionId") or "")
        if record.get("subtype") == "compact_boundary":
            data = record.get("compactMetadata")
            data = data if isinstance(data, dict) else {}
            self._compacted(tokens=as_count(data.get("preTokens")), trigger=str(data.get("trigger") or ""))
        elif kind not in _KINDS or not isinstance(message, dict) or record.get("isApiErrorMessage"):
            return
        elif record.get("isCompactSummary"):
            self._summary(text_of(message))
        else:
            self._said(record, message)

    def transcript(self, name: str, parent: str) -> Transcript:
        """Return the conversation; compactions keep their places among the messages that say anything."""
        messages = self.joined.finished()
        places = {id(message): at for at, message in enumerate(messages)}
        after = [places.get(id(message), -1) for message in self.joined.messages]
        compactions = tuple(
            RecordedCompaction(
                at=1 + max(after[: one.at], default=-1),
                summary=one.summary,
                tokens_before=one.tokens_before,
                trigger=one.trigger,
            )
            for one in self.compactions
        )
        return Transcript(
            name=name,
            format="claude-code",
            messages=messages,
            compactions=compactions,
            model=self.model,
            parent=parent,
            meta=self.meta,
        )

    def _said(self, record: dict[str, Any], message: dict[str, Any]) -> None:
        if not self.model and isinstance(message.get("model"), str) and not message["model"].startswith("<"):
            self.model = message["model"]
        for key in ("cwd", "version", "gitBranch"):
            if key in record:
                self.meta.setdefault(key, record[key])
        said = cast("Message", {"role": message.get("role"), "content": message.get("content")})
        self.joined.add(timed(said, record.get("timestamp")), str(message.get("id") or ""))

    def _compacted(self, *, tokens: int, trigger: str) -> None:
        self.compactions.append(RecordedCompaction(at=len(self.joined), tokens_before=tokens, trigger=trigger))

    def _summary(self, text: str) -> None:
        last = self.compactions[-1] if self.compactions else None
        if last is None or last.summary or last.at != len(self.joined):
            self._compacted(tokens=0, trigger="")
            last = self.compactions[-1]
        self.compactions[-1] = RecordedCompaction(
            at=last.at, summary=text, tokens_before=last.tokens_before, trigger=last.trigger
        )
