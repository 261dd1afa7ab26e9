"""The names that user and assistant used, by salience: functions, classes, settings, ids, numbers, under their files.

A name counts for more the more often, and the more recently, it was said or handed to a tool; what only stands
in outputs, such as the functions of a file that was read, comes after all of those. A bare name says little to a
reader, so each stands in the line of the file that it was most often named with, or beside words that stood in the same
lines.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from leporello.store.search.words import STOP_WORDS
from leporello.summary.artifacts.files import (
    GREP_LINE,
    changed_by,
    endings,
    file_of,
    is_path,
    patch_actions,
    runs,
    telling_arguments,
)
from leporello.summary.artifacts.reading import NOTICE, lines_of
from leporello.summary.template.shape import name_in_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from leporello.summary.artifacts.reading import ReadTurn

WORDS_BESIDE = 3
TOKENS_UNDER_FILE, TOKENS_ALONE = 6, 16  # of a name in the line of its file, and with words in a line of its own
MOST_PER_FILE = 60
_RECENT = 4.0  # the weight of a name in the newest turn; in the oldest it is 1
_SAID, _IN_BULK, _READ = 1.0, 0.1, 0.0  # a long text, pasted or written, names much besides what the work is about
_LONGEST, _LONGEST_LISTING, _LONGEST_UNIT = 200_000, 8_000, 2_000  # a file is read as a whole, as far as tools show one
_ENOUGH_WORDS = 2
_FAR = _LONGEST_UNIT
_NEAR = 16  # names on either side in a line: what stands further away stands beside nothing
_MOST_TEXTS, _MOST_LINES = 3, 4  # the newest texts that hold a name, and lines of each, that tell what it is about
_MOST_FILES, _MOST_NAMES = 5, 40  # in one unit; more of them are a listing, and nothing that belongs together

_LONGEST_TOKEN, _LONGEST_HASH = 160, 64  # what is longer is no name but data
_TOKEN = re.compile(r"https?://[^\s\"'`<>()\[\]{}]{3,160}|[\w./~@$#+-]{3,160}")
_WRITTEN_BREAK = re.compile(r"(?<!\\)\\[nrt]")
_DRIVE = re.compile(r"\b[A-Za-z]:\\")
_PICTURE = re.compile(r"https?://\S+\.(?:gif|ico|jpe?g|png|svg|webp)")
_NUMBER = re.compile(r"#?\$?\d[\d,.]*%?")
_DULL = re.compile(
    r"0x[0-9a-fA-F]+|\d+(?:\.\d+)?(?:[a-zµ]{1,2}|min|sec|px|rem|[KMGT]i?B)|\d{1,2}(?:st|nd|rd|th)|\d{1,2}-\w{1,10}|\d{4}-\d\d-\d\dT\d\d"
)
_COUNTER = re.compile(r"[\d.,:TZ#$%+-]+")  # in outputs: numbers and dates
_HASH = re.compile(r"(?=[a-f]*\d)[0-9a-f]{7,64}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")  # as a log prints them
_HUMPS = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2,}(?!s\b)[a-z]")  # "URLs" is a word
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_ADDRESS = re.compile(r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_DIRECTORY = re.compile(r"(?:\.{0,2}/)?[A-Za-z_.][\w.@+-]+(?:/[A-Za-z_.][\w.@+-]+){2,}")
_WORD = re.compile(r"[^\W\d_]{4,30}")
_SHORTEST = 4  # characters of a name, digits of a number
_PATCH = ("+++ ", "*** ")  # how a patch names the file of the lines that follow
_PATCH_HEADER = re.compile(
    r"^(?:diff --git a/.*|index [0-9a-f]+\.\.[0-9a-f]+.*|--- a/.*)\n|(?<=^\+\+\+ )b/", re.MULTILINE
)
_OF_PATCH = ("+", "-", " ", "@")
_KEYWORDS = """
    async await bool byte const default elif else export false func function import lambda none null package private
    public return self static string struct true void
