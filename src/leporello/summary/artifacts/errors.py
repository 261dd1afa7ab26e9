"""Error lines in any output, exactly as they stand there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from leporello.summary.artifacts.spots import line_at, spots

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LONGEST = 300
_TRACEBACK = "Traceback (most recent call last)"
_EXCEPTION = r"^\s*(?:\w+\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit|Failure)(?::\s.*|\s*$)"
_COMPILER = r"(?:^|[\s:\])])(?:fatal\s)?[Ee]rror(?:\[\w+\]|\s[A-Z]+\d+)?:\s*\S"
_LOGGED = r"^\s*(?:\[?\d[\dT:.,/ Z+-]*\]?\s*)?\[?(?:ERROR|FATAL|CRITICAL)\]?[\s:|-]\s*\S"
_THROWN = r"(?:Uncaught|Caused by:|Unhandled|Exception in)\s.*"
_EXITED = (
    r"^\W{0,3}(?:\w+:?\s)?[Ee]xit(?:ed)?(?:\swith)?[\s_](?:code|status)\W{0,3}-?[1-9]\d*\W*$"
    r"|\bexited\swith\s(?:code|status)\s-?[1-9]"
)
_HTTP = (
    r"\bHTTP(?:/[\d.]+)?[\"':\s]+[45]\d\d\b|\b[Ss]tatus(?:[\s_]?[Cc]ode)?[\"']?[:=\s]+[45]\d\d\b"
    r"|\b(?:400 Bad|401 Un|403 For|404 Not|409 Con|422 Un|429 Too|500 Int|502 Bad|503 Ser|504 Gat)\w*"
)
# A plain substring finds the lines that may be errors; the pattern beside it decides.
_SIGNS = {
    hint: re.compile(pattern)
    for hint, pattern in {
        "rror": f"{_COMPILER}|{_EXCEPTION}|{_THROWN}|^\\s*npm error\\s\\S|\\b500 Internal",
        "RROR": _LOGGED,
        "xception": f"{_EXCEPTION}|{_THROWN}",
        "FAIL": r"^\s*(?:--- )?FAIL(?:ED)?[:\s]\s*\S",
        "✗": r"^\s*✗\s*\S",
        "npm ERR!": r"^\s*npm ERR!\s*\S",
        "panic": r"^\s*panic:|panicked at",
        "egmentation fault": r"[Ss]egmentation fault",
        "atal:": r"^\s*[Ff]atal:\s*\S",
        "FATAL": _LOGGED,
        "CRITICAL": _LOGGED,
        "ot found": r"command not found|[Mm]odule not found|\b404 Not",
        "o such file": r"[Nn]o such file or directory",
        "ermission denied": r"[Pp]ermission denied",
        "onnection refused": r"[Cc]onnection refused",
        "imed out": r"\b[Tt]imed out\b",
        "\nE  ": r"^\s*E\s{2,}\S",
        "xit": _EXITED,
        "HTTP": _HTTP,
        "tatus": _HTTP,
        "** (": r"\*\*\s\([A-Z][\w.]*\)",
        "Killed": r"^\s*Killed\s*$",
        "out of memory": r"\bout of memory\b",
        "错误": r"错误\s?[:：]",
        "失败": r"失败\s?[:：]",
        "异常": r"异常\s?[:：]",
        "报错": r"报错\s?[:：]",
        "超时": r"超时\s?[:：]",
    }.items()
}
_CODE = re.compile(
    r"""
    ^\s*\d+\s?(?:→|\t|\|)                                   # a numbered line of a file that was read
    | ^\s*(?:raise|except|throw|catch|rescue|import|from|class|def|return|if|elif|else|assert|expect|it|describe)\b
    | ^\s*(?:[#/]|\*(?!\*)|--|[-+]\s)                               # comments, and lines of a diff
    | (?:\blog(?:ger|ging)?|console)\.\w+\(
    | [{;,(]\s*$ | =>
    | error["']?:\s*(?:null|none|nil|false|true|0|str|string|any|error|""|'')\W*$
    """,
    re.VERBOSE | re.IGNORECASE,
)
_BARE_EXIT = re.compile(r"\W*(?:Error: )?[Ee]xit(?:ed)?(?: with)?[ _](?:code|status)\W{0,3}-?\d+\W*")
_CAUSE_LINE = re.compile(r"^[^\s|].*$", re.MULTILINE)
_MANY_FRAMES = 20_000


def error_lines(text: str) -> list[str]:
    """Return the error lines of a text in their order, each once, the cause of a traceback whatever it is called."""
    return telling_errors(line for _, line in sorted(set(errors_at(text))))


def errors_at(text: str, hints: Iterable[str] = _SIGNS) -> Iterator[tuple[int, str]]:
    """Yield every error line with its position, or those that certain hints lead to; a line may come twice."""
    yield from _causes(text)
    for hint, sign in ((hint, _SIGNS[hint]) for hint in hints):
        for position in spots(text, hint):
            line = line_at(text, position + (hint[0] == "\n"))
            if sign.search(line) and not _CODE.search(line):
                yield position + (hint[0] == "\n"), bounded_line(line)


def telling_errors(lines: Iterable[str]) -> list[str]:
    """Keep each line once, and a bare exit code only where nothing else tells what went wrong."""
    once = dict.fromkeys(lines)
    return [line for line in once if not _BARE_EXIT.fullmatch(line)] or list(once)


def bounded_line(line: str) -> str:
    """Return a line without its margins, cut visibly when it is very long."""
    line = line.strip()
    return line if len(line) <= LONGEST else line[:LONGEST].rstrip() + "…"


def _causes(text: str) -> Iterator[tuple[int, str]]:
    for position in spots(text, _TRACEBACK):
        start = text.find("\n", position) + 1
        match = _CAUSE_LINE.search(text, start, start + _MANY_FRAMES) if start else None
        if match and not match[0].startswith(_TRACEBACK[:9]):
            yield match.start(), bounded_line(match[0])
