"""The slash commands: one small function each, and the table that `/help` prints."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from leporello.cli.chat.usage import cost_table, kept, usage_table, window_chart
from leporello.cli.chat.view import not_folded
from leporello.cli.format import counted, moment, on_one_line
from leporello.cli.picker import pick
from leporello.messages import text_of
from leporello.messages.visible import visible
from leporello.store.titles import shortened, title_of

if TYPE_CHECKING:
    from leporello.cli.chat.chat import Chat
    from leporello.messages import Message
    from leporello.store import ConversationInfo

Run: TypeAlias = Callable[["Chat", str], None]

_COMMAND = re.compile(r"/([A-Za-z][\w-]*|)(?:\s+(.*))?", re.DOTALL)
_LISTED: Final = 100
_PICKER_MARGIN: Final = 3  # columns that the picker uses itself
_SHORTEST_TITLE: Final = 12
_ENDING: Final = 6
_EXCERPT: Final = 70


@dataclass(frozen=True, kw_only=True)
class Slash:
    """A command: `/name argument`, and what it does."""

    name: str
    argument: str
    meaning: str
    run: Run


TABLE: dict[str, Slash] = {}


def slash(name: str, argument: str = "") -> Callable[[Run], Run]:
    """Enter a function into the table; its docstring is what `/help` says."""

    def enter(run: Run) -> Run:
        meaning = (run.__doc__ or "").partition("\n")[0]
        TABLE[name] = Slash(name=name, argument=argument, meaning=meaning, run=run)
        return run

    return enter


def parse(line: str) -> tuple[str, str] | None:
    """Return the name and the argument of a command; None for anything else, such as a path or an indented line."""
    found = _COMMAND.fullmatch(line)
    return (found[1].lower(), (found[2] or "").strip()) if found else None


def run(chat: Chat, name: str, argument: str) -> None:
    """Do a command of the table; one that takes no argument does nothing with one."""
    one = TABLE[name]
    if argument and not one.argument:
        chat.screen.problem(f"/{name} takes no argument; nothing was done. A line that begins with a space is sent.")
    else:
        one.run(chat, argument)


def nearest(name: str, known: list[str]) -> str:
    """Say that there is no such command, and which one may be meant."""
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    meant = f"did you mean /{near[0]}?" if near else "/help shows them all."
    return f"there is no command /{name}; {meant} A line that begins with a space is sent as it is."


@slash("compact", "[focus]")
@slash("compress", "[focus]")
def _compress(chat: Chat, focus: str) -> None:
    """Compress now, guided by a focus."""
    shown = chat.view.compactions
    report = chat.session.compress(focus or None)
    if chat.view.compactions == shown:  # the engine was not even asked
        chat.screen.notice(not_folded(report.reason))
    elif report.folded:
        chat.screen.line(kept(chat.session.usage()), "dim")
        chat.screen.line(f"what was folded is still stored: `{chat.search_command()}` finds it", "dim")


@slash("clear")
@slash("reset")
@slash("new")
def _new(chat: Chat, argument: str) -> None:
    """End this conversation and start another."""
    ended = chat.session.id
    is_stored = chat.session.store.info(ended) is not None
    begun = chat.begin_another()
    left = f"{ended} has ended (/resume {ended} goes on with it)" if is_stored else f"nothing was said in {ended}"
    chat.screen.line(f"{left}; this is {begun}")


@slash("usage")
def _usage(chat: Chat, argument: str) -> None:
    """Show the window, tokens by part, compactions, cost and cache hits."""
    chat.screen.show(usage_table(chat.session.usage()))


@slash("context")
def _context(chat: Chat, argument: str) -> None:
    """Draw the window: what fills it, part by part, and where it is folded."""
    chat.screen.show(window_chart(chat.session.usage(), chat.screen.console))


@slash("cost")
def _cost(chat: Chat, argument: str) -> None:
    """Show what the last turn cost, and the whole conversation."""
    chat.screen.show(cost_table(chat.session.usage()))


@slash("undo")
def _undo(chat: Chat, argument: str) -> None:
    """Take back the last turn, and restore the files that were written in it if you like."""
    taken = chat.take_back()
    if not taken:
        chat.screen.line("there is nothing to take back")
        return
    chat.screen.line(f"taken back: {_shown(taken[0])}")
    chat.offer_files(taken)


@slash("retry")
def _retry(chat: Chat, argument: str) -> None:
    """Take back the last answer and ask again."""
    taken = chat.take_back()
    if not taken:
        chat.screen.line("there is nothing to ask again")
    else:
        chat.screen.line(f"again: {_shown(taken[0])}")
        chat.turn(taken[0]["content"])


@slash("model", "[NAME [PROVIDER]]")
def _model(chat: Chat, argument: str) -> None:
    """Talk to another model from here on; without a name, show which one this is."""
    name, _, provider = argument.partition(" ")
    if name:
        chat.switch_model(name, provider.strip() or None)
    chat.screen.line(chat.model_line())


@slash("engine", "[NAME]")
def _engine(chat: Chat, argument: str) -> None:
    """Go on with another context engine; without a name, show which there are."""
    if argument:
        chat.switch_engine(argument)
        chat.screen.line(chat.engine_line())
        return
    for name in chat.engines():
        chat.screen.line(f"{'●' if name == chat.engine_name else '○'} {name}")


@slash("pin", "[ID]")
def _pin(chat: Chat, argument: str) -> None:
    """Keep a message word for word at every fold: your newest one, or the one of an id."""
    chat.screen.line(f"pinned: {chat.pin(argument)}")


@slash("unpin", "[ID]")
def _unpin(chat: Chat, argument: str) -> None:
    """Let a message be folded again: your newest one, or the one of an id."""
    chat.screen.line(f"no longer pinned: {chat.pin(argument, pinned=False)}")


@slash("resume", "[ID]")
@slash("sessions", "[ID]")
def _sessions(chat: Chat, argument: str) -> None:
    """Choose among the newest conversations, and go on with one; with an id, with that one."""
    if argument:
        chat.switch_session(argument)
        return
    infos = chat.conversations(_LISTED)
    keys = [info.key for info in infos]
    rows = _session_rows(chat, infos)
    start = keys.index(chat.session.id) if chat.session.id in keys else 0
    chosen = pick("Go on with which conversation?", rows, start=start) if rows else None
    if chosen is None or keys[chosen] == chat.session.id:
        chat.screen.line(f"this is still {chat.session.id}")
    else:
        chat.switch_session(keys[chosen])


@slash("help")
def _help(chat: Chat, argument: str) -> None:
    """Show the commands and keys."""
    table = Table.grid(padding=(0, 2))
    for names in _same_commands():
        one = TABLE[names[0]]
        called = ", ".join(f"/{name}" for name in names)
        table.add_row(f"{called} {one.argument}".rstrip(), one.meaning)
    for command in chat.plugin_commands.values():
        meaning = command.description or f"a command of the plugin {command.plugin}"
        table.add_row(Text(visible(f"/{command.name}")), Text(visible(meaning)))
    for key, meaning in KEYS.items():
        table.add_row(Text(key, style="dim"), Text(meaning, style="dim"))
    chat.screen.show(table)


@slash("quit")
@slash("exit")
def _exit(chat: Chat, argument: str) -> None:
    """Leave; the conversation stays, and `leporello chat --resume` goes on with it."""
    raise EOFError


def _same_commands() -> list[list[str]]:
    """Group the names of commands that do the same, in their order."""
    groups: dict[Run, list[str]] = {}
    for name, one in TABLE.items():
        groups.setdefault(one.run, []).append(name)
    return list(groups.values())


def _session_rows(chat: Chat, infos: list[ConversationInfo]) -> list[str]:
    """Return a line for each conversation: when, how long, its title, and its name where others have the same title."""
    facts = [
        f"{'●' if info.key == chat.session.id else ' '} {moment(info.updated)[:16]}  "
        f"{counted(info.messages, 'message'):>14}  "
        for info in infos
    ]
    room = max(_SHORTEST_TITLE, chat.screen.console.width - max(map(cell_len, facts), default=0) - _PICKER_MARGIN)
    titles = [title_of(chat.session.store, info, room) for info in infos]
    alike = Counter(titles)
    names = [f" ({_ending(info.key)})" if alike[title] > 1 else "" for info, title in zip(infos, titles, strict=True)]
    return [
        f"{fact}{shortened(title, max(_SHORTEST_TITLE, room - cell_len(name)))}{name}"
        for fact, title, name in zip(facts, titles, names, strict=True)
    ]


def _ending(name: str) -> str:
    """Return a name, of a long one its end: names that the chat gives differ there."""
    return name if len(name) <= _SHORTEST_TITLE else f"…{name[-_ENDING:]}"


def _shown(message: Message) -> str:
    return on_one_line(text_of(message), _EXCERPT)


KEYS: Final = {
    "Enter": "send",
    "Alt-Enter, Esc Enter, \\ Enter": "another line",
    "Ctrl-C": "clear the line; during a turn, stop it and keep the conversation",
    "Ctrl-D": "leave",
    "↑ ↓, Tab": "earlier lines, complete a command",
}
