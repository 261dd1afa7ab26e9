"""The course of a conversation: what was asked, what was answered, and which list of tasks was kept."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from leporello.summary.artifacts.call_lines import call_text, is_delegated
from leporello.summary.artifacts.files import CHANGES, call_actions, clean
from leporello.summary.extract.tasks import ListedTask, TaskList
from leporello.summary.extract.wording import announces

if TYPE_CHECKING:
    from collections.abc import Iterable

    from leporello.messages.types import ToolCall
    from leporello.summary.artifacts.reading import ReadTurn

_TRIVIAL = re.compile(
    r"(?:yes|no|y|n|ok(?:ay)?|sure|thanks?|thank you|please|continue|go on|go ahead|proceed|great|good|perfect|nice"
    r"|correct|right|是的?|好的?|可以|继续|谢谢你?|不是?|嗯|对)"
    r"(?:[ ,.!。！，]+(?:please|thanks?|go ahead|continue|do it))?[\s.!。！]*",
    re.IGNORECASE,
)
_THANKS = re.compile(r"(?:thank|谢谢|多谢).{0,60}|.{0,60}(?:thank you|谢谢).{0,40}", re.IGNORECASE | re.DOTALL)
_PATTERN_KEYS = ("pattern", "query", "regex", "search", "q")
_LONGEST_PATTERN = 60


@dataclass(frozen=True, kw_only=True)
class QuestionAnswer:
    """A request of the user, and the last thing said in answer to it.

    `index` is the message that mentioned it last, `acted` tells of tool calls in between, `changed` are the files that
    they changed, each with the index of the message.
    """

    request: str
    index: int
    answer: str = ""
    acted: bool = False
    changed: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Story:
    """A conversation as a sequence of exchanges; the first one has no request when the assistant began.

    A sentence that only announces the calls beside it is no answer. `last_words` are the last things that the assistant
    said, each with whether the calls beside it were answered. `outputs` are the calls whose output stands here alone,
    `reports` what came back for tasks that were handed over in words, `tasks` the list as it stood last, kept with
    `task_tool`.
    """

    exchanges: tuple[QuestionAnswer, ...] = ()
    last_words: tuple[tuple[str, bool], ...] = ()
    searched: tuple[str, ...] = ()
    read_in_part: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    reports: dict[str, str] = field(default_factory=dict)
    open_calls: tuple[ToolCall, ...] = ()
    tasks: tuple[ListedTask, ...] = ()
    task_tool: str = ""

    @property
    def requests(self) -> tuple[str, ...]:
        """All that the user asked, oldest first."""
        return tuple(exchange.request for exchange in self.exchanges if exchange.request)

    @property
    def unanswered(self) -> str:
        """The newest request, when nothing was said in answer to it yet."""
        newest = self.exchanges[-1] if self.exchanges else None
        return newest.request if newest and not newest.answer and not is_trivial(newest.request) else ""


def read_story(turns: Iterable[ReadTurn]) -> Story:
    """Follow a conversation from its first turn to its last."""
    exchanges: list[QuestionAnswer] = []
    request, answer, acted, index = "", "", False, 0
    words: list[tuple[str, ReadTurn]] = []
    searched: dict[str, None] = {}
    in_part: dict[str, None] = {}
    outputs: dict[str, None] = {}
    reports: dict[str, str] = {}
    changed: list[tuple[int, str]] = []
    open_calls: dict[str, ToolCall] = {}
    tasks = TaskList()
    for turn in turns:
        for result in turn.results:
            call = open_calls.pop(result.call_id, None)
            if call and is_delegated(call):
                reports[call_text(call)] = result.text
            in_part.update(dict.fromkeys(filter(None, [result.about])))
            outputs.update(dict.fromkeys(filter(None, [result.called])))
            tasks.answered(result.call_id, result.text)
        text = turn.text.strip()
        if turn.role == "user" and text:
            if request or answer or acted:
                exchanges.append(_exchange(request, index, answer, changed, acted=acted))
            request, answer, acted, changed = text, "", False, []
        elif turn.role == "assistant" and text:
            if not (turn.calls and announces(text)):
                answer, index = text, turn.at
            words.append((text, turn))
        for position, call in enumerate(turn.calls):
            acted = True
            open_calls[call.id or f"{turn.at}.{position}"] = call
            searched.update(dict.fromkeys(_patterns(call)))
            changed += ((turn.at, path) for path in _changed(call))
            tasks.called(call)
    if request or answer or acted:
        exchanges.append(_exchange(request, index, answer, changed, acted=acted))
    return Story(
        exchanges=tuple(exchanges),
        last_words=tuple((text, _is_answered(turn, open_calls)) for text, turn in words[-3:]),
        searched=tuple(searched),
        read_in_part=tuple(in_part),
        outputs=tuple(outputs),
        reports=reports,
        open_calls=tuple(open_calls.values()),
        tasks=tasks.tasks,
        task_tool=tasks.tool,
    )


def _exchange(
    request: str, index: int, answer: str, changed: Iterable[tuple[int, str]], *, acted: bool
) -> QuestionAnswer:
    return QuestionAnswer(request=request, index=index, answer=answer, acted=acted, changed=tuple(changed))


def _changed(call: ToolCall) -> list[str]:
    """Return the files that a call changes."""
    done = dict.fromkeys(clean(path) for action, path in call_actions(call) if action in CHANGES)
    return list(filter(None, done))


def _is_answered(turn: ReadTurn, open_calls: dict[str, ToolCall]) -> bool:
    waiting = {id(call) for call in open_calls.values()}
    return bool(turn.calls) and not any(id(call) in waiting for call in turn.calls)


def _patterns(call: ToolCall) -> list[str]:
    """Return what a call searches for."""
    found = (call.arguments.get(key) for key in _PATTERN_KEYS)
    return [one for one in found if isinstance(one, str) and one and "\n" not in one and len(one) <= _LONGEST_PATTERN]


def is_trivial(request: str) -> bool:
    """Tell whether a request only agrees or says thanks."""
    return bool(_TRIVIAL.fullmatch(request.strip()) or _THANKS.fullmatch(request.strip()))
