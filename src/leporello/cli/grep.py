"""`leporello grep`: search every stored message, folded or not."""

from __future__ import annotations

import shlex
import sys
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import regex as regex_

from leporello.cli.format import echo, fitted, on_one_line, print_json
from leporello.cli.store_options import again, conversation, json_option, opened, owner_option, seconds_of, store_option
from leporello.cli.stores import ask
from leporello.messages.visible import one_line, visible
from leporello.view.text import marked

if TYPE_CHECKING:
    from leporello.store import TranscriptStore

EVERYWHERE = "*"
_SNIPPET = 400
_MATCH_SECONDS = 0.2


@click.command(name="grep")
@click.argument("query")
@click.option("--conversation", "key", metavar="ID", help="Only this conversation; default: all of them.")
@click.option("--limit", type=click.IntRange(1, 200), default=10, show_default=True, help="How many hits.")
@click.option("--sort", type=click.Choice(["relevance", "recency"]), default="relevance", show_default=True)
@click.option("--role", type=click.Choice(["user", "assistant", "tool", "system"]), help="Only messages of this role.")
@click.option("--tool", metavar="NAME", help="Only calls and results of this tool.")
@click.option(
    "--since", metavar="TIME", help="Only messages from then on: 2026-11-15, 2026-11-15T09:30:00Z, or 7d ago."
)
@click.option("--until", metavar="TIME", help="Only messages up to then.")
@click.option("--regex", is_flag=True, help="Take QUERY as a regular expression; slower, within a time limit.")
@click.option("--cursor", metavar="TEXT", help="Go on where an earlier answer ended.")
@store_option
@owner_option
@json_option
def command(
    query: str,
    key: str | None,
    limit: int,
    sort: str,
    role: str | None,
    tool: str | None,
    since: str | None,
    until: str | None,
    regex: bool,
    cursor: str | None,
    address: str | None,
    owner: str | None,
    as_json: bool,
) -> None:
    """Search every stored message, also those that are folded out of the window; exit code 1 when there is no hit.

    Finds words, identifiers, uuids, paths, numbers, in any language. Each hit names the message and the node that
    covers it; `leporello expand` unfolds either.

    \b
    Examples:
      leporello grep PORT-2291
      leporello grep '"connection reset"' --role tool --since 7d --sort recency
    """  # noqa: D301 - click wants the character, not the two letters
    asked = {
        "query": query,
        "limit": limit,
        "cursor": cursor,
        "sort": sort,
        "role": role,
        "tool": tool,
        "since": _time(since),
        "until": _time(until),
        "regex": regex,
    }
    with opened(address) as store:
        info = conversation(store, key, owner) if key else None
        who = info.owner if info else owner or ""
        asked["conversation"] = info.key if info else EVERYWHERE
        answer = ask(store, "lcm_grep", asked, conversation=info.key if info else "", owner=who)
        _name_conversations(store, answer["results"], who)
        hint = "" if answer["results"] or info or owner else _others(store)
    if as_json:
        print_json(answer)
    else:
        _print(answer, query, is_pattern=regex)
    if not answer["results"]:
        echo(f"leporello: nothing found{hint}", err=True)
        sys.exit(1)


def _time(text: str | None) -> str | None:
    """Return a time as the search takes it; an age counts back from now."""
    age = seconds_of(text) if text else None
    return text if age is None else datetime.fromtimestamp(time.time() - age, UTC).isoformat()


def _name_conversations(store: TranscriptStore, hits: list[dict[str, Any]], owner: str) -> None:
    stored = store.get([hit["id"] for hit in hits], owner=owner)
    for hit in hits:
        hit["conversation"] = stored[hit["id"]].conversation if hit["id"] in stored else None


def _others(store: TranscriptStore) -> str:
    """Say that there are conversations which were not searched, because they have an owner."""
    names = sorted({info.owner for info in store.conversations()} - {""})
    return f" among conversations without an owner; others belong to {', '.join(names)} (--owner)" if names else ""


def _print(answer: dict[str, Any], query: str, *, is_pattern: bool) -> None:
    for hit in answer["results"]:
        where = f"in {hit['node']}" if hit["node"] else "not folded"
        who = " ".join(filter(None, (hit["role"], hit["name"])))
        head = f"{click.style(hit['id'], bold=True)}  {where}  {one_line(who)}  {hit['time']}"
        click.echo(f"{head}  {click.style(one_line(hit['conversation'] or ''), dim=True)}")
        for line in fitted(f"    {on_one_line(hit['snippet'], _SNIPPET)}"):
            click.echo(f"    {_highlighted(line[4:], query, is_pattern=is_pattern)}")
    if answer.get("note"):
        echo(f"leporello: {visible(answer['note'])}", err=True)
    if answer["cursor"]:
        more = again(f"--cursor {shlex.quote(answer['cursor'])}", without="--cursor")
        click.echo(f"more: {more}", err=True)


def _highlighted(text: str, query: str, *, is_pattern: bool) -> str:
    """Mark on a terminal what was found; click leaves the marks out elsewhere."""
    pieces = _matched(text, query) if is_pattern else marked(text, query)
    return "".join(click.style(piece, fg="red", bold=True) if found else piece for piece, found in pieces)


def _matched(text: str, pattern: str) -> list[tuple[str, bool]]:
    """Cut a text into pieces, each with whether a regular expression matches it; as they are where that takes long."""
    pieces: list[tuple[str, bool]] = []
    at = 0
    try:
        for found in regex_.finditer(pattern, text, timeout=_MATCH_SECONDS):
            pieces += [(text[at : found.start()], False), (found[0], True)]
            at = found.end()
    except (TimeoutError, regex_.error):
        return [(text, False)]
    return [*pieces, (text[at:], False)]
