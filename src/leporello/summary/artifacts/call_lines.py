"""A call as one line, and what a view of its result says about it when the call is not there to be read."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from leporello.redact import ABOUT, CALLED, PRINTED, redact_value
from leporello.summary.artifacts.files import command_of, file_of, runs, telling_arguments
from leporello.summary.artifacts.reading import lines_of

if TYPE_CHECKING:
    from leporello.messages.types import ToolCall

_PLUMBING = re.compile(r"^cd [^&;|]{1,200}&& |\s2>&1|\s2>/dev/null")
_COMMAND_LENGTH = 160
_ARGUMENT_LENGTH = 60
_TASK = "prompt"
"""The argument in which an agent is told what to do."""
_TITLE = "description"


def call_text(call: ToolCall) -> str:
    """Write a call as one short line: its command, the title of what another agent is to do, or its arguments."""
    command = command_of(call)
    if command:
        return _shortened(" ".join(_PLUMBING.sub("", command).split()), _COMMAND_LENGTH)
    title = call.arguments.get(_TITLE)
    if is_delegated(call) and isinstance(title, str) and title.strip():
        return f"{call.name or 'tool'}({_shortened(' '.join(title.split()), _COMMAND_LENGTH)})"
    arguments = ", ".join(
        f"{key}={_shortened(' '.join(lines_of(value).split()), _ARGUMENT_LENGTH)}"
        for key, value in telling_arguments(call).items()
    )
    return _shortened(f"{call.name or 'tool'}({arguments})", _COMMAND_LENGTH)


def is_delegated(call: ToolCall) -> bool:
    """Tell whether a call hands a task over in words, so that what comes back is an answer in words."""
    return isinstance(call.arguments.get(_TASK), str)


def marks_of(call: ToolCall) -> dict[str, Any]:
    """Return what a view of a result says about a call that is not there: its file or its line, whether it ran."""
    file = file_of(call)
    about = {ABOUT: file} if file else {CALLED: call_text(_redacted(call))}
    return {**about, **({PRINTED: True} if runs(call) else {})}


def _redacted(call: ToolCall) -> ToolCall:
    """Return a call without secrets, before it is shortened: of half a secret nobody could tell what it is."""
    return replace(call, arguments={key: redact_value(value) for key, value in call.arguments.items()})


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"
