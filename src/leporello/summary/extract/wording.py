"""Making one line out of what was said."""

from __future__ import annotations

import re

_FIRST_SENTENCE = re.compile(r".{12,}?(?:(?<!\s\d)[.!?](?=\s)|[。！？])", re.DOTALL)
_MARKUP = re.compile(r"^[\s#>*\-•]+|\*\*|```\w*", re.MULTILINE)
_FILLER = re.compile(
    r"^(?:(?:(?:great|perfect|excellent|sure|okay|ok|alright|good|certainly|of course|thank you|thanks)"
    r"(?:(?: [\w']+){0,2}[.!]+|,)|now)\s+)+",
    re.IGNORECASE,
)
"""An exclamation in front of what is said: "Great catch! You are right" begins with "You are right"."""


def one_line(text: str, length: int) -> str:
    """Return a text as one line, cut at a word when it is longer."""
    line = " ".join(text[: 4 * length + 200].split())
    if len(line) <= length and len(text) <= 4 * length + 200:
        return line
    shortened = line[: length - 1]
    head, space, _ = shortened.rpartition(" ")
    return (head if space and len(head) > length // 2 else shortened).rstrip(" ,;:") + "…"


def gist(text: str, length: int) -> str:
    """Return what a message begins with in substance: its first sentences, without markup, as one line."""
    bare = _FILLER.sub("", " ".join(_MARKUP.sub("", text[: 8 * length]).split()))
    taken, position = "", 0
    # Where no sentence ends after one place, none ends after a later one: searching on would only take time.
    while match := _FIRST_SENTENCE.match(bare, position):
        if taken and len(taken) + len(match[0]) > length:
            break
        taken += match[0]
        position = match.end()
    return one_line(taken or bare, length)


def quoted(text: str, length: int) -> str:
    """Quote a text as one line."""
    return f"“{one_line(text, length)}”"
