"""The names that user and assistant used, by salience: functions, classes, settings, ids, numbers, under their files.

A name counts for more the more often, and the more recently, somebody said it or handed it to a tool; what only stands
in outputs, such as the functions of a file that was read, comes after all of those. A bare name says little to a
reader, so each stands in the line of the file that it was most often named with, or beside words that stood in the same
lines.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from leporello.summary.artifacts.files import call_actions, clean, is_path, patch_actions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from leporello.summary.artifacts.reading import Turn

WORDS_BESIDE = 3
MOST_PER_FILE = 20
_RECENT = 4.0  # a name in the newest turn counts so much more than one in the oldest
_SAID, _HANDED_OVER_IN_BULK, _READ = 1.0, 0.25, 0.0
_ENOUGH_WORDS = 2
_LONGEST, _LONGEST_LISTING, _LONGEST_UNIT = 40_000, 8_000, 2_000

_TOKEN = re.compile(r"https?://[^\s\"'`<>()\[\]{}]{3,160}|[\w./~@$#+-]{3,160}")
_PATCH = ("+++ ", "*** ")  # how a patch names the file of the lines that follow
_NUMBER = re.compile(r"#?\$?\d[\d,.]*%?")
_DULL = re.compile(
    r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?(?:[a-zµ]{1,2}|min|sec|px|rem|[KMGT]i?B)|\d{1,2}(?:st|nd|rd|th)|\d{1,2}-\w{1,4}"
)
_IN_BULK = re.compile(r"[\d.,:TZ#$%+-]+")  # in outputs: counters and dates
_HUMPS = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2,}[a-z]")
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_WORD = re.compile(r"[^\W\d_]{4,30}")
_SHORTEST, _SHORTEST_NUMBER = 4, 4
_COMMON_WORDS = """
    about after again against also another async await because been before being below between bool both byte cannot
    const could default does doing done down each elif else ever every export false from func function further great
    have having here import into itself just know lambda less like look made make many maybe more most much must
    need needs next none null once only other over package please private public return same self shall should since
    some static still string struct such sure than thanks that their them then there these they thing things this
    those through true under until upon very void want well were what when where whether which while will with
    within without would your yours
