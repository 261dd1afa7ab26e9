"""From config.yaml, or a mapping shaped like it, to a `Config`; all problems are reported at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from leporello.config.engines import BUILT_IN, LOSSLESS, engine_names, user_engines
from leporello.config.fields import dotted, kind_at
from leporello.config.gateway import conflicts
from leporello.config.home import default_path, home_folder
from leporello.config.model import Config, ConfigBlock, Context, Lcm, Plugins
from leporello.config.problems import shown, together, unknown_key, wrong_value
from leporello.config.summariser import missing
from leporello.config.untrusted_files import read_regular
from leporello.errors import ConfigError

if TYPE_CHECKING:
    import os

    from leporello.config.source import Location

MAX_BYTES = 100_000
MAX_PROBLEMS = 50
BYTE_ORDER_MARK = "\ufeff"

_B = TypeVar("_B", bound=ConfigBlock)


@dataclass(frozen=True, kw_only=True)
class Checked:
    """The outcome of a check: a configuration or problems, and the line of every value that the file gives."""

    config: Config | None
    problems: tuple[ConfigError, ...] = ()
    lines: Mapping[Location, int] = field(default_factory=dict)

    def result(self) -> Config:
        """Return the configuration, or raise what is wrong."""
        if self.config is None:
            raise together(list(self.problems), file=self.problems[0].file)
        return self.config


def load(path: str | os.PathLike[str] | None = None) -> Config:
    """Read config.yaml; a missing file at the default place means defaults, a missing named one is an error."""
    return check_file(path).result()


def from_mapping(mapping: Mapping[str, Any]) -> Config:
    """Check a mapping shaped like config.yaml."""
    return check_values(mapping).result()


def check_file(path: str | os.PathLike[str] | None = None) -> Checked:
    """Read and check a file; what is wrong is returned, not raised."""
    file = default_path() if path is None else Path(path).expanduser()
    try:
        text = read_text(file)
    except ConfigError as error:
        return Checked(config=None, problems=(error,))
    if text is not None:
        return check_text(text, file=file)
    if path is None:
        return check_values({})
    missing = ConfigError("there is no such file.", file=file, hint="`leporello config path` names the default one.")
    return Checked(config=None, problems=(missing,))


def check_text(text: str, *, file: Path) -> Checked:
    """Check the text of a file."""
    from leporello.config.source import parse

    try:
        source = parse(text.removeprefix(BYTE_ORDER_MARK), file=file)
    except ConfigError as error:
        return Checked(config=None, problems=(error,))
    return check_values(source.values, file=file, lines=source.lines, problems=source.problems)


def check_values(
    values: Mapping[Any, Any],
    *,
    file: Path | None = None,
    lines: Mapping[Location, int] | None = None,
    problems: tuple[ConfigError, ...] = (),
) -> Checked:
    """Check plain values; `lines` says where each stands, `problems` are those known already."""
    check = _Check(values=dict(values), file=file, lines=lines or {}, problems=list(problems))
    config = check.run()
    ordered = sorted(check.problems, key=lambda problem: problem.line or 0)
    return Checked(config=None if ordered else config, problems=tuple(ordered), lines=check.lines)


def check_own_block(block: Any, *, file: Path | None = None) -> Lcm:
    """Check the block `lcm` by our schema, whichever engine has the name; what is wrong is raised."""
    values = dict(block) if isinstance(block, Mapping) else block
    check = _Check(values={LOSSLESS: values}, file=file, lines={}, problems=[], is_ours=True)
    config = check.run()
    if config is None:
        raise together(check.problems, file=file)
    return config.lcm


def read_text(file: Path) -> str | None:
    """Return a file's text with its line ends as they are; None when there is no file."""
    try:
        data = read_regular(file, most=MAX_BYTES)
    except FileNotFoundError:
        return None
    except IsADirectoryError as error:
        raise ConfigError("this is a folder, not a file.", file=file, hint="Name the file in it.") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"the file cannot be read: {reason}.", file=file) from error
    if data is None:
        raise ConfigError(f"the file is larger than {MAX_BYTES:,} bytes, so it is no configuration.", file=file)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError("the file is not UTF-8 text.", file=file, line=line, hint="Save it as UTF-8.") from error


