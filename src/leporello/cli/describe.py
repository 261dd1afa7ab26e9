"""`leporello describe`: what a node, a message or a file is, and how to go on."""

from __future__ import annotations

from typing import Any

import click

from leporello.cli.format import counted, echo, on_one_line, print_json
from leporello.cli.store_options import conversation, json_option, on_store, opened, owner_option, store_option
from leporello.cli.stores import ask, home_of
from leporello.messages.visible import visible

_BEGINNING = 90


@click.command(name="describe")
@click.argument("name", metavar="ID")
@click.option(
    "--conversation", "key", metavar="ID", help="Of a file: in this conversation; default: the newest that has it."
)
@store_option
@owner_option
@json_option
def command(name: str, key: str | None, address: str | None, owner: str | None, as_json: bool) -> None:
    """Describe a node (n12), a message (m34) or a file (file:src/app.py); exit code 1 when there is none.

    Of a node: what it covers, its children, its summary. Of a message: where it stands, and what stands around it. Of a
    file: everything that happened to it.

    Example: leporello describe file:src/app.py
    """
    with opened(address) as store:
        if key is None:
            home, who = home_of(store, name, owner)
        else:
            info = conversation(store, key, owner)
            home, who = info.key, info.owner
        answer = ask(store, "lcm_describe", {"id": name}, conversation=home, owner=who)
    answer["conversation"] = home
    if as_json:
        print_json(answer)
        return
    if "id" in answer:
        answer["unfold"] = on_store(f"leporello expand {answer['id']}")
    echo("\n".join(visible(line) for line in _lines(answer)))


def _lines(answer: dict[str, Any]) -> list[str]:
    match answer["kind"]:
        case "file":
            return _of_file(answer)
        case "message":
            return _of_message(answer)
    return _of_node(answer)


def _of_node(node: dict[str, Any]) -> list[str]:
    covers = node["covers"]
    return [
        f"{node['id']}  {node['kind']} node of level {node['level']}, {node['state']}, made by {node['made_by']}",
        f"  conversation {node['conversation']}",
        f"  covers       {counted(covers['messages'], 'message')}, seq {covers['first_seq']} to {covers['last_seq']}",
        f"  time         {node['time']}",
        f"  size         {node['tokens']:,} tokens for {node['source_tokens']:,}",
        *[f"  child        {c['id']}  {counted(c['messages'], 'message')}  {c['time']}" for c in node["children"]],
        "",
        node["summary"],
        "",
        f"the originals: {node['unfold']}",
    ]


def _of_message(message: dict[str, Any]) -> list[str]:
    who = " ".join(filter(None, (message["role"], message["name"], message["tool"])))
    state = "replaced, or on another branch" if message["superseded"] else "on the current branch"
    return [
        f"{message['id']}  message of {who}, {state}",
        f"  conversation {message['conversation']}, seq {message['seq']}",
        f"  node         {message['node'] or 'none: it is not folded'}",
        f"  time         {message['time']}",
        f"  size         {message['tokens']:,} tokens",
        f"  begins       {on_one_line(message['begins'], _BEGINNING)}",
        *[f"  near it      {m['id']} {m['role']}: {on_one_line(m['begins'], _BEGINNING)}" for m in message["around"]],
        f"all of it: {message['unfold']}",
    ]


def _of_file(file: dict[str, Any]) -> list[str]:
    story = [
        f"  {event['time']}  {event.get('path', '')} {event['what']}  ({event['message']}"
        f"{', in ' + event['node'] if event['node'] else ''})".replace("   ", "  ")
        for event in file["story"]
    ]
    more = [f"  … {file['older']}"] if "older" in file else []
    return [f"{', '.join(file['paths'])}  in conversation {file['conversation']}", *more, *story]
