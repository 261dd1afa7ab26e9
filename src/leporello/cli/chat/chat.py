"""The conversation at the terminal: reads a line, and does what it says, until the user leaves."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from leporello.agent import MainModel, ToolStarted, Workspace
from leporello.cli.chat import plugin_commands
from leporello.cli.chat.asking import agrees, ask, ask_why, rest_of, unechoed
from leporello.cli.chat.factory import OpenedChat, Setting, as_it_was_left, engine_source, model_note, opened
from leporello.cli.chat.greeting import engine_line, greeting, last_exchange, model_line, resuming, searching
from leporello.cli.chat.interrupts import interrupts, proper_end
from leporello.cli.chat.line import LineReader, encodable
from leporello.cli.chat.pace import known_pace
from leporello.cli.chat.remedy import remedy
from leporello.cli.chat.screen import Screen, is_cut
from leporello.cli.chat.slash import TABLE, nearest, parse, run
from leporello.cli.chat.usage import status_line
from leporello.cli.chat.view import ChatView
from leporello.cli.chat.warned import warnings_to
from leporello.cli.chat.written_files import WrittenFiles
from leporello.cli.format import on_one_line
from leporello.errors import LeporelloError, SessionError
from leporello.messages import text_of
from leporello.plugins.enabled import EnabledPlugins, survey
from leporello.plugins.hermes.host import serve

if TYPE_CHECKING:
    from leporello.agent import ConfirmationWanted
    from leporello.messages import Message
    from leporello.plugins import Command
    from leporello.session import Session
    from leporello.store import ConversationInfo

HISTORY: Final = "chat_history"
LEAVING: Final = frozenset({"exit", "quit"})
_EXCERPT: Final = 60
_RECALLED_LINES: Final = 8
_QUESTION: Final = "    Do it?"
_WHY: Final = "    Why not, or what instead? "


def talk(setting: Setting, *, local: bool = False) -> None:
    """Talk until the user leaves."""
    screen = Screen()
    with proper_end(), unechoed(), warnings_to(screen.notice):
        chat = Chat(setting, screen)
        try:
            chat.greet(local=local)
            chat.run()
        finally:
            chat.close()
    if last_exchange(chat.session):
        command = resuming(chat.session.id, setting, local=local)
        screen.line(f"{command} resumes this conversation", "dim")


class Chat:
    """One conversation after another, at one terminal."""

    def __init__(self, setting: Setting, screen: Screen) -> None:
        self.screen = screen
        self.view: ChatView = ChatView(screen)
        self._enabled = self._run_enabled(setting)
        self._always: set[str] = set()
        self._files = WrittenFiles()
        self._asked = setting
        self._opened = self._open(setting)
        self.view.remedy = lambda error: remedy(error, self._opened.route)
        self.view.known_pace = lambda: known_pace(self.session.store, self.session.id)
        self._reader = LineReader(setting.config.home / HISTORY, commands=self._meanings)

    @property
    def session(self) -> Session:
        """The conversation."""
        return self._opened.agent.session

    @property
    def engine_name(self) -> str:
        """The engine in use, by the name it is chosen with."""
        return self._opened.engine_name

    @property
    def plugin_commands(self) -> dict[str, Command]:
        """The commands of enabled plugins, and of the engine in use; a name that the chat has itself stays its own."""
        commands = {**self._enabled.commands, **self._opened.source.commands}
        return {name: command for name, command in commands.items() if name not in TABLE}

    def greet(self, *, local: bool) -> None:
        """Say what this is; of a conversation that goes on, show where it was."""
        for line in greeting(self._opened, local=local):
            self.screen.line(line, "dim")
        self.screen.line()
        if note := model_note(self._opened.setting):
            self.screen.notice(note)
        self._recall()

    def run(self) -> None:
        """Do what the user says, line by line."""
        while True:
            try:
                self.view.catch_up()
                line = self._reader.read(status_line(self.session.usage(), self.screen.console.width))
                if problem := self._reader.problem():
                    self.screen.notice(problem)
                self.take(line)
            except EOFError:
                return
            except KeyboardInterrupt:
                self.screen.notice("interrupted")
            except LeporelloError as error:
                self.screen.problem(str(error))
            self.screen.line()

    def take(self, line: str) -> None:
        """Do one line: a command, or a turn of the conversation."""
        command = parse(line)
        if line.strip().lower() in LEAVING:
            raise EOFError
        if command is None:
            self.turn(line.strip())
            return
        name, argument = command
        if name in TABLE:
            run(self, name, argument)
        elif name in self.plugin_commands:
            self.screen.line(plugin_commands.call(self.plugin_commands[name], argument))
        else:
            self.screen.problem(nearest(name, [*TABLE, *self.plugin_commands]))

    def turn(self, content: Any) -> None:
        """Let the agent work on what the user says; Ctrl-C stops it."""
        self.screen.stopping = False
        self._opened.note_settings()
        with interrupts(self._stop):
            try:
                for event in self._opened.agent.ask(content):
                    if isinstance(event, ToolStarted):
                        self._files.call = event.call.id
                    self.view.take(event)
            finally:
                self.screen.end_of_answer()

    def begin_another(self) -> str:
        """End this conversation and begin another; return its name."""
        begun = self.session.reset()
        self._opened.lock.acquire(begun)
        return begun

    def take_back(self) -> list[Message]:
        """Take back the last turn and return its messages, the user's first; [] when there is none."""
        return self.session.undo()

    def offer_files(self, taken: list[Message]) -> None:
        """Say which files a turn that was taken back has changed, and restore them if the user likes."""
        changed = self._files.changed_by(taken, Workspace(self._opened.setting.folder))
        for line in changed.lines():
            self.screen.line(line)
        if not changed.restorable:
            return
        restores = agrees("    Put the files back as they were?")
        self._reader.rest = rest_of("yes" if restores else "no")
        for line in changed.restore() if restores else ():
            self.screen.line(line)

    def switch_model(self, name: str, provider: str | None) -> None:
        """Go on with another model."""
        before = self._opened
        own_address = None if provider else before.setting.base_url
        setting = replace(before.setting, model=name, provider=provider, base_url=own_address, context_length=None)
        route = setting.route()
        if route.dialect != before.route.dialect:
            self._reopen(replace(setting, session_id=self.session.id, kept=()))
            self._opened.note_settings()
            return
        self.session.switch_model(route.model, provider=route.provider, base_url=route.base_url)
        before.agent.model.close()
        before.agent.model = MainModel(route)
        self._opened = replace(before, setting=setting, route=route)
        self._opened.note_settings()

    def switch_engine(self, name: str) -> None:
        """Go on with another engine; one that cannot be used is an error, and the one in use stays."""
        if name != self.engine_name:
            self._reopen(replace(self._opened.setting, engine=name, session_id=self.session.id, kept=()))
            self._opened.note_settings()

    def switch_session(self, session_id: str) -> None:
        """Go on with another conversation."""
        if self.session.store.info(session_id) is None:
            self.screen.problem(f"there is no conversation {session_id!r}; /sessions lists the newest")
            return
        self._reopen(replace(self._asked, session_id=session_id, kept=None))
        for line in greeting(self._opened, local=False):
            self.screen.line(line, "dim")
        self._recall()

    def pin(self, message_id: str, *, pinned: bool = True) -> str:
        """Pin a message, or no longer: the one of an id, else the user's newest; return its id and beginning."""
        store, session = self.session.store, self.session
        if not message_id:
            newest = store.messages(session.id, newest_first=True)
            message_id = next((row.id for row in newest if row.role == "user"), "")
            if not message_id:
                raise SessionError("there is no message of yours to pin yet.")
        session.pin(message_id, pinned=pinned)
        return f"{message_id} {on_one_line(text_of(store.get([message_id])[message_id].message), _EXCERPT)}"

    def engines(self) -> list[str]:
        """Name the engines that can be chosen."""
        found = survey(self._opened.setting.config, self._enabled)
        usable = {one.name for one in found if one.kind != "plugin" and not one.problem}
        return sorted(usable | {self.engine_name})

    def conversations(self, count: int) -> list[ConversationInfo]:
        """Return the newest conversations."""
        known = self.session.store.conversations(owner="")
        return list(islice((one for one in known if one.messages or one.key == self.session.id), count))

    def engine_line(self) -> str:
        """Say which engine this is."""
        return engine_line(self.session)

    def model_line(self) -> str:
        """Say which model this is."""
        return model_line(self._opened)

    def search_command(self) -> str:
        """Return the command that finds what was folded."""
        return searching(self.session.id, self._opened.setting)

    def close(self) -> None:
        """End the conversation properly."""
        with self.screen.while_busy("leaving"):
            self._opened.close()

    def _stop(self) -> None:
        """Let the turn end; called in the middle of anything, so that it only takes note of it."""
        self.screen.stopping = True
        self._opened.agent.stop()

    def _open(self, setting: Setting, **ready: Any) -> OpenedChat:
        take = self.view.take
        return opened(
            setting,
            on_event=take,
            on_output=take,
            on_written=self._files.note,
            confirm=self._confirm,
            enabled=self._enabled,
            **ready,
        )

    def _run_enabled(self, setting: Setting) -> EnabledPlugins:
        """Let the enabled plugins register, whichever engine is chosen, and say what is odd about them."""
        serve(setting.config)
        enabled = EnabledPlugins(setting.config)
        commands = enabled.commands
        for name in commands.keys() & TABLE.keys():
            self.screen.notice(f"/{name} of the plugin '{commands[name].plugin}' is left out: the chat has its own")
        for problem in enabled.news():
            self.screen.notice(problem)
        return enabled

    def _reopen(self, setting: Setting) -> None:
        """Close the conversation and open it, or another, anew; what cannot be opened is found out before."""
        before = self._opened
        setting = as_it_was_left(setting, before.store.url)
        source = engine_source(setting, setting.route(), before.store, self._enabled)
        before.lock.acquire(str(setting.session_id))
        with interrupts(_finish_first):
            before.agent.close()
            self._opened = self._open(setting, source=source, store=before.store, lock=before.lock)

    def _confirm(self, wanted: ConfirmationWanted) -> bool | str:
        """Ask whether a tool may do what it is about to do; a text says why not."""
        if wanted.call.name in self._always:
            return True
        self.screen.end_of_answer()
        choice = ask(_QUESTION, more=is_cut(wanted.detail))
        while choice == "view":
            self.screen.whole(wanted.detail)
            choice = ask(_QUESTION)
        self._reader.rest = rest_of(choice)
        if choice == "always":
            self._always.add(wanted.call.name)
        if choice == "tell":
            self._reader.rest = ""
            return encodable(ask_why(_WHY))
        return choice != "no"

    def _recall(self) -> None:
        """Show the end of a conversation that goes on."""
        exchange = last_exchange(self.session)
        for who, text in exchange:
            self.screen.line(who, "bold")
            self.screen.detail(text, lines=_RECALLED_LINES)
        if exchange:
            self.screen.line()

    def _meanings(self) -> dict[str, str]:
        """Return the names of the commands, for completion."""
        own = {name: one.meaning for name, one in TABLE.items()}
        return own | {name: one.description for name, one in self.plugin_commands.items()}


def _finish_first() -> None:
    """Take no notice of a Ctrl-C where one conversation is closed and the next not open yet."""