"""
_COURTESIES = "could done great know look maybe need needs next please sure thanks want would"
_COMMON = STOP_WORDS.union(_KEYWORDS.split(), _COURTESIES.split())


class _Passage(NamedTuple):
    """A text of the turn at an index, how much a name in it counts as said, and the files that it is about.

    `is_log`: it is what a program printed, such as the names of all tests that passed.
    """

    at: int
    text: str
    weight: float
    files: tuple[str, ...] = ()
    tool: str = ""
    is_whole: bool = False
    is_log: bool = False

    def units(self) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield the stretches in which things that belong together stand together, with the files they are about.

        That is a call, the text of a file, or a line; of a very long line, a part.
        """
        if self.is_whole:
            yield self.text, self.files
            return
        about = self.files
        for line in self.text.splitlines():
            if line.startswith(_PATCH):
                about = tuple(path for _, path in patch_actions(line))
            elif not line.startswith(_OF_PATCH):
                about = self.files
            for part in _parts(line):
                yield part, about


class Names:
    """The names of a conversation: how salient each is, the files it was named with, and the words beside it.

    Without `logs` what programs printed is passed over.
    """

    def __init__(self, turns: Sequence[ReadTurn], *, logs: bool = True) -> None:
        self._said: dict[str, float] = defaultdict(float)
        self._read: dict[str, float] = defaultdict(float)
        self._files: dict[str, Counter[str]] = defaultdict(Counter)
        self._beside: dict[str, Counter[str]] = defaultdict(Counter)
        self._known: dict[str, str] = {}
        self._texts: dict[str, deque[str]] = defaultdict(lambda: deque(maxlen=_MOST_TEXTS))
        self._used_with: set[tuple[str, str]] = set()
        self._all_beside: dict[str, set[str]] = {}
        self._tools: set[str] = set()
        newest = max((turn.at for turn in turns), default=0) or 1
        for passage in _passages(turns):
            if passage.is_log and not logs:
                continue
            self._count(passage, 1 + _RECENT * passage.at / newest)

    def recall(
        self, name: str, weight: float, *, is_used: bool = True, file: str = "", words: Iterable[str] = ()
    ) -> None:
        """Add a name that was known before these turns, with the file that it was used with or the words beside it."""
        (self._said if is_used else self._read)[name] += weight
        if file:
            self._files[name][file] += 1
            self._used_with.update([(name, file)] if is_used else [])
        self._beside[name].update(words)

    def ranked(self) -> list[str]:
        """Return all names, the most salient first."""
        return sorted(self._said.keys() | self._read.keys(), key=self._rank)

    def is_used(self, name: str) -> bool:
        """Tell whether a name was said or handed to a tool."""
        return name in self._said

    def told_in(self, unit: str) -> set[str]:
        """Return the names that a line or call shows beside two things that they stood beside, or beside their file."""
        found = names_in(unit)
        words = Counter(words_in(unit))
        has_file = cache(unit.__contains__)
        return {
            name
            for name in found
            if any(map(has_file, self._files.get(name, ()))) or self._is_beside(name, unit, words, found)
        }

    def _is_beside(self, name: str, unit: str, words: Counter[str], names: set[str]) -> bool:
        """Tell whether a name stands beside two things that it stood beside, of these words and names of a unit."""
        known = self._known_beside(name)
        times = unit.count(name)
        inside = {word for word, count in Counter(words_in(name)).items() if words[word] <= count * times}
        beside = (known & words.keys()) - inside | known & names
        return len(beside) >= min(_ENOUGH_WORDS, len(known))

    def home(self, name: str) -> str:
        """Return the file that a name was used with most often, or ""; a path stands for itself."""
        return "" if is_path(name) else next(iter(self._homes(name, self._all_files)), "")

    @cached_property
    def _all_files(self) -> dict[str, str]:
        return _whole_paths({path for files in self._files.values() for path in files})

    @property
    def said_paths(self) -> set[str]:
        """The paths that were said or handed to a tool."""
        return set(filter(is_path, self._said))

    def beside(self, name: str) -> list[str]:
        """Return the words that stood beside a name most often; beside a path one other path says as much as three."""
        words = self._by_count(name)
        if is_path(name):
            plain = [word for word in words if not is_path(word)]
            words = plain if len(plain) >= _ENOUGH_WORDS else [*plain, *filter(is_path, words)][: len(plain) + 1]
        return words[:WORDS_BESIDE]

    def _by_count(self, name: str) -> list[str]:
        found = self._beside.get(name, Counter())
        near, own = self._distances(name), _words_of(name)
        return sorted(
            found.keys() - {name} - own,
            key=lambda word: (word in self._tools, -found[word], near.get(word, _FAR), word),
        )

    def _distances(self, name: str) -> dict[str, int]:
        """Return how near to a name the words stand in its lines."""
        near: dict[str, int] = {}
        for text in self._texts.get(name, ()):
            for line in _lines_with(text, name):
                at = line.find(name)
                for match in _WORD.finditer(line):
                    word, gap = match[0].lower(), max(match.start() - at - len(name), at - match.end())
                    near[word] = min(near.get(word, _FAR), gap)
        return near

    def words_for(self, path: str, inside: Sequence[str]) -> list[str]:
        """Return words for a path whose line has these names and what happened to it: none beside two names.

        The names of tools are no such words: what happened tells them.
        """
        if len(inside) >= _ENOUGH_WORDS:
            return []
        return [word for word in self.beside(path) if word not in self._tools and word not in inside]

    def in_line_of(self, path: str, names: Iterable[str]) -> list[str]:
        """Return names as they stand in the line of a file: each beside two words of a line that it came from.

        Mostly the other names in the line are such words. Where they are not, and the name was not used together with
        the file, the words are added to it.
        """
        names = list(names)
        words_of = [_words_of(name) for name in names]
        of_path = _words_of(path)
        told: list[str] = []
        for at, name in enumerate(names):
            known = () if (name, path) in self._used_with else self._around(name)
            near = words_of[max(0, at - _NEAR) : at] + words_of[at + 1 : at + 1 + _NEAR]
            held = of_path.union(*near)
            missing = [word for word in known if word not in held]
            lacking = min(_ENOUGH_WORDS, len(known)) - (len(known) - len(missing))
            words = missing[: max(0, lacking)]
            words_of[at] = words_of[at].union(words)
            told.append(name_in_line(name, words))
        return told

    def _known_beside(self, name: str) -> set[str]:
        if name not in self._all_beside:
            self._all_beside[name] = {*self._beside.get(name, ()), *self._around(name)} - {name}
        return self._all_beside[name]

    def _around(self, name: str) -> list[str]:
        """Return the words of the lines that a name stood in, the most frequent first."""
        found = Counter(self._beside.get(name, ()) if name not in self._texts else ())
        for text in self._texts.get(name, ()):
            for line in _lines_with(text, name):
                found.update(_words_of(line.replace(name, " ")))
        return sorted(found, key=lambda word: (-found[word], word))

    def under(self, files: Sequence[str], most: int, *, read: bool = True) -> tuple[dict[str, list[str]], list[str]]:
        """Return the most salient names: those of each of these files, and those of none.

        They take about `most` tokens; without `read` what was only read is left out.
        """
        whole = _whole_paths(files)
        of_files: dict[str, list[str]] = defaultdict(list)
        others: list[str] = []
        names = [name for name in self._said.keys() | self._read.keys() if not is_path(name)]
        tokens = 0
        for name in sorted(names, key=self._rank):
            if tokens >= most or not (read or name in self._said):
                break
            homes = self._homes(name, whole)
            home = next((path for path in homes if len(of_files[path]) < MOST_PER_FILE), "")
            if home:
                of_files[home].append(name)
                tokens += TOKENS_UNDER_FILE
            elif self._beside.get(name):
                others.append(name)
                tokens += TOKENS_ALONE
        return of_files, others

    def _rank(self, name: str) -> tuple[float, bool, float, str]:
        """Return the place in the order: what was said comes before what was only read, hashes last."""
        return -self._said.get(name, 0.0), bool(_HASH.fullmatch(name)), -self._read.get(name, 0.0), name

    def _homes(self, name: str, whole: dict[str, str]) -> list[str]:
        """Return the files that a name was used with, most often first."""
        found: Counter[str] = Counter()
        for path, count in self._files.get(name, Counter()).items():
            if path in whole:
                found[whole[path]] += count
        return sorted(found, key=lambda path: (-found[path], path))

    def _count(self, passage: _Passage, recency: float) -> None:
        salience = self._said if passage.weight else self._read
        weight = (passage.weight or 1.0) * recency
        self._tools.update(words_in(passage.tool))
        for unit, about in passage.units():
            found = self._names(unit)
            if not passage.weight:
                least = 2 if passage.is_log else 1
                found = {name: n for name, n in found.items() if n >= least and not _COUNTER.fullmatch(name)}
            files = about or [name for name in found if is_path(name)]
            together = len(found) <= _MOST_NAMES and len(unit) <= _LONGEST_UNIT
            words = _words(f"{passage.tool}\n{unit}", found) if found and together else ()
            for name in found:
                salience[name] += weight if passage.weight else weight * found[name] ** 0.5
                self._texts[name].append(unit)
                if len(files) <= _MOST_FILES:
                    self._files[name].update(files)
                    if passage.weight:
                        self._used_with.update((name, file) for file in files)
                if words:
                    self._beside[name].update(words)

    def _names(self, text: str) -> dict[str, int]:
        """Return the names in a text, and how often each stands there."""
        found: dict[str, int] = {}
        for token, count in Counter(_tokens(text)).items():
            if token not in self._known:
                self._known[token] = _name(token)
            if name := self._known[token]:
                found[name] = found.get(name, 0) + count
        return found