@dataclass(kw_only=True)
class _Check:
    """One check of plain values against the model."""

    values: dict[Any, Any]
    file: Path | None
    lines: Mapping[Location, int]
    problems: list[ConfigError]
    is_ours: bool = False
    """Whether the block `lcm` is our engine's without a doubt."""

    def run(self) -> Config | None:
        known = {name: value for name, value in self.values.items() if name in Config.model_fields}
        blocks = {name: value for name, value in self.values.items() if name not in Config.model_fields}
        if self._is_foreign(known):
            blocks[LOSSLESS] = known.pop(LOSSLESS)
        self._check_engine_blocks(blocks)
        try:
            config = Config.model_validate(known, context=self._context())
        except ValidationError as error:
            for detail in error.errors(include_url=False, include_context=False)[:MAX_PROBLEMS]:
                self._report(detail["loc"], detail["type"], detail["input"])
            return None
        for key, problem, hint in missing(config.auxiliary.compression):
            self._add(("auxiliary", "compression", key), problem, hint)
        for location, problem, hint in conflicts(config.gateway):
            self._add(location, problem, hint)
        given = {name: value or {} for name, value in blocks.items()}
        if config.plugins.enabled and LOSSLESS in self.values:
            given[LOSSLESS] = self.values[LOSSLESS] or {}  # an enabled plugin may register an engine of that name
        config._path = self.file  # noqa: SLF001 - made here, and frozen for everybody else
        config._given = given  # noqa: SLF001 - the same
        config._unchecked = tuple(blocks)  # noqa: SLF001 - the same
        return config

    def _is_foreign(self, known: dict[Any, Any]) -> bool:
        """Tell whether the block `lcm` is another engine's.

        It is when a folder of the user has the name. It may be while our engine is not the chosen one, and when a
        plugin is enabled, which may register an engine of that name: then the block is ours if it fits our schema.
        """
        if self.is_ours or LOSSLESS not in known:
            return False
        plugins = self._valid_or_default(Plugins, "plugins")
        if any(folder.name == LOSSLESS for folder in user_engines(home=home_folder(), paths=plugins.paths)):
            return True
        if not plugins.enabled and self._valid_or_default(Context, "context").engine == LOSSLESS:
            return False
        try:
            Lcm.model_validate(known[LOSSLESS] or {}, context=self._context())
        except ValidationError:
            return True
        return False

    def _check_engine_blocks(self, blocks: dict[Any, Any]) -> None:
        if not blocks:
            return
        engines = self._engines()
        for name, value in blocks.items():
            if len(self.problems) >= MAX_PROBLEMS:
                return
            if name not in engines:
                self._add((name,), *unknown_key((name,), engines=sorted(engines)))
            elif value is not None and not isinstance(value, dict):
                self._add((name,), f"must be a block of the engine's own keys, not {shown(value)}.", None)

    def _engines(self) -> set[str]:
        plugins = self._valid_or_default(Plugins, "plugins")
        chosen = self._valid_or_default(Context, "context").engine
        return (engine_names(home=home_folder(), paths=plugins.paths) | {chosen, *plugins.enabled}) - {BUILT_IN}

    def _valid_or_default(self, block: type[_B], name: str) -> _B:
        try:
            return block.model_validate(self.values.get(name) or {}, context=self._context())
        except ValidationError:
            return block()  # reported with the whole

    def _context(self) -> dict[str, Any]:
        return {"folder": None if self.file is None else self.file.absolute().parent}

    def _report(self, location: Location, kind: str, value: Any) -> None:
        if kind == "extra_forbidden" or kind_at(location[:-1]) is None:
            self._add(location, *unknown_key(location))
        elif kind == "invalid_key" or location[-1] == "[key]":
            self._add(location[:-1] if location[-1] == "[key]" else location, *unknown_key((value,)))
        else:
            self._add(location, *wrong_value(location, value))

    def _add(self, location: Location, problem: str, hint: str | None) -> None:
        key = dotted(location)
        if all(known.key != key for known in self.problems):
            line = next((self.lines[place] for place in _outward(location) if place in self.lines), None)
            self.problems.append(ConfigError(problem, file=self.file, line=line, key=key, hint=hint))


def _outward(location: Location) -> list[Location]:
    return [location[:length] for length in range(len(location), 0, -1)]
