"""The text of config.yaml as plain values, each with its line; what the text does wrong as a list of problems."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError, ReusedAnchorWarning, YAMLError
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.reader import ReaderError

from leporello.config.fields import dotted
from leporello.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Location: TypeAlias = tuple[Any, ...]

# Far beyond any real configuration, and small enough to stop aliases that multiply or refer to themselves.
MAX_DEPTH = 40
MAX_VALUES = 2_000

_TAG = "tag:yaml.org,2002:"
_PLAIN_TAGS = {_TAG + name for name in ("str", "timestamp", "value")}
_NO_KEY = object()
_FLOATS = {".inf": "inf", "+.inf": "inf", "-.inf": "-inf", ".nan": "nan"}


@dataclass(frozen=True, kw_only=True)
class YAMLSource:
    """A text that is YAML: its values, the line of each, and the problems that are not YAML's but ours."""

    root: Node | None
    values: dict[Any, Any]
    lines: dict[Location, int]
    problems: tuple[ConfigError, ...]


def parse(text: str, *, file: Path | str | None = None) -> YAMLSource:
    """Read YAML; raise ConfigError with the line when it is none. An empty text is an empty configuration."""
    root = compose(text, file)
    reader = _Reader(file=file)
    if root is None or (isinstance(root, ScalarNode) and root.tag == _TAG + "null"):
        return YAMLSource(root=None, values={}, lines={}, problems=())
    if not isinstance(root, MappingNode):
        raise ConfigError(
            f"the file holds {_kind(root)} instead of keys with values.",
            file=file,
            line=_line(root),
            hint="Begin with a block, for example: context: {engine: compressor}",
        )
    values = reader.read(root) or {}
    return YAMLSource(root=root, values=values, lines=reader.lines, problems=tuple(reader.problems))


def parse_value(text: str, *, key: str) -> Any:
    """Read one value, as it would stand behind its key."""
    reader = _Reader(file=None)
    try:
        node = compose(text, None)
        value = None if node is None else reader.read(node)
    except ConfigError as error:
        raise ConfigError("the value is not valid YAML.", key=key, hint="Put it into quotes: '\"…\"'") from error
    if reader.problems:
        raise ConfigError(reader.problems[0].problem, key=key, hint=reader.problems[0].hint)
    return value


def compose(text: str, file: Path | str | None) -> Node | None:
    """Return the nodes of a YAML text; raise ConfigError with the line when it is none, or far too much."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Composer = _BoundedComposer
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ReusedAnchorWarning)  # legal YAML: the later anchor counts
            node: Node | None = yaml.compose(text)
    except _TooMuchError as error:
        raise too_much(file, error.line) from error
    except YAMLError as error:
        raise _broken(error, text, file) from error
    except (LookupError, ValueError) as error:  # of a directive that the parser does not know
        raise ConfigError("this is not YAML that can be read.", file=file) from error
    return node


class _TooMuchError(Exception):
    """The text has more values, or deeper ones, than any configuration."""

    def __init__(self, line: int) -> None:
        super().__init__(line)
        self.line = line


class _BoundedComposer(Composer):
    """Stops at the first value too many; until then nothing behind it is read."""

    count = level = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Compose one value, with those inside it."""
        self.count += 1
        self.level += 1
        if self.count > MAX_VALUES or self.level > MAX_DEPTH:
            raise _TooMuchError(self.parser.peek_event().start_mark.line + 1)
        node = super().compose_node(parent, index)
        self.level -= 1
        return node


def _broken(error: YAMLError, text: str, file: Path | str | None) -> ConfigError:
    if isinstance(error, ReaderError):
        line = text.count("\n", 0, error.position) + 1
        return ConfigError("the file holds a character that no YAML text may hold.", file=file, line=line)
    mark = (error.problem_mark or error.context_mark) if isinstance(error, MarkedYAMLError) else None
    why = (error.problem if isinstance(error, MarkedYAMLError) else None) or "it cannot be read"
    return ConfigError(
        f"this is not valid YAML: {why}.",
        file=file,
        line=None if mark is None else mark.line + 1,
        hint=next((hint for part, hint in _YAML_HINTS.items() if part in why), None),
    )


_YAML_HINTS = {
    r"\t": "Indent with spaces, not with tabs.",
    "mapping values are not allowed": "Check the indentation, and put a value that contains ': ' into quotes.",
    "expected <block end>": "Check the indentation of this line and of the lines above it.",
    "another document": "Remove the line '---'; a configuration is one document.",
    "could not find expected ':'": "A key needs a colon and a space after it.",
}


