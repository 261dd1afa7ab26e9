"""Failures that begin well: answers that say nothing, and answers that arrive damaged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leporello.testing.model_server.dialects import DIALECTS
from leporello.testing.model_server.failures import REFUSALS, Failure
from leporello.testing.model_server.script import Step, echo

if TYPE_CHECKING:
    from leporello.testing.model_server.requests import ReceivedRequest

_THOUGHT = "Let me think about this for a while."


def spoilt_step(request: ReceivedRequest, failure: Failure) -> Step:
    """Return what a failing answer says."""
    if failure is Failure.EMPTY_ANSWER:
        return Step()
    if failure is Failure.REASONING_ONLY:
        return Step(thinking=_THOUGHT)
    if failure is Failure.NOTHING_BEFORE_LENGTH:
        return Step(thinking=_THOUGHT, finish="length")
    said = echo(request).text
    return (
        Step(text=said[: len(said) // 2 + 1], finish="length") if failure is Failure.CUT_BY_LENGTH else Step(text=said)
    )


def spoilt_chunks(
    request: ReceivedRequest, failure: Failure, chunks: list[bytes], media_type: str
) -> tuple[list[bytes], str]:
    """Return the chunks as this failure sends them, and the content type that it claims."""
    if failure is Failure.WRONG_CONTENT_TYPE:
        return [b"<html><body>Please sign in to the network</body></html>"], "text/html"
    if failure is Failure.MALFORMED_JSON:
        return [chunk.replace(b'"', b"'") for chunk in chunks], media_type
    if failure in {Failure.BROKEN_STREAM, Failure.ERROR_IN_STREAM}:
        end = [_error_event(request)] if failure is Failure.ERROR_IN_STREAM else []
        return [*chunks[: len(chunks) // 2], *end] if request.stream else [b"".join(chunks)[:-20]], media_type
    return chunks, media_type


def _error_event(request: ReceivedRequest) -> bytes:
    error = REFUSALS[Failure.OVERLOADED].in_dialect(request.dialect)["error"]
    return DIALECTS[request.dialect].error_event(error)
