"""What was done, is being done, and is stuck: from tool calls and their outcome."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from operator import itemgetter
from typing import TYPE_CHECKING

from leporello.summary.artifacts import call_text
from leporello.summary.artifacts.files import CHANGES
from leporello.summary.artifacts.spots import sentence_at
from leporello.summary.extract.story import is_trivial
from leporello.summary.extract.wording import announces, gist, one_line, quoted
from leporello.summary.template.file_lines import times
from leporello.summary.template.shape import answer_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from leporello.summary.artifacts import Artifacts, CommandTrace
    from leporello.summary.extract.story import QuestionAnswer, Story

_LOOKS = re.compile(
    r"(?:sudo )?(?:ls|cat|head|tail|less|grep|rg|find|pwd|cd|tree|wc|which|echo|env|whoami|ps|df|du|stat|file|sed -n"
    r"|awk|sleep|git (?:status|log|diff|show|branch|remote|blame)"
    r"|gh (?:api|(?:pr|issue|repo|run|release) (?:view|list|diff|checks|status)))\b"
    r"|(?:get|list|read|search|find|view|open|show|fetch|lookup|glob|grep|calculate|think|scroll|goto|todo|update_plan"
    r"|task_?(?:create|get|list|output|update))\w*\(",
    re.IGNORECASE,
)
_UNANSWERED = "the latest instruction of these turns was not answered yet"
_BEGUN = "the latest instruction of these turns was begun, but not answered yet"
NOT_ANSWERED = frozenset({_UNANSWERED, _BEGUN})
_PLAN = re.compile(
    r"\b(?:next(?:,| step)|i'll|i will|let me|let's|then i|we (?:need|should)|i need to"
    r"|remaining(?=:| (?:work|steps?|tasks?|items?)\b)|todo|still (?:need|to))\b"
    r"|接下来|下一步|然后|我(?:会|将|来)|还需要|需要(?:先|再)",
    re.IGNORECASE,
)
_STUCK = re.compile(
    r"\b(?:blocked|stuck|unable to|cannot proceed|can't proceed|waiting (?:for|on)|not possible)\b"
    r"|无法|卡住|等待",
    re.IGNORECASE,
)
_BEGINS = re.compile(r"\b(?:launched|started|queued|submitted|scheduled)\b", re.IGNORECASE)
"""How a tool says that another agent is at work: no report yet."""
_ANNOUNCED = 60  # characters
_COMMANDS, _EXCHANGES, _STUCK_COMMANDS, _STEPS, _PER_LINE, _AT_ONCE = 80, 60, 6, 6, 12, 4
_REQUEST, _ANSWER, _COMMAND = 90, 200, 120


def done(story: Story, artifacts: Artifacts, asked: str = "") -> list[str]:
    """Say what was done, oldest first: answers, files changed, and what the telling commands reported.

    Files stand with the request that they were changed for; `asked` is one from before these turns that was open. Where
    there is nothing of all that, it says what was looked at.
    """
    exchanges = _with_request(story.exchanges, asked)
    answered = [exchange for exchange in exchanges if exchange.answer and not is_trivial(exchange.request)]
    telling = [trace for trace in artifacts.commands if trace.outcome != "unknown" and not _LOOKS.match(trace.text)]
    events = list(_changes(exchanges, artifacts))
    events += [(exchange.index, _answer(exchange)) for exchange in answered[-_EXCHANGES:]]
    events += [(trace.last, _report(trace, story.reports)) for trace in telling[-_COMMANDS:]]
    told = [line for _, line in sorted(events, key=itemgetter(0))]
    tasks = [] if _is_work_left(story) else _task_list(story)
    return [*told, *tasks] or _looked_at(story, artifacts)


def _with_request(exchanges: Sequence[QuestionAnswer], asked: str) -> Sequence[QuestionAnswer]:
    """Return the exchanges with an earlier request before an answer that has none."""
    if not asked or is_trivial(asked) or not exchanges or exchanges[0].request:
        return exchanges
    return (replace(exchanges[0], request=asked), *exchanges[1:])


def _changes(exchanges: Iterable[QuestionAnswer], artifacts: Artifacts) -> Iterator[tuple[int, str]]:
    """Yield the files that were changed for each request, behind the last change; a change that failed is none."""
    done = {trace.text: sum(n for what, n in trace.actions if what in CHANGES) for trace in artifacts.files}
    for exchange in exchanges:
        counts = Counter(path for _, path in exchange.changed if done.get(path))
        names = [times(path.rsplit("/", 1)[-1], min(count, done[path])) for path, count in counts.items()]
        for at in range(0, len(names), _PER_LINE):
            yield exchange.changed[-1][0], f"changed {', '.join(names[at : at + _PER_LINE])}"


def _looked_at(story: Story, artifacts: Artifacts) -> list[str]:
    """Say which files were read and what was searched for, in one line."""
    read = [
        trace.text.rsplit("/", 1)[-1]
        for trace in artifacts.files
        if any(action == "read" for action, _ in trace.actions)
    ]
    parts = [f"read {', '.join(dict.fromkeys(read[-_PER_LINE:]))}"] if read else []
    in_part = dict.fromkeys(path.rsplit("/", 1)[-1] for path in story.read_in_part[-_PER_LINE:])
    parts += [f"read a part of {', '.join(in_part)}"] if in_part else []
    outputs = [f"`{one_line(call, _COMMAND)}`" for call in story.outputs[-_AT_ONCE:]]
    parts += [f"read what came of {', '.join(outputs)}"] if outputs else []
    if story.searched:
        parts.append(f"searched for {', '.join(f'`{pattern}`' for pattern in story.searched[-_PER_LINE:])}")
    return ["; ".join(parts)] if parts else []


def in_progress(story: Story) -> list[str]:
    """Say what was under way when the turns ended."""
    lines = _task_list(story) if _is_work_left(story) else []
    lines += [f"called, no result yet: `{call_text(call)}`" for call in story.open_calls[-_STEPS:]]
    return lines


def blocked(story: Story, artifacts: Artifacts) -> list[str]:
    """Say what failed last and did not succeed since, and where that was said."""
    succeeded: set[str] = set()
    lines: list[str] = []
    for trace in reversed(artifacts.commands):
        program = _program(trace)
        if trace.outcome == "ok":
            succeeded.add(program)
        elif _is_stuck(trace) and program not in succeeded and len(lines) < _STUCK_COMMANDS:
            lines.append(_report(trace, story.reports))
    said = [sentence for text, _ in story.last_words for sentence in _sentences(text, _STUCK)]
    return [*reversed(lines), *said[-2:]]


def next_steps(story: Story, artifacts: Artifacts) -> list[str]:
    """Say what was planned: the latest plan, without what was done at once, and a request that is not answered yet."""
    decided = {trace.text for trace in artifacts.decisions}
    plans = [
        plan
        for text, is_begun in story.last_words[-2:]
        for plan in _sentences(text, _PLAN)
        if plan not in decided and not (is_begun and announces(plan))
    ]
    lines = [f"the assistant planned: {sentence}" for sentence in plans[-_STEPS:]]
    if story.unanswered:
        lines.append(_BEGUN if story.exchanges[-1].acted else _UNANSWERED)
    return lines


def _task_list(story: Story) -> list[str]:
    """Write the list of tasks as it stood last, in one line as it was written in one call.

    The tool and the words for states are those of the list: they are what it is kept with.
    """
    states: dict[str, list[str]] = {}
    for task in sorted(story.tasks, key=lambda task: (task.is_done, not task.is_begun)):
        states.setdefault(task.state, []).append(task.text)
    told = " | ".join(f"{state}: {'; '.join(texts)}" for state, texts in states.items())
    return [f"tasks ({story.task_tool}) {told}"] if told else []


def _is_work_left(story: Story) -> bool:
    return not all(task.is_done for task in story.tasks)


def _answer(exchange: QuestionAnswer) -> str:
    """Say what was asked and how the answer began, in one line; the request may stand in earlier turns."""
    request = quoted(exchange.request, _REQUEST) if exchange.request else ""
    return answer_line(request, gist(exchange.answer, _ANSWER))


def _report(trace: CommandTrace, reports: Mapping[str, str]) -> str:
    """Say how a command went, in one line; of a task that was handed over, how its report begins."""
    report = gist(reports.get(trace.text, ""), _ANSWER) if trace.outcome == "ok" else ""
    if report and not _BEGINS.search(report[:_ANNOUNCED]):
        return f"`{one_line(trace.text, _COMMAND)}` → {report}"
    if report:
        return f"`{one_line(trace.text, _COMMAND)}`: {one_line(report, _ANNOUNCED)}"
    runs = f", {trace.failures} of {trace.count} runs failed" if trace.failures and trace.count > 1 else ""
    verdict = trace.detail or trace.outcome
    if trace.outcome == "failed" and "fail" not in verdict.lower():
        verdict = f"failed: {verdict}"
    times = f" ({trace.count}×)" if trace.count > 1 and not runs else ""
    return f"`{one_line(trace.text, _COMMAND)}`: {verdict}{runs}{times}"


def _is_stuck(trace: CommandTrace) -> bool:
    """Tell whether a command failed that was more than a look."""
    return trace.outcome == "failed" and not _LOOKS.match(trace.text)


def _program(trace: CommandTrace) -> str:
    words = [word for word in re.split(r"[\s(]", trace.text) if word and not word.startswith("-") and "=" not in word]
    return " ".join(words[:2]) if "(" not in trace.text[:40] else words[0]


def _sentences(text: str, cue: re.Pattern[str]) -> Iterable[str]:
    found = (sentence_at(text, match.start()).strip(" -*#>`") for match in cue.finditer(text))
    return list(
        dict.fromkeys(
            one_line(sentence.replace("**", ""), _ANSWER) for sentence in found if not sentence.endswith((":", "："))
        )
    )
