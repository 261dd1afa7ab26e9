"""Every exception and warning of Leporello.

::

    LeporelloError
    ├── ConfigError              config.yaml or a value in it: file, line, key and what is allowed
    ├── MessageError             a value that cannot be part of a conversation, with its path
    ├── PluginError              a plugin that cannot be used: name, file, line and cause
    ├── EngineError              an engine that breaks its contract
    ├── SessionError             a session that cannot do what was asked: closed, or nothing to send yet
    ├── RedactionError           text that could not be searched for secrets and is withheld
    ├── StoreError               the store cannot be read or written: what, where, and what to do
    │   ├── StoreBusyError       another process held the lock for too long
    │   ├── CommitUnknownError   the commit of a change was cut off: it may have been made
    │   └── StaleWindowError     another writer replaced the window first
    ├── StaleTipError            something else was said first behind a message; the store itself works
    ├── TranscriptError          a file of conversations that cannot be read: which, where, and what to do
    ├── GateError                a condition on a replay's figures that cannot be read
    ├── QueryError               a search that cannot be made: a broken expression, cursor or limit
    ├── MissingExtraError        a part that is not installed, and how to install it
    ├── ToolError                a tool cannot do what was asked; the model reads the text
    └── ModelError               what a model provider answered, in one vocabulary
        ├── AuthenticationError  the key is missing or refused
        ├── QuotaError           no credit left
        ├── RateLimitError       too many requests; says when to try again
        ├── OverloadedError      the provider is overloaded or broken (5xx, 529)
        ├── NetworkError         no connection, a broken one, or a time limit
        ├── ContextTooLongError  the input does not fit; knows the window when the answer names it
        ├── OutputLimitError     the requested or produced output is too long
        ├── EmptyAnswerError     an answer without text
        ├── MalformedAnswerError an answer that cannot be read
        └── RequestRefusedError  the request itself is wrong (any other 4xx)

    LeporelloWarning (UserWarning)
    ├── EngineFallbackWarning    the chosen engine cannot be used; the compressor takes its place
    ├── PluginWarning            a plugin works, but not as its author or user expects
    ├── UnknownWindowWarning     the model's window is not known, and an assumed one is used
    └── UnusedFoldWarning        a host goes on with the list from before a fold
"""

from __future__ import annotations

import inspect
import warnings
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class LeporelloError(Exception):
    """Base of everything Leporello raises on purpose."""


