"""Rules of other packages: what is a secret in one company, and has no published shape.

An entry point of the group `leporello.redaction_rules` names a function that is given a text and yields the secrets in
it. Every installed rule is used. One that cannot be loaded or that fails withholds the text, as a finder of ours does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from leporello.errors import RedactionError
from leporello.redact.spans import Secret, Subject

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENTRY_POINTS: Final = "leporello.redaction_rules"
Rule: TypeAlias = Callable[[str], Iterable[Secret]]
"""A function that finds secrets in a text."""

_KIND: Final = re.compile(r"[a-z][a-z0-9-]{0,39}")
_GROUP: Final = "secret"


def pattern_rule(kind: str, pattern: str) -> Rule:
    """Return a rule that finds a regular expression; of a match, its group `secret` if that has matched something."""
    compiled = re.compile(pattern)

    def find(text: str) -> Iterator[Secret]:
        for match in compiled.finditer(text):
            start, end = match.span(_GROUP if match.groupdict().get(_GROUP) else 0)
            if start < end:
                yield Secret(kind=kind, start=start, end=end)

    return find


@cache
def installed_rules() -> tuple[Callable[[Subject], list[Secret]], ...]:
    """Return the rules of all installed packages; nothing of them is imported before there is a text to search."""
    points = sorted(entry_points(group=ENTRY_POINTS), key=lambda point: (point.name, point.value))
    return tuple(_InstalledRule(point) for point in points)


class _InstalledRule:
    """A rule that is loaded when it is first used, and whose finds are checked."""

    def __init__(self, point: EntryPoint) -> None:
        self._point = point
        self._rule: Any = None
        self._problem = ""

    def __call__(self, subject: Subject) -> list[Secret]:
        """Return the secrets that the rule finds."""
        rule = self._loaded()
        try:
            found = list(rule(subject.text))
        except (Exception, SystemExit) as error:
            raise RedactionError(f"{self._name} failed ({type(error).__name__})") from error
        for secret in found:
            self._check(secret, len(subject.text))
        return found

    @property
    def _name(self) -> str:
        package = self._point.dist.name if self._point.dist else self._point.value
        return f"the redaction rule {self._point.name!r} of the package {package}"

    def _loaded(self) -> Any:
        if self._rule is None and not self._problem:
            try:
                self._rule = self._point.load()
            except (Exception, SystemExit) as error:  # noqa: BLE001 - another package's code may raise anything
                self._problem = _told(error)
            else:
                self._problem = "" if callable(self._rule) else f"{self._point.value} is not a function"
        if self._problem:
            raise RedactionError(f"{self._name} cannot be used ({self._problem}); mend or uninstall that package")
        return self._rule

    def _check(self, secret: Any, length: int) -> None:
        if not isinstance(secret, Secret):
            raise RedactionError(f"{self._name} yields a {type(secret).__name__}, not a Secret")
        kind: Any = secret.kind
        if not isinstance(kind, str) or not _KIND.fullmatch(kind):
            raise RedactionError(f"{self._name} names a kind that is not of lower-case letters, digits and '-'")
        if not (type(secret.start) is int is type(secret.end)):
            raise RedactionError(f"{self._name} finds a secret at a place that is no whole number")
        if not 0 <= secret.start < secret.end <= length:
            raise RedactionError(f"{self._name} finds a secret outside of the text, or an empty one")


def _told(error: BaseException) -> str:
    """Say what went wrong when a rule was loaded; what its own code says may hold an address with a password."""
    name = type(error).__name__
    return f"{name}: {error}" if isinstance(error, (ImportError, AttributeError, SyntaxError)) else name