def too_much(file: Path | str | None, line: int | None) -> ConfigError:
    """Say that a text has more than any configuration."""
    return ConfigError(
        "there are too many values, or they are nested too deeply or refer to themselves.", file=file, line=line
    )


@dataclass(kw_only=True)
class _Reader:
    """Walks the nodes once, noting lines and problems."""

    file: Path | str | None
    lines: dict[Location, int] = field(default_factory=dict)
    problems: list[ConfigError] = field(default_factory=list)
    count: int = 0

    def read(self, node: Node, at: Location = ()) -> Any:
        self.count += 1
        if len(at) > MAX_DEPTH or self.count > MAX_VALUES:
            raise too_much(self.file, _line(node))
        if isinstance(node, MappingNode) and node.tag == _TAG + "map":
            return self._mapping(node, at)
        if isinstance(node, SequenceNode) and node.tag == _TAG + "seq":
            return self._sequence(node, at)
        if isinstance(node, ScalarNode):
            return self._scalar(node, at)
        return self._foreign_tag(node, at)

    def _mapping(self, node: MappingNode, at: Location) -> dict[Any, Any]:
        values: dict[Any, Any] = {}
        for key_node, value_node in node.value:
            key = self._key(key_node, at)
            place = (*at, key)
            if key is _NO_KEY:
                continue
            if key in values:
                self.problems.append(self._repeated(place, first=self.lines[place], again=_line(key_node)))
                continue
            self.lines[place] = _line(key_node)
            values[key] = self.read(value_node, place)
        return values

    def _sequence(self, node: SequenceNode, at: Location) -> list[Any]:
        for index, item in enumerate(node.value):
            self.lines[*at, index] = _line(item)
        return [self.read(item, (*at, index)) for index, item in enumerate(node.value)]

    def _key(self, node: Node, at: Location) -> Any:
        if isinstance(node, ScalarNode) and node.tag == _TAG + "merge":
            self._problem(node, at, "merge keys (<<) are not understood here.", "Write the keys out.")
        elif isinstance(node, ScalarNode):
            return self._scalar(node, at)
        else:
            self._problem(node, at, f"{_kind(node)} cannot be a key.", "Use a text.")
        return _NO_KEY

    def _scalar(self, node: ScalarNode, at: Location) -> Any:
        tag, text = node.tag, node.value
        if tag in _PLAIN_TAGS:
            return self._text(node, at)
        if tag not in _SCALARS:
            return self._foreign_tag(node, at)
        try:
            return _SCALARS[tag](text)
        except ValueError:
            self._problem(node, at, f"{_short(text)} is not a number that can be read.", "Write it in plain digits.")
            return None

    def _text(self, node: ScalarNode, at: Location) -> str:
        text = str(node.value)
        if any("\ud800" <= character <= "\udfff" for character in text):
            self._problem(node, at, "the text holds half a character.", "Write the character itself, without \\u.")
            return ""
        return text

    def _foreign_tag(self, node: Node, at: Location) -> None:
        self._problem(node, at, f"the tag {node.tag} is not understood here.", "Write the plain value.")

    def _repeated(self, place: Location, *, first: int, again: int) -> ConfigError:
        hint = f"Keep one of the two lines, {first} or {again}."
        if place == ("context", "engine"):
            hint += " (Hermes Agent's documentation shows both choices below each other; only one engine is active.)"
        return ConfigError("this key is given twice.", file=self.file, line=again, key=dotted(place), hint=hint)

    def _problem(self, node: Node, at: Location, problem: str, hint: str) -> None:
        self.problems.append(ConfigError(problem, file=self.file, line=_line(node), key=dotted(at) or None, hint=hint))


def _null(_text: str) -> None:
    return None


def _boolean(text: str) -> bool:
    return text.lower() in {"true", "yes", "on"}


def _integer(text: str) -> int:
    digits = text.replace("_", "")
    decimal = re.fullmatch(r"[-+]?[0-9]+", digits)
    return int(digits) if decimal else int(digits, 0)


def _number(text: str) -> float:
    return float(_FLOATS.get(text.lower()) or text.replace("_", ""))


_SCALARS: dict[str, Callable[[str], Any]] = {
    _TAG + "null": _null,
    _TAG + "bool": _boolean,
    _TAG + "int": _integer,
    _TAG + "float": _number,
}


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1


def _kind(node: Node) -> str:
    if isinstance(node, MappingNode):
        return "a block"
    return "a list" if isinstance(node, SequenceNode) else "a single value"


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:40] + "…")  # noqa: PLR2004 - what fits a line
