"""`leporello wrap`: runs an agent behind a gateway of its own, and says what the session used and saved."""

from __future__ import annotations

import ctypes
import logging
import os
import shlex
import signal
import subprocess
import sys
import time
import warnings
from collections import deque
from contextlib import closing, contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from leporello.cli.agents import AGENTS, agent_of, launch, origins
from leporello.cli.format import counted
from leporello.cli.store_options import file_of, store_option
from leporello.errors import LeporelloError, MissingExtraError
from leporello.gateway.one_user import for_one_user
from leporello.messages.visible import visible

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import FrameType

    from leporello.cli.agent_settings import Origin
    from leporello.cli.agents import Launch
    from leporello.config import Config
    from leporello.gateway.background import BackgroundGateway
    from leporello.proof.savings import Savings
    from leporello.store import Store

_FORWARDED: Final = ("SIGTERM", "SIGHUP", "SIGINT", "SIGQUIT", "SIGUSR1", "SIGUSR2")
_FROM_THE_TERMINAL: Final = frozenset({"SIGINT", "SIGQUIT"})
_PARENT_DEATH_SIGNAL: Final = 1  # PR_SET_PDEATHSIG
_KILLED: Final = 128  # a program that a signal ended has this status, and the number of the signal
_MOST_NOTES: Final = 5
_MOST_CONVERSATIONS: Final = 8
_MINUTE: Final = 60
_LINK_SECONDS: Final = 24 * 3_600.0


@click.command(name="wrap", context_settings={"allow_interspersed_args": False})
@click.option("--print", "prints", is_flag=True, help="Only show what would be set; start nothing.")
@click.option("--no-tools", is_flag=True, help="Do not let the model search what was folded away.")
@store_option
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="Another config.yaml than the one in the home folder.",
)
@click.argument("command_line", metavar="claude|codex|opencode|aider|-- COMMAND [ARGS]...", nargs=-1, required=True)
def command(
    command_line: tuple[str, ...], prints: bool, no_tools: bool, address: str | None, config_file: Path | None
) -> None:
    """Run an agent behind a gateway of its own, and say what the session used and saved.

    The agent keeps its own key or login, its settings and its terminal. Its conversation is kept in the store, and
    folded when it must be. The gateway serves this machine only, on a free port, and ends with the agent; nothing is
    written to the agent's settings. An address that the agent used before is what the gateway asks in turn.

    Any other program is led here by OPENAI_BASE_URL and ANTHROPIC_BASE_URL. The exit code is that of the program.

    \b
    Examples:
      leporello wrap claude
      leporello wrap codex exec "fix the tests"
      leporello wrap -- python my_agent.py
      leporello wrap --print claude
    """  # noqa: D301 - click wants the character, not the two letters
    from leporello.config import Config

    before = origins(command_line, os.environ)
    addresses = {name: origin.address for name, origin in before.items()}
    config = for_one_user(Config.load(config_file), addresses, tools=not no_tools)
    if prints:
        _print_plan(command_line, config, before)
        return
    sys.exit(_run(command_line, config, address))


def _print_plan(command_line: Sequence[str], config: Config, before: dict[str, Origin]) -> None:
    made = launch(command_line, "http://127.0.0.1:PORT/SECRET", os.environ)
    for name, value in sorted(made.variables.items()):
        click.echo(f"{name}={shlex.quote(value)}")
    click.echo(shlex.join(made.command))
    click.echo()
    click.echo("PORT is a free one of this machine, SECRET keeps its other users out. The gateway asks, with the")
    click.echo("client's own key:")
    for name in type(config.gateway.upstreams).model_fields:
        place = f" (from {before[name].place})" if name in before else ""
        click.echo(f"  {name}: {visible(getattr(config.gateway.upstreams, name).base_url)}{place}")
    click.echo("Nothing was started, and nothing is written anywhere.")


def _run(command_line: Sequence[str], config: Config, address: str | None) -> int:
    """Serve and run the program; returns its exit code."""
    from leporello.plugins.hermes import install
    from leporello.store import open_store

    try:
        from leporello.gateway.background import in_background
        from leporello.gateway.keys import Keys
        from leporello.view.access import Access
        from leporello.view.app import PageRoutes
    except ModuleNotFoundError as error:
        raise MissingExtraError.of("gateway", error, "the gateway") from error
    install(first=True)
    name, started = agent_of(command_line) or Path(command_line[0]).name, time.time()
    with closing(open_store(address, home=config.home, url=config.store.url)) as store:
        access = Access(keys=Keys({}), local=None, tokens=True)
        with _noted() as notes, in_background(config, store, PageRoutes(store, access).routes()) as gateway:
            place = file_of(store) or store.url
            click.echo(f"leporello: {name} runs behind {gateway.place}; the store is {place}", err=True)
            link = f"{gateway.place}/view/enter?token={access.new_token(_LINK_SECONDS)}"
            click.echo(f"leporello: see the window, while it runs: {link} (works once)", err=True)
            code = _run_program(launch(command_line, gateway.address, os.environ))
        click.echo(f"\nleporello: {name} ended after {_lasted(time.time() - started)}", err=True)
        option = f" --store {shlex.quote(address)}" if address else ""
        for line in _report(store, gateway, started, model=config.model.default or "", option=option):
            click.echo(f"  {line}", err=True)
    for line in notes.lines:
        click.echo(f"  note: {line}", err=True)
    return code


