"""Which files a conversation touched, and how: from tool arguments, patches, commands, and what outputs name."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from leporello.summary.artifacts.shell import file_actions
from leporello.summary.artifacts.spots import whole_line

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from leporello.messages.types import ToolCall

_LONGEST = 300
_PATH_KEYS = frozenset({
    "path", "paths", "file", "files", "file_path", "filepath", "file_paths", "filename", "file_name", "filenames",
    "target_file", "old_path", "new_path", "notebook_path", "relative_path", "absolute_path", "directory", "folder",
})  # fmt: skip
# Names that hold a path in some tools and something else in others: the value has to look like one.
_MAYBE_PATH_KEYS = frozenset({"target", "source", "destination", "src", "dst", "dir", "include", "name", "uri"})
_COMMAND_KEYS = ("command", "cmd", "script", "commands")
_EDITOR_COMMANDS = {
    "view": "read",
    "create": "created",
    "str_replace": "written",
    "insert": "written",
    "undo_edit": "written",
}
_BY_NAME = (
    ("deleted", ("delete", "remove", "unlink")),
    ("moved", ("move", "rename")),
    ("created", ("create",)),
    ("written", ("write", "edit", "replace", "patch", "insert", "append", "update", "save", "modify")),
    ("searched", ("search", "grep", "find", "glob", "rg")),
    ("listed", ("list", "ls", "tree", "dir")),
    ("read", ("read", "view", "open", "cat", "load", "show", "get")),
)
_CONTENT_KEYS = frozenset({"content", "new_string", "old_string", "file_text", "new_str", "contents", "patch", "diff"})
_PATCH_FILE = re.compile(
    r"^(?:\*\*\* (?P<verb>Add|Update|Delete) File: (?P<path>[^\n]{1,300})|\*\*\* Move to: (?P<moved>[^\n]{1,300})"
    r"|\+\+\+ (?:b/)?(?P<after>[^\s]{1,300})|--- (?:a/)?(?P<before>[^\s]{1,300})\n\+\+\+ /dev/null)",
    re.MULTILINE,
)
_LOOKS = frozenset({"read", "searched", "listed"})
CHANGES = ("written", "created", "deleted", "moved")
"""What changes a file."""
_PATCH_VERBS = {"Add": "created", "Update": "written", "Delete": "deleted"}
_FRAME = re.compile(r'File "([^"\n<]{1,300})", line \d+')
_MENTION = re.compile(
    r"(?<![A-Za-z0-9_.~@+/:}$*>-])"
    r"(?:(?:[A-Za-z]:\\|\\\\)(?:[^\s\\/:*?\"<>|]{1,80}\\){0,12}[^\s\\/:*?\"<>|]{1,80}"
    r"|(?:~|\.{0,2})/?[A-Za-z0-9_@+.-]{1,80}(?:/[A-Za-z0-9_@+.\[\]()-]{1,80}){0,14})"
    r"(?=(?P<place>:\d{1,6}(?::\d{1,5})?)?)",
    re.ASCII,
)
_EXTENSION = re.compile(r"\.[A-Za-z][A-Za-z0-9]{0,9}$")
_SOURCE_EXTENSION = re.compile(
    r"\.(?:py|pyi|js|jsx|ts|tsx|mjs|cjs|json|jsonl|ya?ml|toml|ini|cfg|conf|env|md|rst|txt|html?|css|scss|vue|svelte|java|kt|go|rs"
    r"|c|h|cc|cpp|hpp|cs|rb|php|ex|exs|erl|hs|scala|swift|lua|pl|r|sql|sh|bash|zsh|ps1|bat|xml|svg|csv|tsv|log|lock|ipynb"
    r"|proto|graphql|tf|gradle|docx?|xlsx?|pptx?|pdf|png|jpe?g|gif|zip|gz|db|sqlite|patch|diff)$",
    re.IGNORECASE,
)
# Without an extension, an absolute path is told from the route of a web service by where it begins.
_ROOT = re.compile(
    r"(?:~|/(?:home|usr|etc|var|tmp|opt|srv|mnt|root|Users|work|workspace|data|app|repo|private|proc|sys|boot))/|[A-Za-z]:\\"
)
GREP_LINE = re.compile(r"(\.[A-Za-z]{1,4})-\d+(?:-.*)?$")
"""How grep writes the line beside a hit, behind the name of the file: "a.go-12-"."""
_OPENS = {")": "(", "]": "["}
_METHOD = re.compile(
    r"^[A-Z]\w*\.(?:diff|env|log|db|conf|patch|lock|r|c|h|pl|swift|go|sql|zip)$"
    r"|^\w+(?:\.\w+)*\.(?:Log|Diff|Lock|Go|Env|Conf|Patch|Db|Sql)$"
)
_NOT_TOUCHED = ("/dev/", "/usr/bin/env", "/bin/")
_MEDIA_TYPE = re.compile(r"(?:application|text|image|audio|video|multipart)/[a-z0-9.+-]+$")


def call_actions(call: ToolCall) -> Iterator[tuple[str, str]]:
    """Yield (action, path) for what a tool call does to files; action "" is a mention."""
    verb = _verb(call)
    for key, value in call.arguments.items():
        if key.lower() in _PATH_KEYS:
            yield from ((verb, path) for path in _paths(value))
        elif key.lower() in _MAYBE_PATH_KEYS:
            yield from ((verb, path) for path in _paths(value) if is_path(path))
        elif isinstance(value, str) and ("*** " in value or "+++ " in value):
            yield from patch_actions(value)
    command = command_of(call)
    if command:
        yield from ((action, path) for action, path in file_actions(command) if action or is_path(path))


def file_of(call: ToolCall) -> str:
    """Return the one file that a call is about; "" when it is about none, or several."""
    paths = {path for _, given in call_actions(call) if (path := clean(given))}
    return paths.pop() if len(paths) == 1 else ""


def changed_by(call: ToolCall) -> list[str]:
    """Return the files that a call changes; [] when it does anything else, too."""
    done = [(action, path) for action, given in call_actions(call) if (path := clean(given))]
    return [path for _, path in done] if all(action in CHANGES for action, _ in done) else []


def runs(call: ToolCall) -> bool:
    """Tell whether a call runs a program."""
    return any(action == "run" for action, _ in call_actions(call))


def telling_arguments(call: ToolCall) -> dict[str, Any]:
    """Return the arguments of a call without the numbers that say which part of a file to show."""
    actions = {action for action, _ in call_actions(call)}
    if command_of(call) or not actions or not actions <= _LOOKS:
        return call.arguments
    return {key: value for key, value in call.arguments.items() if not isinstance(value, (int, float))}


def command_of(call: ToolCall) -> str:
    """Return the shell command that a call runs, or ""."""
    for key in _COMMAND_KEYS:
        value = call.arguments.get(key)
        if isinstance(value, list) and all(isinstance(word, str) for word in value):
            return " ".join(value)
        if isinstance(value, str) and value and value not in _EDITOR_COMMANDS:
            return value
    return ""


def patch_actions(text: str) -> Iterator[tuple[str, str]]:
    """Yield (action, path) for the files of a patch."""
    for match in _PATCH_FILE.finditer(text):
        if match["verb"]:
            yield _PATCH_VERBS[match["verb"]], match["path"].strip()
        elif match["before"]:
            yield "deleted", match["before"]
        elif match["moved"] or match["after"] != "/dev/null":
            yield "written", (match["moved"] or match["after"]).strip()


def frames_at(text: str) -> Iterator[tuple[int, str]]:
    """Yield (position, path) for the files of the tracebacks in a text."""
    if 'File "' in text:
        yield from ((match.start(), match[1]) for match in _FRAME.finditer(text))


def mentions(words: str) -> Iterator[tuple[str, str, str]]:
    """Yield (word, action, path) for the paths in words, one word to a line; a place after a path makes it a hit."""
    found = [(match, _trimmed(match[0])) for match in _MENTION.finditer(words)]
    paths = {path for _, path in found}
    for match, path in found:
        if ("/" in path or "." in path or "\\" in path) and is_path(path):
            action = "searched" if match["place"] else ""
            yield whole_line(words, match.start()), action, _without_side(path, paths)


def _trimmed(path: str) -> str:
    """Return a path without what stands behind it; a bracket that was opened inside it belongs to it."""
    path = GREP_LINE.sub(r"\1", path).rstrip(".-+([")
    while path.endswith((")", "]")) and path.count(_OPENS[path[-1]]) < path.count(path[-1]):
        path = path[:-1].rstrip(".-+([")
    return path


def _without_side(path: str, others: Collection[str]) -> str:
    """Return the file that a patch names as "a/src/x.py" and "b/src/x.py", before and after."""
    file = path[2:]
    is_side = path.startswith(("a/", "b/")) and f"a/{file}" in others and f"b/{file}" in others
    return file if is_side else path


def is_path(text: str) -> bool:
    """Tell a path from a word with a slash or a dot in it."""
    if "/" not in text and "\\" not in text:
        return bool(_SOURCE_EXTENSION.search(text)) and text[0] not in "._@" and not _METHOD.search(text)
    if "//" in text or _MEDIA_TYPE.match(text):
        return False
    if text.startswith(("/", "./", "../", "~/")) or "\\" in text:
        return bool(_EXTENSION.search(text) or _ROOT.match(text)) and not text.startswith(_NOT_TOUCHED)
    return bool(_EXTENSION.search(text)) and not text[0].isdigit()


def endings(path: str) -> Iterator[str]:
    """Yield the shorter names of a path: "b/c.py" and "c.py" for "a/b/c.py"."""
    parts = path.split("/")
    return ("/".join(parts[start:]) for start in range(1, len(parts)))


def clean(path: str) -> str:
    """Return a path without quotes and spaces around it, or "" when it cannot be one."""
    path = path.strip().strip("\"'`")
    if not path or len(path) > _LONGEST or len(path.splitlines()) > 1 or path in {".", "..", "/", "-", "~", "*"}:
        return ""
    return path.removeprefix("./") or ""


def _verb(call: ToolCall) -> str:
    command = call.arguments.get("command")
    if isinstance(command, str) and command in _EDITOR_COMMANDS:
        return _EDITOR_COMMANDS[command]
    return verb_of(call.name) or ("written" if _CONTENT_KEYS & call.arguments.keys() else "")


@lru_cache(maxsize=256)
def verb_of(tool: str) -> str:
    """Return what a tool does to the files that it is given, by its name; "" when the name does not tell."""
    name = tool.lower()
    return next((verb for verb, stems in _BY_NAME if any(stem in name for stem in stems)), "")


def _paths(value: Any) -> Iterator[str]:
    for item in value if isinstance(value, list) else [value]:
        if isinstance(item, dict):
            item = next((item[key] for key in ("path", "file_path", "file") if key in item), None)  # noqa: PLW2901 - the path inside it
        if isinstance(item, str) and "://" not in item and clean(item):
            yield item