def names_in(text: str) -> set[str]:
    """Return the names in a text."""
    return set(filter(None, map(_name, set(_tokens(text)))))


def _tokens(text: str) -> list[str]:
    """Return what may be names; a line break that source code writes as two characters is no part of one."""
    if "\\" in text and not _DRIVE.search(text):
        text = _WRITTEN_BREAK.sub(" ", text)
    return _TOKEN.findall(text)


def _shortened(text: str, length: int) -> str:
    """Return the beginning of a text, without the half of a name at its end."""
    if len(text) <= length:
        return text
    end = max(text.rfind(space, 0, length) for space in " \n")
    return text[: end if end > 0 else length]


def _lines_with(text: str, name: str) -> Iterator[str]:
    """Yield the first lines of a text that hold a name, and not only a longer one with it inside."""
    stop = 0
    for _ in range(_MOST_LINES):
        at = _place(text, name, stop)
        if at < 0:
            return
        start = max(text.rfind("\n", 0, at) + 1, at - _LONGEST_UNIT)
        stop = text.find("\n", at)
        stop = min(len(text) if stop < 0 else stop, at + _LONGEST_UNIT)
        yield text[start:stop]


def _place(text: str, name: str, start: int) -> int:
    """Return where a name next stands as a whole word, or -1."""
    at = text.find(name, start)
    while at >= 0 and (_is_in_word(text[at - 1 : at]) or _is_in_word(text[at + len(name) : at + len(name) + 1])):
        at = text.find(name, at + 1)
    return at