class ConfigError(LeporelloError):
    """Something in the configuration is wrong; the text says what, where, and what to do."""

    def __init__(
        self,
        problem: str,
        *,
        file: Path | str | None = None,
        line: int | None = None,
        key: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.problem = problem
        self.file = file
        self.line = line
        self.key = key
        self.hint = hint
        super().__init__(self._text())

    def _text(self) -> str:
        place = f"{self.file or 'configuration'}"
        if self.line is not None:
            place += f", line {self.line}"
        if self.key:
            place += f", {self.key}"
        return f"{place}: {self.problem}" + (f" {self.hint}" if self.hint else "")


class MessageError(LeporelloError):
    """A value that cannot be part of a conversation; `path` leads to it."""

    def __init__(self, problem: str, *, path: str) -> None:
        self.problem = problem
        self.path = path
        super().__init__(f"{path}: {problem}")


class PluginError(LeporelloError):
    """A plugin that cannot be used."""

    def __init__(self, problem: str, *, plugin: str, file: Path | str | None = None, line: int | None = None) -> None:
        self.problem = problem
        self.plugin = plugin
        self.file = file
        self.line = line
        place = f" ({file}{f', line {line}' if line is not None else ''})" if file else ""
        super().__init__(f"plugin '{plugin}'{place}: {problem}")


class EngineError(LeporelloError):
    """An engine that breaks its contract."""


class SessionError(LeporelloError):
    """A session that cannot do what was asked; the text says why, and what to do."""


class RedactionError(LeporelloError):
    """Text that could not be searched for secrets, and is therefore withheld."""


class StoreError(LeporelloError):
    """The store cannot do what was asked; the text says what, where, and what to do."""

    def __init__(self, problem: str, *, place: str = "", hint: str = "") -> None:
        self.problem = problem
        self.place = place
        self.hint = hint
        super().__init__(f"{place or 'store'}: {problem}" + (f" {hint}" if hint else ""))


class StoreBusyError(StoreError):
    """Another process held the lock for longer than the limit; nothing was written, the same call may succeed later."""


class CommitUnknownError(StoreError):
    """The commit of a change was cut off: it may have been made, or have been made on the primary only."""

    ids: tuple[str, ...] = ()
    """The ids of appended messages if it was made; `append(attempted=ids)` stores them only if they are not there."""
    row: int = 0
    """The number of the row of the journal if it was made."""


class StaleWindowError(StoreError):
    """The window was replaced since it was read; read it again and decide anew."""


class StaleTipError(LeporelloError):
    """Something else was said meanwhile behind the message that was to be the newest; fork there, or read on."""

    def __init__(self, id_: str, place: str) -> None:
        super().__init__(f"{place}: the branch does not end with {id_ or 'nothing'} any more.")


class TranscriptError(LeporelloError):
    """A file of conversations that cannot be read."""

    def __init__(self, problem: str, *, file: Path | str, hint: str = "") -> None:
        self.problem = problem
        self.file = file
        super().__init__(f"{file}: {problem}" + (f" {hint}" if hint else ""))


class GateError(LeporelloError):
    """A condition on the figures of a replay that cannot be read; the text says how to write one."""


class QueryError(LeporelloError):
    """A search that cannot be made; the text says what is wrong and what to do."""


class MissingExtraError(LeporelloError):
    """Something that is not installed is needed; the text says what, and how to install it."""

    @classmethod
    def of(cls, extra: str, missing: ModuleNotFoundError, what: str) -> MissingExtraError:
        """Return the error for `what` that needs an extra; there is no release on the package index yet."""
        return cls(f"{what} needs {missing.name}; in a checkout of Leporello: pip install '.[{extra}]'")


class ToolError(LeporelloError):
    """A tool cannot do what was asked; the text is the answer to the model and says what is right."""


class ModelError(LeporelloError):
    """A model provider's answer that is not a result; `retryable` says whether the same call may succeed later."""

    retryable = False

    def __init__(
        self, problem: str, *, provider: str = "", status: int | None = None, retry_after: float | None = None
    ) -> None:
        self.problem = problem
        self.provider = provider
        self.status = status
        self.retry_after = retry_after
        super().__init__(problem)


class AuthenticationError(ModelError):
    """The key is missing, wrong, or not allowed to do this."""


class QuotaError(ModelError):
    """No credit left."""


class RateLimitError(ModelError):
    """Too many requests; `retry_after` holds the provider's waiting time in seconds, if it named one."""

    retryable = True


class OverloadedError(ModelError):
    """The provider is overloaded or broken."""

    retryable = True


class NetworkError(ModelError):
    """No connection, a connection that broke, or a time limit that ran out."""

    retryable = True


class ContextTooLongError(ModelError):
    """The input does not fit; `limit` is the window and `actual` the input's size, if the answer named them."""

    def __init__(
        self,
        problem: str,
        *,
        limit: int | None = None,
        actual: int | None = None,
        provider: str = "",
        status: int | None = None,
    ) -> None:
        super().__init__(problem, provider=provider, status=status)
        self.limit = limit
        self.actual = actual


class OutputLimitError(ModelError):
    """The requested or produced output is too long; folding the conversation does not help."""


class EmptyAnswerError(ModelError):
    """An answer without text."""

    retryable = True


class MalformedAnswerError(ModelError):
    """An answer that cannot be read."""

    retryable = True


class RequestRefusedError(ModelError):
    """The request itself is wrong."""


class LeporelloWarning(UserWarning):
    """Base of Leporello's warnings."""


class EngineFallbackWarning(LeporelloWarning):
    """The chosen engine cannot be used; the built-in compressor takes its place."""


class PluginWarning(LeporelloWarning):
    """A plugin works, but not as its author or user expects."""


class UnknownWindowWarning(LeporelloWarning):
    """The model's window is not known; an assumed one is used."""


class UnusedFoldWarning(LeporelloWarning):
    """A host ignored the list that `compress()` returned and went on with the longer one."""


def warn_caller(text: str, category: type[LeporelloWarning]) -> None:
    """Warn at the line outside of this package that called it."""
    level, frame = 1, inspect.currentframe()
    while frame is not None and str(frame.f_globals.get("__name__", "")).startswith("leporello."):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)
