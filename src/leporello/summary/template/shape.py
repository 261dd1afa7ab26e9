"""The sections of a summary, how they are written, and how they are read back.

A section is a tuple of lines, oldest first; a line is an item without its bullet. Whatever a model answers is brought
into this shape by `parse`, and whatever leaves is written by `render` behind a bullet, so that no line can pass for a
heading.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, kw_only=True)
class Sections:
    """What a summary says, section by section, each oldest line first."""

    goal: tuple[str, ...] = ()
    constraints: tuple[str, ...] = ()
    done: tuple[str, ...] = ()
    in_progress: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()
    decisions: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()
    critical: tuple[str, ...] = ()


NAMES = tuple(field.name for field in fields(Sections))
HEADINGS = {
    "goal": "## Goal",
    "constraints": "## Constraints & Preferences",
    "done": "### Done",
    "in_progress": "### In Progress",
    "blocked": "### Blocked",
    "decisions": "## Key Decisions",
    "files": "## Relevant Files",
    "next_steps": "## Next Steps",
    "critical": "## Critical Context",
}
_PROGRESS = frozenset({"done", "in_progress", "blocked"})
_ALIASES = {
    "goal": ("goal", "goals", "objective", "objectives"),
    "constraints": ("constraints and preferences", "constraints", "preferences"),
    "done": ("progress", "done", "completed", "completed work"),
    "in_progress": ("in progress", "current work", "ongoing"),
    "blocked": ("blocked", "blockers"),
    "decisions": ("key decisions", "decisions"),
    "files": ("relevant files", "files", "key files"),
    "next_steps": ("next steps", "next step", "remaining work"),
    "critical": ("critical context", "key context", "important context"),
}
_SECTION_OF = {alias: name for name, aliases in _ALIASES.items() for alias in aliases}

_FENCE = re.compile(r"\s*(?:```|~~~)")
_WRAPPED = re.compile(r"\s*(```|~~~)\w*\s*\n(?P<inside>.*)\n\1\s*", re.DOTALL)
_HASHES = re.compile(r"\s{0,3}(?P<level>#{1,6})\s+(?P<title>[^\n]*?)[\s#]*$")
_BOLD = re.compile(r"\s*(?:\d{1,2}[.)]\s+)?(?:\*\*|__)(?P<title>[^*_:：]{2,40})[:：]?(?:\*\*|__)\s*[:：]?(?P<rest>.*)$")
_PLAIN = re.compile(r"(?P<title>[A-Za-z][A-Za-z &-]{2,40}):\s*$")
_BULLET = re.compile(r"^\s*(?:[-*•]|\d{1,3}[.)])\s+")
_NAME_LINE = re.compile(r"(?P<name>\S+) \([^\s()×]+(?:, [^\s()×]+){0,2}\)")
_ANSWER_LINE = re.compile(r"(?P<request>“.+”) → |the assistant said: ")
_NOTHING = frozenset(
    {"", "none", "none yet", "none so far", "n/a", "na", "nothing", "nothing yet", "无", "没有", "暂无"}
)
_AROUND = " \t[](){}<>*_`.。-–—…"


class _Place(NamedTuple):
    """Where the lines of a text belong while it is read."""

    section: str = "critical"
    level: int = 0
    prefix: str = ""


def render(sections: Sections) -> str:
    """Write the template; sections without a line are left out."""
    blocks: list[str] = []
    in_progress_written = False
    for name in NAMES:
        lines: tuple[str, ...] = getattr(sections, name)
        if not lines:
            continue
        opening = [HEADINGS[name]]
        if name in _PROGRESS and not in_progress_written:
            opening, in_progress_written = ["## Progress", *opening], True
        blocks.append("\n".join([*opening, *(f"- {line}" for line in lines)]))
    return "\n\n".join(blocks)


def parse(text: str) -> Sections:
    """Read a summary, however a model has written it; what stands under an unknown heading goes to Critical Context."""
    found: dict[str, list[str]] = {name: [] for name in NAMES}
    place, fenced = _Place(), False
    for raw in _unwrapped(text).split("\n"):
        if _FENCE.match(raw):
            fenced = not fenced
            continue
        heading = None if fenced else _heading(raw, place)
        place, rest = heading or (place, raw)
        line = rest.strip() if fenced else _BULLET.sub("", rest, count=1).strip()
        if not _is_nothing(line) and (place.level or not line.endswith((":", "："))):
            found[place.section].append(place.prefix + line)
    return Sections(**{name: unique(lines) for name, lines in found.items()})


def unique(lines: Iterable[str]) -> tuple[str, ...]:
    """Keep each line once, where it stands last: what comes up again is recent."""
    last: dict[str, str] = {}
    for line in lines:
        key = line_key(line)
        last.pop(key, None)
        last[key] = line
    return tuple(last.values())


def line_key(line: str) -> str:
    """Return what makes two lines the same: the text without case, spacing and closing punctuation."""
    return " ".join(line.casefold().split()).rstrip(".。!！;； ")


def name_line(name: str, words: Iterable[str]) -> str:
    """Write a name with words that stood beside it."""
    return f"{name} ({', '.join(words)})"


def name_in_line(name: str, words: Iterable[str]) -> str:
    """Write a name in the line of a file, with words where it has any."""
    return f"{name} ({beside})" if (beside := " ".join(words)) else name


def split_name(clause: str) -> tuple[str, list[str]]:
    """Return the name in the line of a file, and the words that it stands with."""
    name, _, words = clause.partition(" (")
    return name, words.removesuffix(")").split()


def name_in(line: str) -> str:
    """Return the name that such a line tells of; "" for any other line."""
    match = _NAME_LINE.fullmatch(line)
    return match["name"] if match else ""


def answer_line(request: str, answer: str) -> str:
    """Write what was said in answer to a quoted request, or by itself."""
    return f"{request} → {answer}" if request else f"the assistant said: {answer}"


def answered(line: str) -> str | None:
    """Return the request that such a line quotes, "" when it quotes none; None for any other line."""
    match = _ANSWER_LINE.match(line)
    return (match["request"] or "") if match else None


def _unwrapped(text: str) -> str:
    """Take off a code fence around the whole text."""
    match = _WRAPPED.fullmatch(text)
    return match["inside"] if match else text


def _heading(line: str, place: _Place) -> tuple[_Place, str] | None:
    """Return the place that a heading opens and what follows the heading on its line; None for any other line."""
    if hashes := _HASHES.match(line):
        return _opened(hashes["title"], len(hashes["level"]), place)
    bold = _BOLD.match(line) or _PLAIN.match(line)
    section = bold and _SECTION_OF.get(_title_key(bold["title"]))
    if not bold or not section:
        return None
    return _Place(section=section, level=2), bold.groupdict().get("rest") or ""


def _opened(title: str, level: int, place: _Place) -> tuple[_Place, str]:
    name, colon, rest = title.strip("*_ ").partition(":")
    section = _SECTION_OF.get(_title_key(name))
    if section:
        return _Place(section=section, level=level), rest.strip("*_ ") if colon else ""
    prefix = f"{title.strip('*_: ')}: "
    if 0 < place.level < level:
        return place._replace(prefix=prefix), ""
    return _Place(level=level, prefix=prefix), ""


def _title_key(title: str) -> str:
    words = re.findall(r"[a-z]+", title.casefold().replace("&", " and "))
    return " ".join(words)


def _is_nothing(line: str) -> bool:
    return line.strip(_AROUND).casefold() in _NOTHING
