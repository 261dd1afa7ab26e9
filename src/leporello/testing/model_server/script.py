"""What the model server says: steps, and how the short ways of writing them become one."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from leporello.messages.types import text_of
from leporello.testing.model_server.failures import Failure, Planned

if TYPE_CHECKING:
    from leporello.testing.model_server.requests import ReceivedRequest


@dataclass(frozen=True, kw_only=True)
class Use:
    """A tool call; an id is made up when there is none."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""


@dataclass(frozen=True, kw_only=True)
class Step:
    """One answer of the model; `finish` is "stop", "length", "tool_calls" or "content_filter" ("": what fits).

    `items` are further items of an answer in the Responses API, between the thinking and the text.
    """

    text: str = ""
    thinking: str = ""
    tool_calls: Sequence[Use] = ()
    finish: str = ""
    items: Sequence[Mapping[str, Any]] = ()

    @property
    def finish_reason(self) -> str:
        """The reason that the answer ends, in OpenAI's words."""
        return self.finish or ("tool_calls" if self.tool_calls else "stop")


Scripted: TypeAlias = "Step | Planned | Failure | str | Mapping[str, Any] | Callable[[ReceivedRequest], Scripted]"


def resolve(scripted: Scripted, request: ReceivedRequest) -> Step | Planned:
    """Turn an item of a script into a step or a failure for this request."""
    while callable(scripted) and not isinstance(scripted, Failure):
        scripted = scripted(request)
    if isinstance(scripted, Failure):
        return Planned(failure=scripted)
    if isinstance(scripted, str):
        return Step(text=scripted)
    if isinstance(scripted, Mapping):
        return from_mapping(scripted)
    return scripted


def from_mapping(item: Mapping[str, Any]) -> Step | Planned:
    """Read a step from JSON: {"text", "thinking", "tool_calls": [{"name", "arguments"}], "finish", "items"}.

    {"fail": "…"} is a failure.
    """
    known = {"text", "thinking", "tool_calls", "finish", "items"}
    if "fail" in item:
        return Planned(failure=Failure(item["fail"]))
    if unknown := set(item) - known:
        raise ValueError(f"a step has {', '.join(sorted(known))} or fail, not {', '.join(sorted(unknown))}")
    uses = [Use(**use) for use in item.get("tool_calls", ())]
    return Step(**{**item, "tool_calls": uses})


def read_script(text: str) -> list[Step | Planned | str]:
    """Read a script file: a JSON list, or one JSON value per line; a value is a text or an object (`from_mapping`)."""
    items = (
        json.loads(text) if text.lstrip().startswith("[") else [json.loads(line) for line in text.splitlines() if line]
    )
    return [item if isinstance(item, str) else from_mapping(item) for item in items]


def echo(request: ReceivedRequest) -> Step:
    """Repeat the newest message: what the server does without a script."""
    said = text_of(request.messages[-1]) if request.messages else ""
    return Step(text=said or "(nothing to repeat)")
