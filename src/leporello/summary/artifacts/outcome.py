"""What a tool's answer says about how the call went."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from leporello.summary.artifacts.errors import bounded_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_END = 2_000
_SHORT = 200
_LINES_TRIED = 6
_EXIT = re.compile(
    r"^\W{0,3}(?:Error: |[Cc]ommand |[Pp]rocess |[Pp]rogram )?"
    r"(?:[Ee]xit(?:ed)?(?: with)?[ _]?(?:[Cc]ode|[Ss]tatus)?|return_?code)\W{0,3}(?P<code>-?\d{1,5})\b\W*$"
    r"|\((?:exit|exit code|rc)[ :=]+(?P<rc>-?\d{1,5})\)\s*$"
)
_EXIT_WORDS = ("xit", "returncode", "return_code", "(rc")
_TESTS = re.compile(
    r"\b\d{1,5} (?:passed|failed|errors?|tests?|failures?|examples?|skipped|doctests?|passing|failing)\b(?![/\w-])"
    r"(?:[ ,;|]+\d+ (?:\w+ ?){1,2}?(?=[,;|\s]|$)){0,5}"
    r"|Tests?:\s+[^\n]{0,80}|\bBUILD (?:SUCCESSFUL|FAILED)|\bOK \(\d+ tests?[^\n]{0,40}"
)
_TEST_WORDS = ("passed", "failed", "failure", "passing", "failing", "tests", "Tests:", "BUILD ", "examples")
_TESTS_FAILED = re.compile(r"(?<!\d)(?!0 )\d+ (?:failed|failures?|errors?|failing)\b|BUILD FAILED")
_OPENING = re.compile(
    r"\s*(?:<\w+>)?\s*(?:(?:error|fatal|traceback|failed|failure|exception|cannot)\b|错误|失败|报错)", re.IGNORECASE
)
_SAYS_FAILED = ("success: false", "ok: false", "is_error: true", "status: error", "status: failed", "status: failure")


def outcome_of(text: str, errors: Sequence[str]) -> tuple[str, str]:
    """Return "ok", "failed" or "unknown", and what the answer says about it; `errors` are the error lines in it."""
    if not text or text.isspace():
        return "unknown", ""
    head, tail = text[:_END], text[-_END:]
    tests, code = _tests(tail), _exit_code(tail) or (_exit_code(head) if len(text) > _END else "")
    if tests:
        return "failed" if _TESTS_FAILED.search(tests) or code not in {"", "0"} else "ok", tests
    if code == "0":
        return "ok", ""
    if code:
        problem = _problem(head, errors)
        return "failed", f"exit code {code}" + (f", {problem}" if problem else "")
    last_line = bounded_line(tail.rstrip().rpartition("\n")[2])
    if _OPENING.match(head) or _says_failed(head) or last_line in errors:
        return "failed", last_line[:_SHORT] if last_line in errors else _problem(head, errors)
    return "ok", ""


def _tests(tail: str) -> str:
    """Return the last line of a test runner that counts."""
    found = (_TESTS.search(line) for line in _lines_with(tail, _TEST_WORDS))
    return next((" ".join(match[0].split()).removesuffix(" in").strip(" ,;|") for match in found if match), "")


def _exit_code(end: str) -> str:
    found = (_EXIT.search(line) for line in _lines_with(end, _EXIT_WORDS))
    return next((match["code"] or match["rc"] for match in found if match), "")


def _lines_with(text: str, words: tuple[str, ...]) -> Iterator[str]:
    """Yield the last lines that hold one of the words, the newest first for each."""
    for word in [word for word in words if word in text]:
        end = len(text)
        for _ in range(_LINES_TRIED):
            position = text.rfind(word, 0, end)
            if position < 0:
                break
            end = text.rfind("\n", 0, position) + 1
            stop = text.find("\n", position)
            yield text[end : stop if stop >= 0 else len(text)][:_END]


def _says_failed(head: str) -> bool:
    return any(sign in head and (head.startswith(sign) or f"\n{sign}" in head) for sign in _SAYS_FAILED)


def _problem(head: str, errors: Sequence[str]) -> str:
    """Return the error that the answer begins with or else names first, else its first line."""
    lines = [line.strip() for line in head.splitlines() if line.strip() and not _EXIT.search(line)]
    told = [line for line in errors if not _EXIT.search(line)]
    first = lines[0] if lines else ""
    return bounded_line(first if first in told or not told else told[0])[:_SHORT]
