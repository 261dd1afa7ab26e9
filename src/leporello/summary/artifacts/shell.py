"""What a shell command does to files, read cautiously: what is not certain is only a mention."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_LONGEST = 20_000
_HEREDOC = re.compile(r"<<-?\s*['\"]?(\w+)['\"]?")
_SEPARATORS = frozenset({"&&", "||", ";", "|", "&", "|&", "(", ")"})
_WRAPPERS = frozenset({"sudo", "time", "nohup", "env", "command", "exec"})
# What a command does to the files it is given.
_SIMPLE = {
    name: action
    for action, names in {
        "read": ("cat", "head", "tail", "less", "more", "wc", "nl", "bat", "diff", "stat", "source"),
        "deleted": ("rm", "unlink", "shred"),
        "created": ("touch", "create"),
        "written": ("tee",),
        "listed": ("ls", "tree", "du", "mkdir", "find", "rmdir"),
        "run": ("python", "python3", "pytest", "node", "bash", "sh", "zsh", "ruby", "perl", "php", "deno", "tsx"),
    }.items()
    for name in names
}
_ELSEWHERE = frozenset({"cd", "pushd"})
"""What says where the next command runs: no command is about that folder."""
_SEARCHED = frozenset({"grep", "rg", "egrep", "fgrep", "ag", "ack", "zgrep"})
_EDITED = frozenset({"sed", "awk"})
_MOVED = frozenset({"mv", "cp", "install", "ln", "rename"})
_GIT_NAMED = frozenset({"add", "diff", "checkout", "restore", "blame", "show", "log", "reset"})
_CERTAIN = frozenset({"deleted", "created", "written"})
_REDIRECTS = {">": "written", ">>": "written", "<": "read", "&>": "written", "2>": "", "2>>": ""}
_WORD = re.compile(r"""'[^']*'|"(?:[^"\\]|\\.)*"|[0-9&]?>>?|<|\|\||&&|[|&;()]|[^\s'"|&;()<>]+""")
_NOT_A_FILE = re.compile(r"^-|\w\.\.\w|^\$|[*?{}$()=\[\]^|\\\n]|^\d*$|^/dev/|^&|://")


def file_actions(command: str) -> Iterator[tuple[str, str]]:
    """Yield (action, path) for every file that a command certainly touches."""
    for words in _simple_commands(_without_heredocs(command[:_LONGEST])):
        if ">" in command or "<" in command:
            yield from _redirects(words)
        plain_words = _unwrapped(words)
        if plain_words:
            yield from _command_actions(plain_words[0].rsplit("/", 1)[-1], plain_words[1:])


def _without_heredocs(command: str) -> str:
    """Take out the bodies of here-documents: they are data."""
    while match := _HEREDOC.search(command) if "<<" in command else None:
        body = command.find("\n", match.end())
        if body < 0:
            return command.replace("<<", " ")
        end = re.compile(rf"^\s*{match[1]}\s*$", re.MULTILINE).search(command, body + 1)
        rest = command[end.end() :] if end else ""
        command = command[: match.start()] + command[match.end() : body] + "\n" + rest
    return command


def _simple_commands(command: str) -> Iterator[list[str]]:
    for line in command.replace("\\\n", " ").split("\n"):
        words: list[str] = []
        for word in _words(line):
            if word in _SEPARATORS:
                yield words
                words = []
            else:
                words.append(word)
        yield words


def _words(line: str) -> list[str]:
    return [word[1:-1] if word[0] in "'\"" and word[-1:] == word[0] else word for word in _WORD.findall(line)]


def _redirects(words: list[str]) -> Iterator[tuple[str, str]]:
    for sign, target in pairwise(words):
        action = _REDIRECTS.get(sign)
        if action and _is_file(target):
            yield action, target


def _unwrapped(words: list[str]) -> list[str]:
    """Take off redirections, assignments and words such as sudo in front of the command."""
    kept: list[str] = []
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in _REDIRECTS or (word and set(word) <= {">", "<", "&"}):
            skip = True
        elif kept or not (word in _WRAPPERS or re.match(r"\w+=", word)):
            kept.append(word)
    return kept


def _command_actions(name: str, words: list[str]) -> Iterator[tuple[str, str]]:
    files = [word for word in words if _is_file(word)]
    if name in _ELSEWHERE:
        return
    if name in _SIMPLE:
        action = _SIMPLE[name]
        yield from ((action, file) for file in files if action in _CERTAIN or _looks_named(file))
    elif name == "git" and files:
        yield from _git_actions(files[0], files[1:])
    elif name in _MOVED and len(files) > 1:
        yield from (("moved" if name == "mv" else "read", file) for file in files[:-1])
        yield "written", files[-1]
    elif name in _SEARCHED:
        yield from (("searched", file) for file in files[1:] if _looks_named(file))
    elif name in _EDITED:
        yield from _edits(words)
    else:
        yield from (("", file) for file in files)


def _edits(words: list[str]) -> Iterator[tuple[str, str]]:
    """Read the files of sed or awk: all words but the options and the program."""
    action = "written" if any(word.startswith(("-i", "--in-place")) for word in words) else "read"
    given = [word for word in words if word and not word.startswith("-")][1:]
    yield from ((action, file) for file in given if _is_file(file) and _looks_named(file))


def _git_actions(verb: str, files: list[str]) -> Iterator[tuple[str, str]]:
    if verb == "mv" and len(files) > 1:
        yield from (("moved", file) for file in files[:-1])
        yield "written", files[-1]
    elif verb == "rm":
        yield from (("deleted", file) for file in files)
    elif verb in _GIT_NAMED:
        yield from (("", file) for file in files if _looks_named(file))


def _is_file(word: str) -> bool:
    return bool(word) and len(word) < 300 and not _NOT_A_FILE.search(word) and " " not in word.strip()  # noqa: PLR2004


def _looks_named(word: str) -> bool:
    """Tell a path from an argument that is an expression or a bare word; README and Makefile are paths."""
    return "/" in word or "." in word.strip(".") or (word.isidentifier() and word[0].isupper())
