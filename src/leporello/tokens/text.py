"""How many tokens a text has, estimated from pairs of neighbouring bytes.

A tokenizer starts a new token where the kind of character changes (a word after a space, a digit after a letter, an
upper-case letter inside a name) and now and then inside a long run. So each byte of the UTF-8 text gets a class,
each pair (class before, class here) has a weight, the expected number of tokens that start there, and the estimate
is the sum. Beyond ASCII how much a character costs depends on its script, so each block of 256 characters has a weight.

Nothing here loops over bytes in Python: classes are four bits, so shifting the whole text by four bits as one integer
puts each byte's class beside its predecessor's, `bytes.translate` looks all pairs up, and Adler-32, whose
low half is a plain sum of bytes, adds them. The weights come from `benchmarks/fit_tokens.py`.
"""

from __future__ import annotations

import json
import string
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import adler32

if TYPE_CHECKING:
    from collections.abc import Iterable

CLASSES: tuple[str, ...] = (
    "\n\r\t",  # also stands before the first byte
    " ",
    "aiou",
    "e",
    "nrstldcmhp",
    "bfgvwy",
    "jkqxz",
    string.ascii_uppercase,
    string.digits,
    "_./\\",
    "()[]{}",
    "\"',:;`",
    "+-=*#~|<>",
)
FIRST, NEXT, OTHER = 13, 14, 15  # the first and the following bytes of a character beyond ASCII; other ASCII
_CHUNK = 16_384  # a long text is weighed in pieces that fit a processor's cache
_SUSPICIOUS = 6  # bytes per token; ordinary text has 3 to 5
_MOST_BYTES = 8  # per token


def class_table() -> bytes:
    """Return the class of each byte value."""
    table = bytearray([OTHER] * 0x80 + [NEXT] * 0x40 + [FIRST] * 0x40)
    for number, characters in enumerate(CLASSES):
        for character in characters:
            table[ord(character)] = number
    return bytes(table)


def pair_codes(data: bytes) -> bytes:
    """Return for each byte the class of the byte before it (upper half) and its own (lower half)."""
    classes = int.from_bytes(data.translate(_CLASS_OF), "big")
    return (classes | classes >> 4).to_bytes(len(data), "big")


def blocks(text: str) -> bytes:
    """Return for each character the number of its block of 256 (of each half, where UTF-16 needs two)."""
    return text.encode("utf-16-le", "surrogatepass")[1::2]


def count_text(text: str) -> int:
    """Estimate the tokens of a text; an empty text has none, any other at least one."""
    if not text:
        return 0
    data = text.encode("utf-8", "surrogatepass")
    units = _pairs(data) if len(data) <= _CHUNK else _pairs_in_chunks(data)
    if not text.isascii():
        units += _sum(blocks(text).translate(_BLOCK_WEIGHTS), _BLOCK_STEP)
    return _at_least(_whole(units), data)


def count_texts(texts: Iterable[str]) -> int:
    """Add up `count_text` over many texts; short ones are weighed together, which is faster."""
    total = size = 0
    together: list[str] = []
    for text in texts:
        if len(text) >= _CHUNK or not text.isascii():
            total += count_text(text)
            continue
        together.append(text)
        size += len(text)
        if size >= _CHUNK:
            total += _count_together(together)
            together, size = [], 0
    return total + _count_together(together)


def _at_least(tokens: int, text: str | bytes) -> int:
    """Return the estimate, but no less than a token a word, and one for eight bytes.

    No tokenizer has longer tokens than a word; the weights, fitted on real texts, know nothing of a text that consists
    of a single pair. Only an estimate that is suspiciously low is looked at.
    """
    if tokens * _SUSPICIOUS >= len(text):
        return tokens
    return max(tokens, len(text.split()), len(text) // _MOST_BYTES)


def _count_together(texts: list[str]) -> int:
    """Count ASCII texts joined by line ends, after which each begins as it does alone."""
    weights = pair_codes("\n".join(texts).encode()).translate(_PAIR_WEIGHTS)
    total = start = 0
    for text in texts:
        end = start + len(text)
        total += _at_least(_whole(_sum(weights[start:end], _PAIR_STEP)), text) if text else 0
        start = end + 1
    return total


def _whole(units: int) -> int:
    """Return units of 1/`PER_TOKEN` of a token as whole tokens, at least one."""
    return (units + PER_TOKEN // 2) // PER_TOKEN or 1


def _pairs(data: bytes) -> int:
    return _sum(pair_codes(data).translate(_PAIR_WEIGHTS), _PAIR_STEP)


def _pairs_in_chunks(data: bytes) -> int:
    """Weigh a long text in pieces; each repeats its predecessor's last byte, so that there is no seam."""
    total = _pairs(data[:_CHUNK])
    for start in range(_CHUNK, len(data), _CHUNK):
        codes = pair_codes(data[start - 1 : start + _CHUNK])
        total += _sum(codes[1:].translate(_PAIR_WEIGHTS), _PAIR_STEP)
    return total


def _sum(weights: bytes, step: int) -> int:
    """Add up bytes: the low half of Adler-32 is one plus their sum, modulo 65,521, which a step never reaches."""
    if len(weights) <= step:
        return (adler32(weights) & 0xFFFF) - 1
    starts = range(0, len(weights), step)
    return sum([(adler32(weights[start : start + step]) & 0xFFFF) - 1 for start in starts])


def _step(weights: bytes) -> int:
    largest: int = max(1, *weights)
    return 65_519 // largest


def _load() -> tuple[int, bytes, bytes]:
    fitted = json.loads(Path(__file__).with_name("weights.json").read_text("utf-8"))
    return int(fitted["per_token"]), bytes.fromhex(fitted["pairs"]), bytes.fromhex(fitted["blocks"])


_CLASS_OF = class_table()
PER_TOKEN, _PAIR_WEIGHTS, _BLOCK_WEIGHTS = _load()
_PAIR_STEP, _BLOCK_STEP = _step(_PAIR_WEIGHTS), _step(_BLOCK_WEIGHTS)