def _run_program(made: Launch) -> int:
    """Run the program in this terminal, with the signals that come here; returns its exit code."""
    died_with_us = None
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None).prctl

        def died_with_us() -> None:
            prctl(_PARENT_DEATH_SIGNAL, signal.SIGTERM)

    with _forwarding() as target:
        try:
            program = subprocess.Popen(  # noqa: S603 - the user's own command
                made.command,
                env=made.environment(os.environ),
                preexec_fn=died_with_us,  # noqa: PLW1509 - one system call: it takes no lock that a thread may hold
            )
        except OSError as error:
            hint = f"is it installed? {'Known agents: ' + ', '.join(AGENTS) + '.' if len(made.command) == 1 else ''}"
            raise LeporelloError(f"{made.command[0]} cannot be started ({error.strerror}): {hint}".rstrip()) from error
        target.append(program)
        code = program.wait()
    return _KILLED - code if code < 0 else code


@contextmanager
def _forwarding() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Pass signals on to a program; a terminal's own keys reach it anyway, as it is in the foreground too."""
    programs: list[subprocess.Popen[bytes]] = []
    at_terminal = sys.stdin is not None and sys.stdin.isatty()

    def forward(number: int, frame: FrameType | None) -> None:
        if not (at_terminal and signal.Signals(number).name in _FROM_THE_TERMINAL):
            for program in programs:
                program.send_signal(number)

    known = [getattr(signal, name) for name in _FORWARDED if hasattr(signal, name)]
    usual = {number: signal.signal(number, forward) for number in known}
    try:
        yield programs
    finally:
        for number, handler in usual.items():
            signal.signal(number, handler)


class _Notes(logging.Handler):
    """The last lines of the log: the terminal belongs to the program while it runs."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: deque[str] = deque(maxlen=_MOST_NOTES)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a line, once."""
        line = visible(record.getMessage()).partition("\n")[0]
        if line not in self.lines:
            self.lines.append(line)


@contextmanager
def _noted() -> Iterator[_Notes]:
    """Keep what would be printed on the terminal by the gateway until the block ends."""
    notes, log = _Notes(), logging.getLogger()
    log.addHandler(notes)
    with warnings.catch_warnings():
        warnings.showwarning = lambda message, *_, **__: log.warning("%s", message)
        try:
            yield notes
        finally:
            log.removeHandler(notes)


def _report(store: Store, gateway: BackgroundGateway, started: float, *, model: str, option: str) -> Iterator[str]:
    """Say what the session used, saved and left in the store."""
    from leporello.proof.savings import savings_of, total_of

    infos = [info for name in gateway.conversations if (info := store.info(name)) is not None]
    lines: list[tuple[str, str]] = []
    if infos:
        lines += _figures(total_of(savings_of(store, info, since=started, model=model) for info in infos))
    refused = {status: count for status, count in sorted(gateway.statuses.items()) if _is_refusal(status)}
    if refused:
        each = ", ".join(f"{count:,} with {status}" for status, count in refused.items())
        lines.append(("refused", f"{counted(sum(refused.values()), 'request')}: {each}"))
    if infos:
        infos.sort(key=lambda info: info.messages, reverse=True)  # those of sub-agents and titles are short
        lines += _conversations([info.key for info in infos], option)
    for label, text in lines:
        yield f"{label:<13} {text}"
    if not lines:
        yield "No request came to the gateway. If the program asked a model, a setting of its own leads elsewhere;"
        yield "`leporello wrap --print` in front of the same command shows what is set for it."


def _figures(total: Savings) -> Iterator[tuple[str, str]]:
    """Yield the lines about tokens and dollars."""
    share = total.cache_read_tokens / total.prompt_tokens if total.prompt_tokens else 0.0
    yield "requests", f"{total.requests:,}, {counted(total.compactions, 'fold')}"
    yield "tokens", f"{total.prompt_tokens:,} read ({share:.0%} from the cache), {total.completion_tokens:,} written"
    if total.requests > total.unpriced:
        yield "cost", f"${total.cost_usd:,.4f}"
        yield "caching", _saved(total.caching_saved_usd)
        if total.compactions:
            yield "folding", f"{_saved(total.folding_saved_usd)}, beside an unfolded history (an estimate)"
    if total.unpriced:
        yield "not priced", f"{counted(total.unpriced, 'request')}: the price of the model is not known"
    if total.too_long:
        yield "unfolded", f"{counted(total.too_long, 'request')} would not have fit the model's window"


def _conversations(names: list[str], option: str) -> Iterator[tuple[str, str]]:
    """Yield the names of the conversations, and the command that shows one."""
    for at, name in enumerate(names[:_MOST_CONVERSATIONS]):
        yield "" if at else "conversation", visible(name)
    if len(names) > _MOST_CONVERSATIONS:
        yield "", f"and {len(names) - _MOST_CONVERSATIONS:,} more: leporello sessions list{option}"
    yield "see it", f"leporello sessions show {shlex.quote(names[0])}{option}"


def _is_refusal(status: int) -> bool:
    """Tell whether a status is worth a line; Codex asks for a websocket first, and goes on without one."""
    return status >= HTTPStatus.BAD_REQUEST and status != HTTPStatus.UPGRADE_REQUIRED


def _saved(amount: float) -> str:
    return f"saved ${amount:,.4f}" if amount >= 0 else f"cost ${-amount:,.4f} more than it saved"


def _lasted(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 2 * _MINUTE else f"{seconds / _MINUTE:.0f} min"
