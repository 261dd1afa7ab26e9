"""The list of names at the end of a summary: what else the conversation named, where the window does not show it.

It is made anew at every fold, of what leaves the window then and of the list that stood there before, so it knows the
whole window: a name that stands in a message, in the summary or in a block is not told again, and an output that was
masked leaves its names here. Names stand in the line of their file, or beside words that stood in the same lines.
Those that user or assistant used come first, then those that only stood in outputs; what a program printed is left out.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING, Final

from leporello.messages import text_of, tool_calls_of
from leporello.redact import EMPTY, redact, redact_messages
from leporello.summary.artifacts.reading import read_turns
from leporello.summary.extract.salient_names import WORDS_BESIDE, Names, names_in, texts_in, words_in
from leporello.summary.outline import in_full_from
from leporello.summary.payloads import left_out
from leporello.summary.template import file_line, parse
from leporello.summary.template.file_lines import read_note, split_file_line
from leporello.summary.template.shape import HEADINGS, name_in, name_line, split_name
from leporello.tokens import count_message, count_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from leporello.messages import Message
    from leporello.redact import Redacted, RedactedMessage
    from leporello.summary.refire import Targets

MOST_NAMES: Final = 0.19
"""The share of a window that names may take, with those in the lines of its summary."""
LIST_SHARE: Final = 0.10
"""The share of the threshold that is kept free for the list when the messages are chosen that stay."""
WORKING_SET: Final = 4_000
"""Tokens of names that work goes on with, however small the window: up to here the share is that of the window as it is
on average until the next fold, and not as the fold leaves it."""

_HEADING: Final = "## Names"
_LIST = re.compile(rf"(?:^|\n\n){_HEADING}\n(?:- .+(?:\n|$))+")
_NAMED_LINE = re.compile(r"- (?P<names>\S+(?:, \S+)*) \((?P<words>[^()]+)\)")
_READ: Final = "read: "
_FILE_LINE = re.compile(rf"- (?P<file>.+?) — (?P<used>.*?)(?:; )?(?:{_READ}(?P<read>.*))?")
_OF_FILES = frozenset({_HEADING, HEADINGS["files"]})
_LINE_BREAK = 1
_BRACKET = re.compile(r"[\[\]]")
_MOST_PER_LINE, _LONGEST_LINE = 20, 800  # names and characters beside the same words


def without_names(text: str) -> str:
    """Return a summary without its list of names."""
    found = list(_LIST.finditer(text))
    return (text[: found[-1].start()] + text[found[-1].end() :]).strip() if found else text


def names_of(text: str) -> str:
    """Return the list of names at the end of a summary, or ""."""
    found = _LIST.findall(text)
    return found[-1].strip() if found else ""


def room_for_names(
    summaries: Iterable[str], window: int, before: int, targets: Targets, limit: int | None = None
) -> int:
    """Return how many tokens the list may take: what names in the summaries leave, and what the fold may spend.

    `window` and `before` are the tokens of the window with and without the fold. `limit` is how large it may become,
    None for the threshold. What cannot be folded may fill it beyond that: then the list has to fit into the context
    length only.
    """
    told = sum(map(_tokens_of_names, summaries))
    most, left = (window * MOST_NAMES - told) / (1 - MOST_NAMES), before - targets.least - window
    if targets.goal is not None and targets.most is not None:
        most = max(most, min(WORKING_SET, targets.goal * MOST_NAMES) - told)
        wanted = max(targets.goal, limit or 0)
        left = min(left, (wanted if window < wanted else targets.most) - window)
    return max(0, min(int(most), left))


def _tokens_of_names(summary: str) -> int:
    """Return how many tokens the names in a summary take, in lines of their own and in those of their files."""
    sections = parse(summary)
    alone = [line for line in (*sections.files, *sections.critical) if name_in(line)]
    notes = [read_note(split_file_line(line)[1]).said for line in sections.files if not name_in(line)]
    return sum(count_text(line) + _LINE_BREAK for line in (*alone, *(", ".join(said) for said in notes if said)))


def name_list(
    leaving: Sequence[RedactedMessage], earlier: str, window: Iterable[Message], most_tokens: int
) -> Redacted:
    """Return the list for a window, of the messages that leave it and of the list before; "" when there is none.

    It has the most salient names that stand nowhere in the window, as many as take no more than `most_tokens`.
    """
    left = most_tokens - count_text(f"\n\n{_HEADING}\n")
    if left <= 0:
        return EMPTY
    names = Names(list(read_turns(leaving, in_full_from(leaving))), logs=False)
    _recall(names, earlier)
    shown = _shown(names, window)
    chosen: dict[str, str] = {}
    groups: set[frozenset[str]] = set()
    for name in names.ranked():
        home = "" if name in shown else names.home(name)
        words = [] if name in shown or home else names.beside(name)
        if not home and not words:
            continue
        if home:
            line = f", {name}" if home in chosen.values() else f"- {home} — {name}; {_READ}"
        else:
            line = f", {name}" if frozenset(words) in groups else f"- {name_line(name, words)}"
            groups.add(frozenset(words))
        left -= count_text(line) + _LINE_BREAK
        if left < 0:
            break
        chosen[name] = home
    while chosen and count_text(listed := _listed(names, chosen)) > most_tokens:
        for name in list(chosen)[-max(1, len(chosen) // 20) :]:  # words beside a name take some room, too
            del chosen[name]
    return redact(listed) if chosen else EMPTY


def names_left_out(call: Message | None, output: Message, shown: Message) -> Redacted:
    """Return the names in what is left out of an output that is shown shortened, in lines; "" when there are none.

    The model has not read the rest, so it learns here what it may ask for. They take a tenth of what is shown.
    """
    calls = [call] if call else []
    lines = left_out(shown, output).split("\n")
    whole = lines[1:-1] or lines  # half of the first and of the last one is shown
    rest = redact_messages([*calls, {**output, "content": "\n".join(whole)}])
    listed = name_list(rest, "", [*calls, shown], min(WORKING_SET, int(count_message(shown) * LIST_SHARE)))
    told = [line for line in listed.splitlines()[1:] if not _BRACKET.search(line)]
    return redact("\n".join(told)) if told else EMPTY


def _listed(names: Names, homes: dict[str, str]) -> str:
    """Write the list: names in the lines of their files, then those beside words; the same words stand once."""
    files: dict[str, list[str]] = {}
    for name, home in homes.items():
        files.setdefault(home, []).append(name)
    groups: dict[frozenset[str], list[str]] = {}
    for name in files.pop("", []):
        if name in files:
            continue
        groups.setdefault(frozenset(names.beside(name)), []).append(name)
    lines = [_file_line(path, names, inside) for path, inside in files.items()]
    for inside in groups.values():
        words = names.beside(inside[0])
        lines += [name_line(", ".join(some), words) for some in _in_lines(inside)]
    return "\n".join([_HEADING, *(f"- {line}" for line in lines)])


def _in_lines(names: Iterable[str]) -> list[list[str]]:
    """Divide names into lines that can be read."""
    lines: list[list[str]] = []
    for name in names:
        if not lines or len(lines[-1]) == _MOST_PER_LINE or sum(map(len, lines[-1])) + len(name) > _LONGEST_LINE:
            lines.append([])
        lines[-1].append(name)
    return lines


def _file_line(path: str, names: Names, inside: list[str]) -> str:
    """Write the names of a file, the used ones before those that were only read."""
    used = [name for name in inside if names.is_used(name)]
    told = names.in_line_of(path, [*used, *(name for name in inside if not names.is_used(name))])
    said, read = ", ".join(told[: len(used)]), ", ".join(told[len(used) :])
    return file_line(path, "; ".join(filter(None, [said, _READ + read if read else ""])))


def _recall(names: Names, earlier: str) -> None:
    """Add the names that an earlier window told of; in the line of a file the most salient one is the first."""
    heading = ""
    for line in earlier.splitlines():
        if line.startswith("#"):
            heading = line
        elif (match := _NAMED_LINE.fullmatch(line)) and names_in(match["names"]).issuperset(match["names"].split(", ")):
            for name in match["names"].split(", "):
                names.recall(name, 1.0, words=match["words"].split(", "))
        elif heading in _OF_FILES and (match := _FILE_LINE.fullmatch(line)):
            names.recall(match["file"], 1.0, words=_beside_file(match["used"]))
            for is_used, group in ((True, match["used"]), (False, match["read"] or "")):
                for place, clause in enumerate(read_note(group).said):
                    name, words = split_name(clause)
                    if name in names_in(name):
                        names.recall(name, 1 / (1 + place), is_used=is_used, file=match["file"], words=words)


def _beside_file(note: str) -> list[str]:
    """Return what the line of a file says about it: what happened to it, names, words."""
    said, happened = read_note(note)
    told = [[name] if names_in(name := split_name(clause)[0]) == {name} else words_in(clause) for clause in said]
    return [*happened, *chain.from_iterable(told)][:WORDS_BESIDE]


def _shown(names: Names, window: Iterable[Message]) -> set[str]:
    """Return the names that a window tells: they stand in a line or call beside what they stood beside before."""
    return set[str]().union(*map(names.told_in, _units(window)))


def _units(window: Iterable[Message]) -> Iterator[str]:
    """Yield the lines of a window, and each of its calls."""
    for message in window:
        yield from text_of(message).splitlines()
        for call in tool_calls_of(message):
            yield "\n".join([call.name, *texts_in(call.arguments)]) if call.arguments else call.raw
