"""`leporello chat`: a conversation in the terminal, or one question and its answer."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from io import TextIOWrapper
from pathlib import Path
from typing import Any

import click

from leporello.cli.chat.interrupts import at_once
from leporello.cli.store_options import store_option


@click.command()
@click.argument("question", required=False)
@click.option("--session", "session_id", metavar="ID", help="Go on with this conversation, or begin one of this name.")
@click.option("--resume", is_flag=True, help="Go on with the conversation that changed last.")
@click.option("--model", metavar="NAME", help="The model; default: model.default.")
@click.option("--provider", metavar="NAME", help="Who serves it: openai, anthropic, openrouter, …")
@click.option("--base-url", metavar="URL", help="The address of an OpenAI-compatible server.")
@click.option("--engine", metavar="NAME", help="The context engine; default: context.engine.")
@click.option("--local", "on_this_machine", is_flag=True, help="Talk to a small real model on this machine, no key.")
@click.option(
    "--workspace",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The folder that the tools are bounded to; default: this one.",
)
@click.option("--tools/--no-tools", default=True, help="Let the model act, or only talk.")
@click.option("--yes", is_flag=True, help="Run commands and write files without asking.")
@click.option("-p", "--print", "once", is_flag=True, help="Print one answer; reads the question if there is none.")
@click.option("--json", "as_json", is_flag=True, help="Print one answer as JSON, for programs.")
@store_option
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="Another config.yaml than the one in the home folder.",
)
def command(
    question: str | None,
    resume: bool,
    on_this_machine: bool,
    once: bool,
    as_json: bool,
    config_file: Path | None,
    **options: Any,
) -> None:
    """Talk to a model that can use tools; the conversation always fits its window, and nothing is lost.

    With QUESTION, or with something piped in, print the answer and leave; else talk until Ctrl-D. /help shows the
    commands of the conversation. Everything is kept in the store: --session and --resume go on where you were.

    Examples: leporello chat --resume, leporello chat --local, git diff | leporello chat "Review this change"
    """
    if resume and options["session_id"]:
        raise click.UsageError("--session names a conversation, --resume takes the newest: use one of them.")
    if options["session_id"] is not None and not options["session_id"].strip():
        raise click.UsageError("--session needs the name of a conversation; leave it out to begin a new one.")
    with at_once():
        from leporello.agent.tools.environment import blank_environment
        from leporello.cli.chat.factory import Setting, local, newest
        from leporello.config import Config
        from leporello.plugins.hermes import install

    install(first=True)
    blank_environment()
    _show_what_can_be_shown()
    setting = Setting(config=Config.load(config_file), **options)
    if resume:
        setting = Setting(config=setting.config, **{**options, "session_id": newest(setting)})
    asked = _asked(question, once=once or as_json)
    with ExitStack() as stack:
        if on_this_machine:
            setting = stack.enter_context(local(setting))
        if asked is None:
            from leporello.cli.chat.chat import talk

            talk(setting, local=on_this_machine)
        else:
            from leporello.cli.chat.once import answer

            sys.exit(answer(setting, asked, as_json=as_json))


def _show_what_can_be_shown() -> None:
    """On a terminal that cannot write every character, write a question mark instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")


def _asked(question: str | None, *, once: bool) -> str | None:
    """Return the one question: the argument, what is piped in, or the one above the other; None to talk."""
    here = sys.stdin is not None and sys.stdin.isatty()
    piped = "" if here or sys.stdin is None else sys.stdin.buffer.read().decode("utf-8", "replace").strip()
    asked = "\n\n".join(part for part in (question, piped) if part and part.strip())
    if asked:
        return asked
    if once or not (here and sys.stdout is not None and sys.stdout.isatty()):
        raise click.UsageError('there is no question, and no terminal to talk at: leporello chat "What is new?"')
    return None
