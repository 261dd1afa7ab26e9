"""Only what the user said becomes a constraint of the user.

A model that summarises may take a demand out of a file, a web page or a tool's output for one of the user. Where a line
under Constraints & Preferences repeats words of such a text, and few of them are words of the user, it becomes a
quotation under Critical Context.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from leporello.summary.answers import quoted
from leporello.summary.artifacts.reading import read_turns
from leporello.summary.template.shape import line_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from leporello.redact import RedactedMessage
    from leporello.summary.artifacts.reading import ReadTurn
    from leporello.summary.template import Sections

RUN = 4  # words in a row that are a quotation
SUPPORT = 0.5  # of the words of a line: the share of the user's own that makes it the user's
_SHORT = 4  # characters; shorter words stand in every text
_WORD = re.compile(r"\w+")


def users_only(sections: Sections, messages: Sequence[RedactedMessage], earlier: Sections) -> Sections:
    """Return the sections with every constraint that is not the user's own as a quotation; earlier ones stay."""
    known = {line_key(line) for line in earlier.constraints}
    new = [line for line in sections.constraints if line_key(line) not in known]
    if not new:
        return sections
    turns = list(read_turns(messages))
    said = set(_words(turn.text for turn in turns if turn.role == "user"))
    record = f" {' '.join(_words(_not_said_by_the_user(turns)))} "
    foreign = {line for line in new if not _is_supported(line, said) and _repeats(line, record)}
    return replace(
        sections,
        constraints=tuple(line for line in sections.constraints if line not in foreign),
        critical=(*sections.critical, *(quoted(line) for line in sections.constraints if line in foreign)),
    )


def _not_said_by_the_user(turns: Iterable[ReadTurn]) -> Iterator[str]:
    for turn in turns:
        if turn.role != "user":
            yield turn.text
        yield from (result.text for result in turn.results)
        yield from (call.raw for call in turn.calls)


def _is_supported(line: str, said: set[str]) -> bool:
    """Tell whether the words of a line are the user's, in any order."""
    words = _words([line])
    telling = {word for word in words if len(word) >= _SHORT} or set(words)
    return len(telling & said) >= SUPPORT * len(telling)


def _repeats(line: str, text: str) -> bool:
    """Tell whether a line has a run of words from a text, or all of its words when they are few."""
    words = _words([line])
    runs = [words[start : start + RUN] for start in range(max(1, len(words) - RUN + 1))]
    return bool(words) and any(f" {' '.join(run)} " in text for run in runs)


def _words(texts: Iterable[str]) -> list[str]:
    return [word for text in texts for word in _WORD.findall(text.casefold())]
