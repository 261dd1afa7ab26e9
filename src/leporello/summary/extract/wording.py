"""Making one line out of what was said."""

from __future__ import annotations

import re

_FIRST_SENTENCE = re.compile(r".{12,}?(?:(?<!\s\d)[.!?](?=\s)|[。！？])", re.DOTALL)
_MARKUP = re.compile(r"^[\s#>*\-•]+|\*\*|```\w*", re.MULTILINE)
_FILLER = re.compile(
    r"^(?:(?:(?:great|perfect|excellent|sure|okay|ok|alright|good|certainly|of course|thank you|thanks)"
    r"(?:(?: [\w']+){0,2}(?:[.!]+| [-–—])|,)|now)\s+)+",
    re.IGNORECASE,
)
"""An exclamation in front of what is said: "Great catch! You are right" begins with "You are right"."""

_ANNOUNCEMENT = re.compile(
    r"(?:(?:now|next|first|then|so|ok(?:ay)?|great|good|perfect)[,.!:]?\s+)*"
    r"(?:(?:let me|let's|i'll|i’ll|i will|i'm going to|i need to|i (?:run|look|check|read|search|open))\b.*"
    r"|(?:让我|我(?:会|将|来)|接下来).*"
    r"|i have (?:everything|enough|a good (?:understanding|picture))\b.{0,60})"
    r"|(?:now|next|first|then)\b.*:|good[.!]",
    re.IGNORECASE,
)
_LET_ME = re.compile(r"let(?: me|'s|’s)\b|让我", re.IGNORECASE)
_SENTENCE_END = re.compile(r"(?<=[.!?。！？])\s+|\n+")
_ENOUGH = 0.3  # of the length: whole sentences that are shorter say too little


def one_line(text: str, length: int) -> str:
    """Return a text as one line, cut at a word when it is longer."""
    line = " ".join(text[: 4 * length + 200].split())
    if len(line) <= length and len(text) <= 4 * length + 200:
        return line
    shortened = line[: length - 1]
    head, space, _ = shortened.rpartition(" ")
    return (head if space and len(head) > length // 2 else shortened).rstrip(" ,;:…") + "…"


def gist(text: str, length: int) -> str:
    """Return what a message begins with in substance: its first sentences, without markup, as one line.

    A sentence that only announces the next ones is left out. Where whole sentences would say little, such as "Yes, that
    works.", the next one is cut.
    """
    bare = _without_announcement(_FILLER.sub("", " ".join(_MARKUP.sub("", text[: 8 * length]).split())))
    taken, position = "", 0
    # Where no sentence ends after one place, none ends after a later one: searching on would only take time.
    while match := _FIRST_SENTENCE.match(bare, position):
        if taken and len(taken) + len(match[0]) > length:
            break
        taken += match[0]
        position = match.end()
    is_enough = len(taken) >= length * _ENOUGH or announces(bare[position:].strip())
    return one_line(taken if taken and is_enough else bare, length)


def announces(text: str) -> bool:
    """Tell whether a text only says what will be done now, with or without an exclamation in front."""
    sentences = [sentence for sentence in _SENTENCE_END.split(text) if not _FILLER.fullmatch(f"{sentence} ")]
    return bool(sentences) and all(map(_ANNOUNCEMENT.fullmatch, sentences))


def _without_announcement(text: str) -> str:
    """Return what follows a first sentence that only announces it, such as "Let me explain."; else the text."""
    match = _FIRST_SENTENCE.match(text)
    rest = text[match.end() :].strip() if match and _LET_ME.match(text) else ""
    return rest if rest and not announces(rest) else text


def quoted(text: str, length: int) -> str:
    """Quote a text as one line."""
    return f"“{one_line(text, length)}”"