def _is_in_word(beside: str) -> bool:
    return beside.isalnum() or beside == "_"


def words_in(text: str) -> list[str]:
    """Return the words of a text that say what it is about, in their order."""
    return [word for word in map(str.lower, _WORD.findall(text)) if word not in _COMMON]


def _words_of(text: str) -> set[str]:
    return set(words_in(text))


def _parts(line: str) -> Iterator[str]:
    """Cut a line that is too long for a unit, at a space where there is one."""
    start = 0
    while len(line) - start > _LONGEST_UNIT:
        space = line.rfind(" ", start + 1, start + _LONGEST_UNIT)
        stop = space if space > 0 else start + _LONGEST_UNIT
        yield line[start:stop]
        start = stop
    yield line[start:]


def _whole_paths(paths: Iterable[str]) -> dict[str, str]:
    """Return each path, and what it ends with, with the path itself: "cli/a.py" may stand for "/src/cli/a.py"."""
    whole: dict[str, str] = {}
    for path in sorted(paths, key=lambda path: (len(path), path)):
        whole[path] = path
        for ending in endings(path):
            whole.setdefault(ending, path)
    return whole


def _passages(turns: Iterable[ReadTurn]) -> Iterator[_Passage]:
    """Yield what was said, handed to each call and answered by it."""
    about: dict[str, tuple[str, ...]] = {}
    printing: set[str] = set()
    changed: dict[str, list[str]] = {}
    for turn in turns:
        if turn.text:
            weight = _READ if turn.role == NOTICE else _weight(turn.text)
            yield _Passage(turn.at, _shortened(turn.text, _LONGEST), weight)
        for call in turn.calls:
            files: tuple[str, ...] = (file,) if (file := file_of(call)) else ()
            about[call.id] = files if call.id else ()
            printing.update([call.id] if runs(call) else [])
            text = "\n".join(texts_in(telling_arguments(call))) or call.raw
            weight = _weight(text)
            is_whole = bool(files) or weight == _SAID
            yield _Passage(turn.at, _shortened(text, _LONGEST), weight, files, call.name, is_whole)
            changed.update([(call.id, changed_by(call))] if call.id else [])
        for result in turn.results:
            files = (result.about,) if result.about else about.get(result.call_id, ())
            text = _PATCH_HEADER.sub("", _shortened(result.text, _LONGEST if files else _LONGEST_LISTING))
            if done := changed.get(result.call_id):
                text = _without_acknowledgement(text, done)
            is_log = result.is_printed or result.call_id in printing
            yield _Passage(turn.at, text, _READ, files, is_whole=bool(files), is_log=is_log)


