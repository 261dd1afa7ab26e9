"""`leporello verify`: the proof that nothing is lost."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING

import click

from leporello.cli.format import counted, echo, print_json, waiting, watched
from leporello.cli.store_options import conversation, json_option, opened, owner_option, store_option
from leporello.errors import StoreError
from leporello.lcm import Finding, verify
from leporello.messages.visible import one_line

if TYPE_CHECKING:
    from leporello.store import ConversationInfo, Store


MOST_SHOWN = 50


@dataclass(frozen=True, kw_only=True)
class VerifyResult:
    """What was found about one conversation; messages apart need no cover."""

    conversation: str
    owner: str
    messages: int
    nodes: int
    superseded: int
    system: int
    findings: list[Finding] = field(default_factory=list)


@click.command(name="verify")
@click.argument("keys", metavar="[CONVERSATION]...", nargs=-1)
@click.option("--rebuild-index", is_flag=True, help="Rebuild the search index first.")
@store_option
@owner_option
@json_option
def command(keys: tuple[str, ...], rebuild_index: bool, address: str | None, owner: str | None, as_json: bool) -> None:
    """Prove that nothing is lost; exit code 1 when something is wrong, and each finding names the place.

    Every stored message is covered by summaries exactly once or stands in the window, every node unfolds to its
    originals, the hashes of the messages chain, and the search index is whole. Without CONVERSATION: all of them, and
    the file itself.

    Example: leporello verify my-chat
    """
    with opened(address) as store:
        if rebuild_index:
            with waiting("rebuilding the search index"):
                store.rebuild_index()
        trouble, verdicts = _checked(store, keys, owner)
        url = store.url
    wrong = sum((len(one.findings) for one in verdicts), len(trouble))
    if as_json:
        found = [asdict(verdict) for verdict in verdicts]
        print_json({"ok": not wrong, "store": url, "findings": list(map(asdict, trouble)), "conversations": found})
    else:
        _print(url, trouble, verdicts)
    sys.exit(1 if wrong else 0)


def _checked(store: Store, keys: tuple[str, ...], owner: str | None) -> tuple[list[Finding], list[VerifyResult]]:
    """Check the named conversations, or everything; return what is wrong with the store, and each verdict."""
    if keys:
        return [], _verdicts(store, [conversation(store, key, owner) for key in keys])
    trouble: list[Finding] = []
    infos: list[ConversationInfo] = []
    with waiting("checking the file"):
        try:
            trouble += store.check_file()
            trouble += store.check_index()
            infos += store.conversations(owner=owner)
        except StoreError as error:
            trouble.append(Finding(where=store.url, problem=error.problem))
    return trouble, _verdicts(store, infos)


def _verdicts(store: Store, infos: list[ConversationInfo]) -> list[VerifyResult]:
    return [_verdict(store, info) for info in watched(infos, "verifying", total=len(infos))]


def _verdict(store: Store, info: ConversationInfo) -> VerifyResult:
    system, findings = _proven(store, info)
    return VerifyResult(
        conversation=info.key,
        owner=info.owner,
        messages=info.messages,
        nodes=info.nodes,
        superseded=info.superseded,
        system=system,
        findings=findings,
    )


def _proven(store: Store, info: ConversationInfo) -> tuple[int, list[Finding]]:
    """Return how many system messages there are, and what is wrong; a damaged message is wrong, never an exception."""
    try:
        rows = store.messages(info.key, owner=info.owner, system=True)
        system = sum(1 for _ in takewhile(lambda row: row.system, rows))  # those of the system come first
        return system, verify(store, info.key, owner=info.owner)
    except StoreError as error:
        rest = Finding(where=info.key, problem=f"the rest cannot be proven: {error.problem}")
        return 0, [*_chain(store, info), rest]


def _chain(store: Store, info: ConversationInfo) -> list[Finding]:
    """Return which messages cannot be read; nothing when not even that can be told."""
    try:
        return store.check_chain(info.key, owner=info.owner)
    except StoreError:
        return []


def _print(url: str, trouble: list[Finding], verdicts: list[VerifyResult]) -> None:
    if trouble:
        click.echo(f"✗ {one_line(url)}: {counted(len(trouble), 'problem')}")
        _print_findings(trouble)
    for one in verdicts:
        sign = "✗" if one.findings else "✓"
        outcome = counted(len(one.findings), "problem") if one.findings else "nothing is lost"
        held = f"{counted(one.messages, 'message')}{_apart(one)}, {counted(one.nodes, 'node')}"
        name = f"{one.conversation} ({one.owner})" if one.owner else one.conversation
        echo(f"{sign} {one_line(name)}: {held}: {outcome}")
        _print_findings(one.findings)
    if not trouble and not verdicts:
        click.echo(f"✓ {one_line(url)}: no conversations")


def _apart(one: VerifyResult) -> str:
    """Name the messages that need no cover."""
    kinds = ((one.system, "of the system"), (one.superseded, "replaced or on other branches"))
    return "".join(f", {number:,} {kind}" for number, kind in kinds if number)


def _print_findings(findings: list[Finding]) -> None:
    for finding in findings[:MOST_SHOWN]:
        echo(f"    {one_line(finding.where)}: {one_line(finding.problem)}")
    if len(findings) > MOST_SHOWN:
        click.echo(f"    … and {len(findings) - MOST_SHOWN:,} more; --json names them all")
