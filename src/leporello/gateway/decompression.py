"""Decompresses bodies piece by piece, so that a small one with a huge content is noticed before that is in memory."""

from __future__ import annotations

import sys
import zlib
from typing import TYPE_CHECKING, Final, TypeAlias

from leporello.gateway.errors import Refused

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PIECE: Final = 64 * 1024
_MOST_WINDOW: Final = 23  # bits: 8 MiB, which every decoder of zstd takes; a longer one needs memory in advance


class Zlib:
    """A decompressor of zlib that keeps input which it has not read yet, as zstd's does."""

    def __init__(self, bits: int) -> None:
        self._inner = zlib.decompressobj(bits)

    @property
    def eof(self) -> bool:
        """Whether the end of the content was reached."""
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        """The bytes behind the end."""
        return self._inner.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """Return the next piece of the content."""
        return self._inner.decompress(self._inner.unconsumed_tail + data, max_length)


Decompressor: TypeAlias = "Zlib | zstd.ZstdDecompressor"
_WINDOW: Final = {int(zstd.DecompressionParameter.window_log_max): _MOST_WINDOW}
_DECOMPRESSORS: Final[dict[str, Callable[[], Decompressor]]] = {
    "gzip": lambda: Zlib(zlib.MAX_WBITS | 16),
    "x-gzip": lambda: Zlib(zlib.MAX_WBITS | 16),
    "deflate": lambda: Zlib(zlib.MAX_WBITS),
    "zstd": lambda: zstd.ZstdDecompressor(options=_WINDOW),
}


def is_compressed(encoding: str) -> bool:
    """Tell whether a body with this header `content-encoding` is compressed; Refused when it cannot be read."""
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return False
    if name not in _DECOMPRESSORS:
        known = ", ".join(sorted(_DECOMPRESSORS))
        raise Refused(415, f"content-encoding: bodies may be packed with {known}, one of them.")
    return True


def decompressed(content: bytes, encoding: str, *, most: int) -> bytes:
    """Return the content of a compressed body; Refused if it is longer than `most`, incomplete or followed by more."""
    decompressor = _DECOMPRESSORS[encoding.strip().lower()]()
    found, length = [], 0
    try:
        for piece in pieces(content, decompressor):
            length += len(piece)
            if length > most:
                limit = f"{most:,} bytes once it is unpacked"
                raise Refused(413, f"the body is longer than {limit}, the limit of this gateway.")
            found.append(piece)
    except (zlib.error, zstd.ZstdError) as error:
        raise Refused(400, "the body cannot be unpacked.") from error
    if not decompressor.eof:
        raise Refused(400, "the body is packed, but broken off.")
    if decompressor.unused_data:
        raise Refused(400, "the body is packed, and something stands behind its end.")
    return b"".join(found)


def pieces(chunk: bytes, decompressor: Decompressor) -> Iterator[bytes]:
    """Yield the content of the next chunk of a body in pieces of limited length."""
    while not decompressor.eof and (piece := decompressor.decompress(chunk, _PIECE)):
        yield piece
        chunk = b""