def _without_acknowledgement(text: str, files: Iterable[str]) -> str:
    """Return what a tool answered without its own words about the files that it changed."""
    return "\n".join(line for line in text.splitlines() if not any(file in line for file in files))


def _weight(text: str) -> float:
    return _SAID if len(text) <= _LONGEST_UNIT else _IN_BULK


def texts_in(value: Any) -> Iterator[str]:
    """Yield the texts inside of arguments, without the keys: those belong to the tool, not to the work."""
    if isinstance(value, (dict, list)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from texts_in(item)
    elif value is not None and not isinstance(value, bool):
        yield lines_of(value)


def _name(token: str) -> str:
    """Return the name that a token holds, or ""."""
    token = GREP_LINE.sub(r"\1", token)
    name = token.rstrip(".,;:-'\"/").removeprefix("./") if "/" in token else token.strip(".,;:-'\"@$#+~")
    is_data = len(token) >= _LONGEST_TOKEN or (len(name) > _LONGEST_HASH and name.isalnum())
    return name if not is_data and _is_name(name) else ""


def _is_name(text: str) -> bool:
    """Tell a name from a word: it has humps, an underscore, a dot or digits inside it, or it is a path."""
    if len(text) < _SHORTEST or _DULL.fullmatch(text) or _PICTURE.fullmatch(text):
        return False
    if _NUMBER.fullmatch(text):
        return sum(map(str.isdigit, text)) >= _SHORTEST or "." in text
    if _ADDRESS.fullmatch(text):
        return True
    if "/" in text:
        return is_path(text) or bool(_DIRECTORY.fullmatch(text)) or text.startswith(("http://", "https://"))
    has_digit = any(map(str.isdigit, text)) and any(map(str.isalpha, text))
    return "_" in text.strip("_") or has_digit or bool(_HUMPS.search(text) or _DOTTED.fullmatch(text))


def _words(unit: str, names: Iterable[str]) -> set[str]:
    """Return the words that tell what a unit is about; where there are too few, the names in it do."""
    text = unit
    for name in sorted(names, key=lambda name: (-len(name), name)):
        text = text.replace(name, " ")
    words = {word for word in map(str.lower, _WORD.findall(text)) if word not in _COMMON}
    return words if len(words) >= _ENOUGH_WORDS else words.union(names)
