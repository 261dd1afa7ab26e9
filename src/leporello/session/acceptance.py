"""Judges whether an engine's result may become the window; that of a third party's engine is repaired first."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from leporello.engine import CompactionReport
from leporello.messages import Message, role_of, violations
from leporello.session.result_repair import repaired_result
from leporello.tokens import count_messages

if TYPE_CHECKING:
    from leporello.engine import Status
    from leporello.messages import Dialect
    from leporello.session.window import Window
    from leporello.store import Proposal


@dataclass(frozen=True, kw_only=True)
class CompressResult:
    """What `compress()` returned, the engine's own report if it made one, and the time it took.

    `proposal` is the window for the store, from an engine that works on the session's branch.
    """

    result: Any
    report: CompactionReport | None = None
    seconds: float = 0.0
    proposal: Proposal | None = None


def judge(
    compressed: CompressResult, window: Window, dialect: Dialect, *, room: int | None = None
) -> tuple[CompactionReport, list[Message] | None]:
    """Accept a result that is valid, smaller, and still holds the newest message of the user; refuse any other.

    Returns the report, and the result to use; None leaves the window as it is.

    `room` is given for an engine of a third party: its result is repaired first, see `leporello.session.result_repair`.
    """
    report = replace(
        compressed.report or CompactionReport(status="folded"),
        tokens_before=window.tokens,
        messages_before=len(window),
        seconds=compressed.report.seconds if compressed.report else compressed.seconds,
    )
    if compressed.result == window.messages:
        return unchanged(report, window, status="unchanged" if report.folded else report.status), None
    result = compressed.result
    problem = _shape_problem(result)
    if not problem and room is not None:
        repaired = repaired_result(result, window, dialect, room=room)
        result = repaired.messages
        report = replace(report, reason=report.reason or "; ".join(repaired.changes))
        if result == window.messages:
            return unchanged(report, window, status="unchanged"), None
    problem = problem or _problem(result, window, dialect)
    if problem:
        return unchanged(report, window, status="refused", reason=problem), None
    status = report.status if report.folded else "folded"
    report = replace(report, status=status, tokens_after=count_messages(result), messages_after=len(result))
    return report, result


def unchanged(report: CompactionReport, window: Window, *, status: Status, reason: str = "") -> CompactionReport:
    """Return the report of a compaction whose result is not used, so that the window stays as it is."""
    return replace(
        report,
        status=status,
        reason=reason or report.reason,
        tokens_before=window.tokens,
        tokens_after=window.tokens,
        messages_before=len(window),
        messages_after=len(window),
        unfoldable=() if reason else report.unfoldable,
    )


def _shape_problem(result: Any) -> str:
    """Say why a result is no list of messages at all, "" when it is one."""
    if not isinstance(result, list) or not result:
        return f"the engine returned {'an empty list' if result == [] else type(result).__name__} instead of messages"
    strange = next((message for message in result if not isinstance(message, dict)), None)
    return "" if strange is None else f"the engine returned a list that holds a {type(strange).__name__}, not messages"


def _problem(result: list[Message], window: Window, dialect: Dialect) -> str:
    """Say what is wrong with a list of messages, "" when nothing is."""
    found = violations(result, dialect)
    if found:
        return f"the result is invalid: message {found[0].index}: {found[0].message}"
    after = count_messages(result)
    not_smaller = f"the result is not smaller: {after:,} tokens instead of {window.tokens:,}"
    return _newest_user_problem(result, window) or (not_smaller if after >= window.tokens else "")


def _newest_user_problem(result: list[Message], window: Window) -> str:
    at = window.newest_user()
    if at is None:
        return ""
    newest = window.messages[at]
    last = next((message for message in reversed(result) if role_of(message) == "user"), None)
    if last == newest:
        return ""
    if newest in result:
        return "the result has a message in the user's name behind the newest one"
    return "the result lost or changed the newest message of the user"