"""
_COMMON = frozenset(_COMMON_WORDS.split())


class _Passage(NamedTuple):
    """A text of the turn at an index, how much a name in it counts as said, and the files that it is about."""

    at: int
    text: str
    weight: float
    files: tuple[str, ...] = ()
    tool: str = ""
    is_whole: bool = False

    @property
    def units(self) -> list[str]:
        """The stretches in which things that belong together stand together: a call or the text of a file, or lines."""
        return [self.text] if self.is_whole else self.text.splitlines()


class Names:
    """The names of a conversation: how salient each is, the files it was named with, and the words beside it."""

    def __init__(self) -> None:
        self._said: dict[str, float] = defaultdict(float)
        self._read: dict[str, float] = defaultdict(float)
        self._files: dict[str, Counter[str]] = defaultdict(Counter)
        self._beside: dict[str, Counter[str]] = defaultdict(Counter)

    @property
    def said_paths(self) -> set[str]:
        """The paths that somebody said or handed to a tool."""
        return set(filter(is_path, self._said))

    def read(self, passage: _Passage, recency: float) -> None:
        """Count the names of a passage; `recency` is 0 for the oldest turn and 1 for the newest."""
        salience = self._said if passage.weight else self._read
        weight = (passage.weight or 1.0) * (1 + _RECENT * recency)
        about = passage.files
        for unit in passage.units:
            if unit.startswith(_PATCH):
                about = tuple(path for _, path in patch_actions(unit))
            found = _names(unit) if passage.weight else {name for name in _names(unit) if not _IN_BULK.fullmatch(name)}
            if not found:
                continue
            files = about or tuple(filter(is_path, found))
            words = _words(f"{passage.tool}\n{unit}", found) if len(unit) <= _LONGEST_UNIT else set()
            for name in found:
                salience[name] += weight
                self._files[name].update(files)
                self._beside[name].update(words)

    def _rank(self, name: str) -> tuple[float, float, str]:
        """Return the place in the order: what was said comes before whatever was only read."""
        return -self._said.get(name, 0.0), -self._read.get(name, 0.0), name

    def beside(self, name: str) -> list[str]:
        """Return the words that stood beside a name most often."""
        found = self._beside[name]
        return sorted(found.keys() - {name}, key=lambda word: (-found[word], word))[:WORDS_BESIDE]

    def under(self, files: Sequence[str], most: int) -> tuple[dict[str, list[str]], list[str]]:
        """Return the most salient names, at most so many: those of each of these files, and those of none."""
        whole = _whole_paths(files)
        of_files: dict[str, list[str]] = {}
        others: list[str] = []
        names = [name for name in self._said.keys() | self._read.keys() if not is_path(name)]
        for name in sorted(names, key=self._rank)[:most]:
            found: Counter[str] = Counter()
            for path, count in self._files[name].items():
                if path in whole:
                    found[whole[path]] += count
            home = max(found, key=lambda path: (found[path], path), default="")
            if not home:
                others.append(name)
            elif len(of_files.setdefault(home, [])) < MOST_PER_FILE:
                of_files[home].append(name)
        return of_files, others


def names_in(turns: Sequence[Turn]) -> Names:
    """Find the names that were said, handed to a tool, or read."""
    names = Names()
    newest = max((turn.at for turn in turns), default=0) + 1
    for passage in _passages(turns):
        names.read(passage, passage.at / newest)
    return names


def _whole_paths(paths: Iterable[str]) -> dict[str, str]:
    """Return each path, and what it ends with, with the path itself: "cli/a.py" may stand for "/src/cli/a.py"."""
    whole: dict[str, str] = {}
    for path in sorted(paths, key=lambda path: (len(path), path)):
        parts = path.split("/")
        whole[path] = path
        for start in range(1, len(parts)):
            whole.setdefault("/".join(parts[start:]), path)
    return whole


def _passages(turns: Iterable[Turn]) -> Iterator[_Passage]:
    """Yield what was said, handed to each call and answered by it."""
    about: dict[str, tuple[str, ...]] = {}
    for turn in turns:
        if turn.text:
            yield _Passage(turn.at, turn.text[:_LONGEST], _SAID)
        for call in turn.calls:
            paths = dict.fromkeys(path for _, given in call_actions(call) if (path := clean(given)))
            files = about[call.id] = tuple(paths) if len(paths) == 1 else ()
            text = "\n".join(_leaves(call.arguments)) or call.raw
            weight = _SAID if len(text) <= _LONGEST_UNIT else _HANDED_OVER_IN_BULK
            yield _Passage(turn.at, text[:_LONGEST], weight, files, call.name, bool(files) or weight == _SAID)
        for result in turn.results:
            files = about.get(result.call_id, ())
            text = result.text[: _LONGEST if files else _LONGEST_LISTING]
            yield _Passage(turn.at, text, _READ, files, is_whole=bool(files))


def _leaves(value: Any) -> Iterator[str]:
    """Yield the texts inside of arguments, without the keys: those belong to the tool, not to the work."""
    if isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _leaves(item)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def _names(text: str) -> set[str]:
    """Return the names in a text."""
    return {name for name in map(_name, set(_TOKEN.findall(text))) if name}


@lru_cache(maxsize=65_536)
def _name(token: str) -> str:
    """Return the name that a token holds, or ""."""
    name = token.rstrip(".,;:-'\"/").removeprefix("./") if "/" in token else token.strip(".,;:-'\"@$#+~")
    return name if _is_name(name) else ""


def _is_name(text: str) -> bool:
    """Tell a name from a word: it has humps, an underscore, a dot or digits inside it, or it is a path."""
    if len(text) < _SHORTEST or _DULL.fullmatch(text):
        return False
    if _NUMBER.fullmatch(text):
        return sum(map(str.isdigit, text)) >= _SHORTEST_NUMBER or "." in text
    if "/" in text:
        return is_path(text) or text.startswith("http")
    has_digit = any(map(str.isdigit, text)) and any(map(str.isalpha, text))
    return "_" in text.strip("_") or has_digit or bool(_HUMPS.search(text) or _DOTTED.fullmatch(text))


def _words(unit: str, names: Iterable[str]) -> set[str]:
    """Return the words that tell what a unit is about; where there are too few, the names in it do."""
    text = unit
    for name in names:
        text = text.replace(name, " ")
    words = {word for word in map(str.lower, _WORD.findall(text)) if word not in _COMMON}
    return words if len(words) >= _ENOUGH_WORDS else words.union(names)
