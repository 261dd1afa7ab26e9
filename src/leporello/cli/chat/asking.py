"""Asking for a yes or no with one key, and a terminal that stays silent in between."""

from __future__ import annotations

import sys
import termios
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from prompt_toolkit import PromptSession
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.keys import Keys

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from prompt_toolkit.input import Input
    from prompt_toolkit.key_binding import KeyPressEvent
    from prompt_toolkit.output import Output

Choice: TypeAlias = Literal["yes", "no", "always", "tell", "view"]

_CHOICES: Final[dict[str, Choice]] = {
    "y": "yes", "Y": "yes", "n": "no", "N": "no", "a": "always", "A": "always", "t": "tell", "T": "tell",
    "escape": "no",
}  # fmt: skip
_VIEW: Final[dict[str, Choice]] = {"v": "view", "V": "view"}
_INPUT, _LOCAL = 0, 3  # places in what tcgetattr returns


def rest_of(choice: Choice) -> str:
    """Return what is still to come when the whole word is typed where its first key was enough: "es" of "yes"."""
    return choice[1:]


def ask(question: str, *, more: bool = False, terminal: tuple[Input, Output] | None = None) -> Choice:
    """Ask for y, n, a or t, and v when there is more to see; keys that were pressed before do not count.

    Ctrl-C interrupts.
    """
    source, sink = terminal or (None, None)
    if terminal is None:
        forget_typed()
    choices = _CHOICES | (_VIEW if more else {})
    prompt: PromptSession[Choice] = PromptSession(key_bindings=_keys(choices), input=source, output=sink)
    return prompt.prompt(f"{question} [y]es, [n]o, [a]lways, [t]ell why not{', [v]iew all' if more else ''}: ")


def agrees(question: str, *, terminal: tuple[Input, Output] | None = None) -> bool:
    """Ask for y or n; keys that were pressed before do not count. Ctrl-C interrupts."""
    source, sink = terminal or (None, None)
    if terminal is None:
        forget_typed()
    choices = {key: choice for key, choice in _CHOICES.items() if choice in ("yes", "no")}
    prompt: PromptSession[Choice] = PromptSession(key_bindings=_keys(choices), input=source, output=sink)
    return prompt.prompt(f"{question} [y]es, [n]o: ") == "yes"


def ask_why(question: str, *, terminal: tuple[Input, Output] | None = None) -> str:
    """Ask for a line of text; "" when there is none. Ctrl-C interrupts."""
    source, sink = terminal or (None, None)
    prompt: PromptSession[str] = PromptSession(input=source, output=sink)
    why = prompt.prompt(question).strip()
    return why if why.lower() != rest_of("tell") else prompt.prompt(question).strip()


def _keys(choices: Mapping[str, Choice]) -> KeyBindings:
    keys = KeyBindings()

    @keys.add("<any>")
    @keys.add("enter")
    @keys.add(Keys.BracketedPaste)
    def _ignore(_event: KeyPressEvent) -> None:
        """Wait for a key that means something; what is pasted means nothing here."""

    for key, choice in choices.items():
        _bind(keys, key, choice)
    return keys


def _bind(keys: KeyBindings, key: str, choice: Choice) -> None:
    @keys.add(key, eager=True)
    def _choose(event: KeyPressEvent) -> None:
        event.current_buffer.text = choice
        event.app.exit(result=choice)


def forget_typed() -> None:
    """Drop keys that were pressed too early."""
    if sys.stdin.isatty():
        termios.tcflush(sys.stdin, termios.TCIFLUSH)


@contextmanager
def unechoed() -> Iterator[None]:
    """Let keys that are pressed meanwhile wait for the next prompt as they are, and not stand in an answer."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    quiet = termios.tcgetattr(sys.stdin)
    quiet[_INPUT] &= ~termios.ICRNL
    quiet[_LOCAL] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(sys.stdin, termios.TCSADRAIN, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
