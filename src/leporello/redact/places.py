"""Find secrets by the place they stand in: addresses, command lines, headers without a name, and netrc files."""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING

from leporello.redact.formats import AZURE_CLIENT_SECRET
from leporello.redact.names import kind_of_name
from leporello.redact.patterns import places_of
from leporello.redact.spans import Secret, Subject
from leporello.redact.values import is_password, is_placeholder, is_random, is_token

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_ADDRESS = re.compile(
    r"://(?P<user>[^\s/?#@:\"'<>`\\]{0,256}+)(?::(?P<password>[^\s/?#\"'<>`\\]{1,512}))?@(?=[A-Za-z0-9_.\[$-])"
)
_ENCODED_ADDRESS = re.compile(
    r"%3A%2F%2F(?P<user>[\w.~-]{0,128})%3A"
    r"(?P<password>[\w.~!$*+-]{1,256}(?:%(?!40|2F)[0-9A-F]{2}[\w.~-]{0,256}){0,16})%40",
    re.IGNORECASE | re.ASCII,
)
_FLAG = re.compile(
    r"--(?<![\w-]--)(?P<name>[A-Za-z][\w-]{1,48}+)[ \t]{1,4}+"
    r"(?:(?P<quote>[\"'])(?P<quoted>[^\"'\n]{1,512})(?P=quote)|(?P<bare>[^\s\"'`;|&<>]{4,512}+))",
    re.ASCII,
)
_SWITCH = re.compile(r" -(?P<switch>[pua])(?P<gap>[ \t]{0,2})(?P<quote>[\"']?)(?P<value>[^\s\"'`;|&<>]{3,512}+)")
# MySQL reads a word that stands apart from -p as the name of a database.
_ATTACHED = {"p": ("mysql", "mariadb", "sshpass", "mongo", "docker login", "podman login", "7z "), "u": (), "a": ()}
_APART = {
    "p": ("docker login", "podman login", "mongosh", "mongodump", "mongorestore", "mongo ", "cqlsh"),
    "u": ("curl ", "http ", "https ", "xh "),
    "a": ("redis-cli",),
}
_LONGEST_COMMAND = 400
_NETRC = re.compile(r"login[ \t\n]{1,8}+\S{1,256}+[ \t\n]{1,8}+password[ \t\n]{1,8}+(?P<secret>\S{1,256})")
_MACHINE = re.compile(r"(?:machine[ \t\n]{1,8}\S{1,256}|default)[ \t\n]{1,8}\Z")
_LONGEST_MACHINE = 300


def find_places(subject: Subject) -> Iterable[Secret]:
    """Return the secrets that their place gives away."""
    flat = subject.flat
    found: list[Iterator[Secret]] = []
    if "://" in flat or "%3" in flat:
        found.append(_addresses(subject))
    if " -" in flat or "\n--" in flat or flat.startswith("--"):
        found.append(_options(subject))
    if "login" in flat:
        found.append(_logins(subject))
    if "Q~" in flat:
        found.append(_client_secrets(subject))
    return chain.from_iterable(found) if found else ()


def _client_secrets(subject: Subject) -> Iterator[Secret]:
    for match in _matches(subject, "Q~", AZURE_CLIENT_SECRET):
        yield Secret(kind="azure-client-secret", start=match.start() - 4, end=match.end())


def _matches(subject: Subject, literal: str, pattern: re.Pattern[str]) -> Iterator[re.Match[str]]:
    """Yield the matches of a pattern that begins with a literal."""
    for position in places_of(subject.flat, literal):
        if (match := pattern.match(subject.text, position)) is not None:
            yield match


def _addresses(subject: Subject) -> Iterator[Secret]:
    """Yield the passwords, and the tokens used as names, in URLs."""
    for match in _matches(subject, "://", _ADDRESS):
        if match["password"] is not None and _is_address_password(match["password"]):
            yield _secret("url-password", match, "password")
        if match["user"] and is_random(match["user"]) and not is_placeholder(match["user"]):
            yield _secret("url-password", match, "user")
    if "%" in subject.flat:
        encoded = ("%3A%2F%2F", "%3a%2f%2f")
        for match in chain.from_iterable(_matches(subject, literal, _ENCODED_ADDRESS) for literal in encoded):
            if _is_address_password(match["password"]):
                yield _secret("url-password", match, "password")


def _is_address_password(value: str) -> bool:
    return not is_placeholder(value) and not value.isupper()


def _options(subject: Subject) -> Iterator[Secret]:
    """Yield what command lines pass in options."""
    flat, text = subject.flat, subject.text
    first = (-1,) if flat.startswith("--") else ()  # as if a line break stood before the text
    for position in chain(first, places_of(flat, " -"), places_of(flat, "\n--")):
        letter = flat[position + 2 : position + 3]
        if letter == "-" and (flag := _FLAG.match(text, position + 1)) is not None:
            yield from _flag(flag)
        elif letter in _APART and (switch := _SWITCH.match(text, position)) is not None:
            yield from _switch(flat, switch)


def _flag(match: re.Match[str]) -> Iterator[Secret]:
    kind = kind_of_name(match["name"])
    group = "quoted" if match["quoted"] else "bare"
    value, quoted = match[group], group == "quoted"
    if kind == "password" and is_password(value, quoted=quoted, alone=True):
        yield _secret("password", match, group)
    if kind in {"token", "key", "secret"} and is_token(value, quoted=quoted):
        yield _secret("secret", match, group)


def _switch(flat: str, match: re.Match[str]) -> Iterator[Secret]:
    """Yield the password after a one-letter switch of a client that takes it so."""
    if not _takes_password(_command_before(flat, match.start()), match):
        return
    value, start = match["value"], match.start("value")
    if match["switch"] == "u":
        user, colon, value = value.partition(":")
        start += len(user) + len(colon)
    if is_password(value, quoted=True, alone=True):
        yield Secret(kind="password", start=start, end=start + len(value))


def _command_before(text: str, end: int) -> str:
    start = max(0, end - _LONGEST_COMMAND)
    return text[max(start, text.rfind("\n", start, end) + 1) : end + 1]


def _takes_password(command: str, match: re.Match[str]) -> bool:
    clients = (_APART if match["gap"] else _ATTACHED)[match["switch"]]
    return any(client in command for client in clients) or (match["switch"] == "p" and command.endswith("sshpass "))


def _logins(subject: Subject) -> Iterator[Secret]:
    """Yield the passwords of a netrc file."""
    for match in _matches(subject, "login", _NETRC):
        head = subject.text[max(0, match.start() - _LONGEST_MACHINE) : match.start()]
        if _MACHINE.search(head) is not None and not is_placeholder(match["secret"]):
            yield _secret("password", match, "secret")


def _secret(kind: str, match: re.Match[str], group: str) -> Secret:
    return Secret(kind=kind, start=match.start(group), end=match.end(group))
