"""Reading what the user types: a line or several, with history, completion of commands and the status line."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import Completer, Completion
from prompt_toolkit.history import FileHistory
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.shortcuts import CompleteStyle
from prompt_toolkit.styles import Style

from leporello.cli.chat.word_wrap import WordWrap
from leporello.errors import RedactionError
from leporello.redact import redact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document
    from prompt_toolkit.input import Input
    from prompt_toolkit.key_binding import KeyPressEvent
    from prompt_toolkit.output import Output

PROMPT: Final = "❯ "
MORE: Final = "· "
HOW_TO_LEAVE: Final = "Ctrl-D or /exit leaves; the conversation stays"
_CONTINUED: Final = "\\"
_STYLE: Final = Style.from_dict({"bottom-toolbar": "noreverse dim", "prompt": "bold"})


class PrivateHistory(FileHistory):
    """What was typed, without secrets, in a file that only its owner can read; `problem` says why it is not kept."""

    def __init__(self, file: Path) -> None:
        self.problem: str | None = None
        self._file = file
        super().__init__(str(file))

    def load_history_strings(self) -> Iterable[str]:
        """Return the newest first."""
        try:
            return list(super().load_history_strings())
        except OSError as error:
            self.problem = f"what you type cannot be read from {self._file} ({error.strerror})"
            return []

    def store_string(self, string: str) -> None:
        """Add one to the file."""
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self._file, os.O_WRONLY | os.O_CREAT, 0o600))
            super().store_string(encodable(redact(string)))
        except OSError as error:
            self.problem = f"what you type cannot be kept in {self._file} ({error.strerror})"
        except RedactionError as error:
            self.problem = f"this is not kept in {self._file}: {error}"


class CommandCompleter(Completer):
    """Completes the name of a slash command at the start of a line."""

    def __init__(self, commands: Callable[[], Mapping[str, str]]) -> None:
        self._commands = commands

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        """Yield the names that begin as typed, each with what it does."""
        typed = document.text_before_cursor
        if typed.startswith("/") and not any(map(str.isspace, typed)):
            for name, meaning in sorted(self._commands().items()):
                if name.startswith(typed[1:]):
                    yield Completion(f"/{name}", start_position=-len(typed), display_meta=meaning)


class LineReader:
    """The user's line editor; `commands` are offered for completion.

    `rest` is what a user types who answers the question before with a whole word, such as the "es" of "yes": a line
    that is no more than that is not sent.
    """

    def __init__(
        self,
        history: Path,
        *,
        commands: Callable[[], Mapping[str, str]] = dict,
        terminal: tuple[Input, Output] | None = None,
    ) -> None:
        source, sink = terminal or (None, None)
        self.rest: str = ""
        self._asked_to_leave = False
        self._history = PrivateHistory(history)
        self._prompt: PromptSession[str] = PromptSession(
            PROMPT,
            multiline=True,
            prompt_continuation=_continuation,
            history=self._history,
            completer=CommandCompleter(commands),
            complete_while_typing=False,
            complete_style=CompleteStyle.READLINE_LIKE,
            reserve_space_for_menu=0,
            key_bindings=self._keys(),
            input_processors=[WordWrap(len(MORE))],
            style=_STYLE,
            input=source,
            output=sink,
        )

    def read(self, status: str = "") -> str:
        """Return what the user typed, leading spaces included, with a status below; EOFError when they leave."""
        self._asked_to_leave = False

        def below() -> str:
            wants_to_leave = self._asked_to_leave and not self._prompt.default_buffer.text
            return HOW_TO_LEAVE if wants_to_leave else status

        line = encodable(self._prompt.prompt(bottom_toolbar=below if status else None)).rstrip()
        self.rest = ""
        return line

    def _keys(self) -> KeyBindings:
        """Enter sends, unless a backslash ends the line; Esc Enter (Alt-Enter) begins another line; Ctrl-C clears."""
        keys = KeyBindings()

        @keys.add("enter")
        def _enter(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.text.strip().lower() == self.rest:
                self.rest = ""
                buffer.reset()
            elif buffer.document.text_before_cursor.endswith(_CONTINUED):
                buffer.delete_before_cursor()
                buffer.newline(copy_margin=False)
            elif buffer.text.strip():
                buffer.validate_and_handle()

        @keys.add("escape", "enter")
        def _another_line(event: KeyPressEvent) -> None:
            event.current_buffer.newline(copy_margin=False)

        @keys.add("c-c")
        def _clear(event: KeyPressEvent) -> None:
            self._asked_to_leave = not event.current_buffer.text
            event.current_buffer.reset()

        return keys

    def problem(self) -> str | None:
        """Say once what is wrong with the history."""
        told, self._history.problem = self._history.problem, None
        return told


def _continuation(width: int, line: int, wrapped: int) -> str:
    """Mark lines that the user began, not those that were too long for the screen."""
    return " " * len(MORE) if wrapped else MORE


def encodable(text: str) -> str:
    """Replace what no encoding can write, such as the bytes of another one that were pasted in."""
    return text.encode("utf-8", "replace").decode("utf-8")
