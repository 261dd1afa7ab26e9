"""`leporello sessions`: the stored conversations, listed, shown, written out and deleted."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from leporello.cli import branches, export_formats
from leporello.cli.chat.kept_settings import forget
from leporello.cli.format import (
    counted,
    echo,
    fitted,
    moment,
    on_one_line,
    print_json,
    spent,
    timestamp,
    waiting,
    watched,
)
from leporello.cli.gc import PURGE_LATER
from leporello.cli.group import CommandGroup
from leporello.cli.private_file import new_private_file
from leporello.cli.store_options import again, conversation, json_option, opened, owner_option, store_option
from leporello.config.home import home_folder
from leporello.lcm.dag import flat_text
from leporello.messages.visible import one_line, visible
from leporello.session.accounts import Spent, totals
from leporello.session.resumption import stored_size
from leporello.session.saved_branch import load
from leporello.store import Branch
from leporello.store.titles import title_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from leporello.store import BranchInfo, ConversationInfo, Store, Stored, TranscriptStore

_LINE = 100


@click.group(name="sessions", cls=CommandGroup)
def command() -> None:
    """List, show, export and delete stored conversations.

    Example: leporello sessions list
    """


@command.command(name="list")
@store_option
@owner_option
@json_option
def list_command(address: str | None, owner: str | None, as_json: bool) -> None:
    """List the stored conversations, the newest first; exit code 1 when there are none.

    Example: leporello sessions list --json
    """
    with opened(address) as store:
        infos = [replace(info, title=title_of(store, info)) for info in store.conversations(owner=owner)]
        url = store.url
    if as_json:
        print_json([_described(info) for info in infos])
    elif infos:
        _print_list(infos)
    if not infos:
        click.echo(f"leporello: no conversations in {url}", err=True)
        sys.exit(1)


@command.command()
@click.argument("key", metavar="ID")
@click.option("--last", type=click.IntRange(0), default=10, show_default=True, help="How many messages to show.")
@store_option
@owner_option
@json_option
def show(key: str, last: int, address: str | None, owner: str | None, as_json: bool) -> None:
    """Show a conversation: what is stored, how it is folded, its branches, and its newest messages.

    Example: leporello sessions show my-chat --last 20
    """
    with opened(address) as store:
        info = conversation(store, key, owner)
        info = replace(info, title=title_of(store, info))
        facts = _described(info) | _folded(store, info)
        tree = branches.described(store, info)
        newest = store.messages(info.key, owner=info.owner, newest_first=True)
        rows = [row for row, _ in zip(newest, range(last), strict=False)][::-1]
    if as_json:
        shown = [{"id": row.id, "seq": row.seq, "time": timestamp(row.time), "message": row.message} for row in rows]
        print_json(facts | {"branches": tree, "newest": shown})
        return
    lines = {name: value for name, value in _for_people(facts, forked=len(tree) > 1) if value}
    for name, value in lines.items():
        echo(f"{name:<{max(map(len, lines))}}  {visible(value)}")
    if len(tree) > 1:
        branches.print_tree(tree)
    for row in rows:
        first, *more = fitted(f"  {row.id} {row.role}: {on_one_line(flat_text(row.message), _LINE)}")
        click.echo("\n".join([first.replace(row.id, click.style(row.id, bold=True), 1), *more]))


@command.command()
@click.argument("key", metavar="ID")
@click.option("--output", metavar="FILE", type=click.Path(path_type=Path), help="A new file; default: to the screen.")
@click.option(
    "--bundle", is_flag=True, help="With times, hashes, other branches and what was replaced: all that is stored."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(export_formats.FORMATS),
    help="As a provider's API takes it, or as a session log that `claude --resume` goes on with.",
)
@click.option("--window", is_flag=True, help="With --format: what the model sees now, folded, not every message.")
@click.option(
    "--project",
    metavar="FOLDER",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="With --format claude-code: where to go on; the log is put where Claude Code looks for it.",
)
@store_option
@owner_option
def export(
    key: str,
    output: Path | None,
    bundle: bool,
    form: str | None,
    window: bool,
    project: Path | None,
    address: str | None,
    owner: str | None,
) -> None:
    """Write every original message in order, one JSON line each, with all its fields as they came.

    System messages come first. When a host forgot the conversation and began it again under its name, what was said
    before stands before what was said since. With --bundle the lines hold what is needed to bring the conversation back
    exactly as it was. `leporello import` reads both. With --format the path of the head is written for other programs,
    and repaired where they would refuse it. Secrets are not hidden.

    Example: leporello sessions export my-chat --output my-chat.jsonl
    """
    if bundle and form:
        raise click.UsageError("--bundle and --format contradict each other.")
    if (window or project) and not form:
        raise click.UsageError("--window and --project need --format.")
    if project and form != "claude-code":
        raise click.UsageError("--project is for --format claude-code.")
    with opened(address) as store:
        info = conversation(store, key, owner)
        if form:
            written = export_formats.written(store, info, form, window=window, project=project)
            output = output or written.place
            lines: Iterator[str] = iter(written.lines)
            total = written.messages
        else:
            roots = branches.newest_of_roots(store, info)
            total = info.messages + info.superseded if bundle else sum(branch.messages for branch in roots)
            lines = store.export(info.key, owner=info.owner) if bundle else _messages(store, info, roots)
        if output is None:
            for line in lines:
                click.echo(line)
            return
        with new_private_file(output) as file:
            for line in watched(lines, "exporting", total=total):
                file.write(line + "\n")
    click.echo(f"wrote {counted(total, 'message')} to {output}", err=True)
    if form and written.next_step:
        click.echo(written.next_step, err=True)


@command.command()
@click.argument("key", metavar="ID")
@click.option("--yes", is_flag=True, help="Really delete.")
@store_option
@owner_option
@json_option
def delete(key: str, yes: bool, address: str | None, owner: str | None, as_json: bool) -> None:
    """Delete a conversation with everything that is known about it; without --yes, show what would go.

    It is hidden at once. `leporello gc --purge` takes its last words out of the file.

    Example: leporello sessions delete my-chat --yes
    """
    with opened(address) as store:
        info = conversation(store, key, owner)
        with waiting("deleting"):
            gone = store.delete(info.key, owner=info.owner, dry_run=not yes)
        if yes:
            forget(home_folder(), store.url, info.key)
    if as_json:
        print_json({"deleted": yes, **asdict(gone)})
    elif yes:
        click.echo(f"deleted {one_line(info.key)}: {counted(gone.messages, 'message')}; {PURGE_LATER}")
    else:
        click.echo(
            f"would delete {one_line(info.key)}: {counted(gone.messages, 'message')}, "
            f"{counted(info.nodes, 'summary node')}; nothing was changed. To do it: {again('--yes')}"
        )


def _described(info: ConversationInfo) -> dict[str, Any]:
    return {
        "id": info.key,
        "owner": info.owner,
        "title": info.title,
        "messages": info.messages,
        "superseded": info.superseded,
        "nodes": info.nodes,
        "branches": info.branches,
        "head": info.head,
        "created": timestamp(info.created),
        "updated": timestamp(info.updated),
        "ended": timestamp(info.ended),
        "meta": info.meta,
    }


def _folded(store: Store, info: ConversationInfo) -> dict[str, Any]:
    """Say what stands in the window, and what the journal knows: the figures of `Session.usage()`."""
    items = store.window(info.key, owner=info.owner).items
    head = Branch(store, info.key, info.owner, info.head)
    saved = load(head)
    known = totals(store.journal(info.key, owner=info.owner))
    spent = asdict(known.spent)
    return {
        "window_messages": len(saved.entries) + len(saved.later),
        "window_tokens": stored_size(head).tokens,
        "window_nodes": [item["n"] for item in items if "n" in item],
        "compactions": known.compactions,
        "prefix_moves": known.prefix_moves,
        **spent,
    }


def _for_people(facts: dict[str, Any], *, forked: bool) -> Iterator[tuple[str, str]]:
    """Yield names and texts of the facts that are worth a line; "" where there is nothing to tell."""
    for name in ("id", "owner", "title"):
        yield name, facts[name]
    counts = {"messages": "messages", "superseded": "replaced", "nodes": "summary nodes"}
    counts |= {"branches": "branches", "head": "head"} if forked else {}
    for name, label in counts.items():
        yield label, f"{facts[name]:,}" if facts[name] else ""
    for name, label in {"created": "created", "updated": "last change", "ended": "ended"}.items():
        yield label, (facts[name] or "").replace("T", " ").removesuffix("Z")
    yield "meta", json.dumps(facts["meta"], ensure_ascii=False) if facts["meta"] else ""
    yield "window", f"{counted(facts['window_messages'], 'message')}, {facts['window_tokens']:,} tokens"
    yield "nodes in it", ", ".join(facts["window_nodes"])
    yield "compactions", f"{facts['compactions']:,}"
    yield "cached prefix", f"moved {counted(facts['prefix_moves'], 'time')}" if facts["prefix_moves"] else ""
    cost = Spent(**{one.name: facts[one.name] for one in fields(Spent)})
    yield "altogether", spent(cost) if cost.requests or cost.engine_calls else ""


def _messages(store: TranscriptStore, info: ConversationInfo, roots: Sequence[BranchInfo]) -> Iterator[str]:
    """Write the messages as they came, root by root; escaped, because a message may hold what no encoding can."""
    for number, branch in enumerate(roots):
        rows: Iterator[Stored] = store.messages(info.key, owner=info.owner, branch=branch.id, system=number == 0)
        yield from (json.dumps(row.message) for row in rows)


def _print_list(infos: list[ConversationInfo]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    owned = any(info.owner for info in infos)
    forked = any(info.branches > 1 for info in infos)
    numbers = ("messages", "nodes", *(["branches"] if forked else []))
    table = Table(box=None, pad_edge=False)
    named = ("conversation", "title", *(["owner"] if owned else []))
    for column in (*named, *numbers, "last change", ""):
        justify: Literal["left", "right"] = "right" if column in numbers else "left"
        table.add_column(column, justify=justify, overflow="ellipsis" if column == "title" else "fold")
    for info in infos:
        cells = [info.key, info.title, *([info.owner] if owned else [])]
        cells += [f"{info.messages:,}", f"{info.nodes:,}"]
        cells += [f"{info.branches:,}"] if forked else []
        cells += [moment(info.updated), "ended" if info.ended else ""]
        table.add_row(*(Text(one_line(cell)) for cell in cells))
    Console(width=None if sys.stdout.isatty() else 160).print(table)
