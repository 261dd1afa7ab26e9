"""The MCP server, asked by the official client: every tool, one conversation only, and no hostile page."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import asynccontextmanager, closing, suppress
from typing import TYPE_CHECKING, Any

import httpx2
import mcp_types as types
import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.server.transport_security import TransportSecuritySettings

from leporello.adapters import mcp
from leporello.adapters.mcp import MOST_CHARACTERS, Retrieval, create_app, create_server
from leporello.lcm.tools import SCHEMAS
from leporello.store import open_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator
    from pathlib import Path

    from leporello.store import Store

PORT = 8766
HERE = f"http://127.0.0.1:{PORT}"
NAMES = [tool["name"] for tool in SCHEMAS]
TICKET = "PORT-2291"
"""Said once in the conversation `harbour`, and folded."""
ELSEWHERE = "PIER-7777"
"""Said in another conversation of the same store."""
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("lcm_grep", {"query": TICKET}),
    ("lcm_describe", {"id": "n1"}),
    ("lcm_expand", {"id": "m13"}),
    ("lcm_expand_query", {"question": "Which ticket has the booking?"}),
    ("lcm_artifacts", {"kind": "file"}),
    ("lcm_status", {}),
]
LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
HEADERS = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2025-11-25",
}


@pytest.fixture
def store(folded: Path) -> Iterator[Store]:
    with closing(open_store(folded)) as opened:
        opened.append("pier", [{"role": "user", "content": f"The mast is {ELSEWHERE}."}])
        opened.append("others", [{"role": "user", "content": f"The hatch is {ELSEWHERE}."}], owner="ada")
        yield opened


def server_command(folded: Path, *options: str) -> StdioServerParameters:
    command = ["-m", "leporello", "mcp", "--store", str(folded), *options]
    home = str(folded.parent)
    return StdioServerParameters(
        command=sys.executable, args=command, env={"LEPORELLO_HOME": home, "PATH": os.environ["PATH"], "HOME": home}
    )


def text_of(result: Any) -> str:
    (content,) = result.content
    assert isinstance(content, types.TextContent)
    return content.text


async def every_answer(client: Client) -> dict[str, Any]:
    """Call every tool, and return the answers."""
    assert [tool.name for tool in (await client.list_tools()).tools] == NAMES
    assert [name for name, _ in CALLS] == NAMES
    answers = {}
    for name, arguments in CALLS:
        result = await client.call_tool(name, arguments)
        assert not result.is_error, (name, result)
        answers[name] = json.loads(text_of(result))
    return answers


def check_answers(answers: dict[str, Any]) -> None:
    """Check that the folded message is found, unfolded word for word, and described."""
    (hit,) = (one for one in answers["lcm_grep"]["results"] if one["role"] == "user")
    assert (hit["id"], hit["node"] in answers["lcm_grep"]["nodes"]) == ("m13", True)
    (message,) = answers["lcm_expand"]["messages"]
    assert TICKET in message["message"]["content"]
    assert answers["lcm_describe"]["kind"] == "leaf"
    assert any(TICKET in passage["text"] for passage in answers["lcm_expand_query"]["passages"])
    assert answers["lcm_artifacts"]["artifacts"][0]["value"].startswith("src/harbour/part_")
    assert (answers["lcm_status"]["conversation"], answers["lcm_status"]["messages"]) == ("harbour", 90)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_the_official_client_calls_every_tool_over_stdio(folded: Path, mode: str) -> None:
    async def talk() -> dict[str, Any]:
        async with Client(server_command(folded), mode=mode) as client:
            return await every_answer(client)

    check_answers(asyncio.run(talk()))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_the_official_client_calls_every_tool_over_http(folded: Path, mode: str) -> None:
    command = server_command(folded, "--http", "--port", "0")
    arguments = [command.command, *command.args]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=command.env) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]

        async def talk() -> dict[str, Any]:
            async with Client(address, mode=mode) as client:
                return await every_answer(client)

        try:
            check_answers(asyncio.run(talk()))
            hostile = httpx2.post(address, json=LIST, headers={**HEADERS, "origin": "https://evil.example"})
            assert (hostile.status_code, "lcm_grep" in hostile.text) == (403, False)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(30)


def test_resources_show_the_conversation_its_messages_and_its_nodes(store: Store) -> None:
    async def talk() -> None:
        async with Client(create_server(Retrieval(store=store, conversation="harbour"))) as client:
            (listed,) = (await client.list_resources()).resources
            assert listed.uri == "leporello://conversations/harbour"
            about = json.loads(await resource(client, listed.uri))
            assert (about["messages"], about["newest"][-1]["role"]) == (90, "tool")
            assert TICKET in await resource(client, "leporello://messages/m13")
            assert json.loads(await resource(client, "leporello://nodes/n1"))["kind"] == "leaf"
            templates = (await client.list_resource_templates()).resource_templates
            assert [template.name for template in templates] == ["conversation", "message", "node"]

    asyncio.run(talk())


async def resource(client: Client, uri: str) -> str:
    (content,) = (await client.read_resource(uri)).contents
    assert isinstance(content, types.TextResourceContents)
    return content.text


async def leaks(retrieval: Retrieval) -> list[str]:
    """Return the ways in which a client gets to see another conversation than `harbour`."""
    (other,) = (row.id for row in retrieval.store.messages("pier"))
    (foreign,) = (row.id for row in retrieval.store.messages("others", owner="ada"))
    found = []
    async with Client(create_server(retrieval)) as client:
        for name, arguments in (
            ("lcm_grep", {"query": ELSEWHERE}),
            ("lcm_grep", {"query": ELSEWHERE, "conversation": "*"}),
            ("lcm_grep", {"query": ELSEWHERE, "conversation": "pier"}),
            ("lcm_expand", {"id": other}),
            ("lcm_expand", {"id": foreign}),
            ("lcm_describe", {"id": other}),
            ("lcm_expand_query", {"question": f"What is {ELSEWHERE}?"}),
        ):
            if ELSEWHERE in text_of(await client.call_tool(name, arguments)):
                found.append(f"{name} {arguments}")
        for uri in (f"messages/{other}", f"messages/{foreign}", "conversations/pier", "conversations/others"):
            with suppress(MCPError):
                if ELSEWHERE in await resource(client, f"leporello://{uri}"):
                    found.append(uri)
        listed = [one.name for one in (await client.list_resources()).resources]
        found += [name for name in listed if name != "harbour"]
    return found


def test_a_client_reaches_one_conversation_only(store: Store) -> None:
    assert asyncio.run(leaks(Retrieval(store=store, conversation="harbour"))) == []


def test_with_all_a_client_reaches_those_of_the_owner_and_the_check_above_sees_it(store: Store) -> None:
    found = asyncio.run(leaks(Retrieval(store=store, conversation="harbour", everything=True)))
    assert {"pier", "conversations/pier"} <= set(found)
    assert any(one.startswith("lcm_expand ") for one in found)
    assert "others" not in found
    assert sum("others" in one for one in found) == 0


def test_the_newest_conversation_is_read_and_stays_it(store: Store) -> None:
    retrieval = Retrieval(store=store)
    assert json.loads(retrieval.ask("lcm_status", {})[0])["conversation"] == "pier"
    store.append("later", [{"role": "user", "content": "Something else begins."}])
    assert json.loads(retrieval.ask("lcm_status", {})[0])["conversation"] == "pier"
    assert json.loads(Retrieval(store=store).ask("lcm_status", {})[0])["conversation"] == "later"


def test_many_conversations_are_listed_by_pages(store: Store) -> None:
    for number in range(120):
        store.append(f"talk {number}/of many", [{"role": "user", "content": "Hello."}])

    async def talk() -> None:
        async with Client(create_server(Retrieval(store=store, everything=True))) as client:
            names: list[str] = []
            cursor = None
            while True:
                page = await client.list_resources(cursor=cursor)
                names += [one.name for one in page.resources]
                if page.next_cursor is None:
                    break
                cursor = page.next_cursor
            assert len(names) == len(set(names)) == 122
            about = await resource(client, "leporello://conversations/talk%207%2Fof%20many")
            assert json.loads(about)["conversation"] == "talk 7/of many"
            with pytest.raises(MCPError, match="cursor"):
                await client.list_resources(cursor="second")

    asyncio.run(talk())


def test_a_malformed_call_is_told_what_is_right(store: Store) -> None:
    async def talk() -> None:
        async with Client(create_server(Retrieval(store=store, conversation="harbour"))) as client:
            for arguments, expected in (
                ({}, "query"),
                ({"query": 3}, "query"),
                ({"query": "x", "limit": 1_000}, "limit"),
                ({"query": "x", "limt": 1}, "limt"),
                ({"query": "x", "cursor": "nowhere"}, "cursor"),
                ({"query": "(", "regex": True}, "regular expression"),
            ):
                result = await client.call_tool("lcm_grep", arguments)
                assert result.is_error
                assert expected in json.loads(text_of(result))["error"]
            with pytest.raises(MCPError, match="there is no tool 'rm'") as refused:
                await client.call_tool("rm", {})
            assert refused.value.code == types.INVALID_PARAMS
            for uri in ("leporello://messages/m999999", "leporello://nodes/..%2F..", "file:///etc/passwd"):
                with pytest.raises(MCPError) as missing:
                    await client.read_resource(uri)
                assert missing.value.code == types.INVALID_PARAMS

    asyncio.run(talk())


@pytest.mark.slow
def test_garbage_on_the_wire_does_not_end_the_server(folded: Path) -> None:
    command = server_command(folded, "--session", "harbour")
    said = [
        "this is not JSON",
        json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": "everything"}),
        json.dumps({"jsonrpc": "2.0", "id": 2, "method": "no/such/method"}),
        json.dumps({"jsonrpc": "2.0", "id": 3, "method": "initialize", "params": INITIALISE}),
        json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"}),
        json.dumps({"jsonrpc": "2.0", "id": 4, "method": "tools/call", "params": {"arguments": {}}}),
        json.dumps({"jsonrpc": "2.0", "id": 5, "method": "tools/list"}),
    ]
    with subprocess.Popen(
        [command.command, *command.args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=command.env
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("\n".join(said) + "\n")
        process.stdin.flush()
        answers = {}
        while 5 not in answers:  # the test's own time limit ends it, should the answer not come
            line = process.stdout.readline()
            assert line, "the server has ended"
            answers[json.loads(line).get("id")] = json.loads(line)
        process.stdin.close()
        assert process.wait(30) == 0
    assert [tool["name"] for tool in answers[5]["result"]["tools"]] == NAMES
    assert "error" in answers[4]
    assert "Traceback" not in json.dumps(answers)


@pytest.mark.slow
def test_an_interrupt_ends_the_server_at_once(folded: Path) -> None:
    """It is reading its input then, in a thread."""
    command = server_command(folded, "--session", "harbour")
    with subprocess.Popen(
        [command.command, *command.args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=command.env,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        asked = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALISE}
        process.stdin.write(json.dumps(asked) + "\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["id"] == 1
        try:
            process.send_signal(signal.SIGINT)
            assert process.wait(10) == -signal.SIGINT
        finally:
            process.kill()
        assert "Traceback" not in process.stderr.read()


INITIALISE = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}


def test_an_answer_is_never_longer_than_a_client_takes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    (long,) = store.append("harbour", [{"role": "user", "content": ("-" * 300 + "\n") * 2_000}])
    retrieval = Retrieval(store=store, conversation="harbour")
    asked = {"id": long, "max_tokens": 100_000}
    text, done = retrieval.ask("lcm_expand", asked)
    assert (done, len(text) <= MOST_CHARACTERS) == (True, True)
    answer = json.loads(text)
    assert (answer["complete"], len(answer["messages"][0]["text"]) > 1_000) == (False, True)

    monkeypatch.setattr(mcp, "MOST_CHARACTERS", 10**9)
    assert len(retrieval.ask("lcm_expand", asked)[0]) > MOST_CHARACTERS, "without the limit it would be longer"


def test_secrets_are_hidden(store: Store) -> None:
    secret = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"
    (id_,) = store.append("harbour", [{"role": "user", "content": f"The key is {secret}."}])

    def shown(retrieval: Retrieval) -> str:
        return retrieval.ask("lcm_expand", {"id": id_})[0] + retrieval.describe("harbour")

    assert secret not in shown(Retrieval(store=store, conversation="harbour"))
    assert secret in shown(Retrieval(store=store, conversation="harbour", redact=False))


def test_asking_changes_nothing_that_was_said(store: Store) -> None:
    def bundle() -> list[str]:
        return list(store.export("harbour"))

    before, requests = bundle(), store.journal("harbour")

    async def talk() -> None:
        async with Client(create_server(Retrieval(store=store, conversation="harbour"))) as client:
            tools = (await client.list_tools()).tools
            assert all(tool.annotations and tool.annotations.read_only_hint for tool in tools)
            await every_answer(client)

    asyncio.run(talk())
    assert (bundle(), store.journal("harbour")) == (before, requests)
    store.append("harbour", [{"role": "user", "content": "One word more."}])
    assert bundle() != before, "a change would be seen"


@asynccontextmanager
async def browser(retrieval: Retrieval, *pages: str) -> AsyncIterator[httpx2.AsyncClient]:
    """Serve an application, to requests as a browser or another program sends them."""
    app = create_app(retrieval, PORT, pages)
    async with app.router.lifespan_context(app), httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app)) as client:
        yield client


ATTACKS: dict[str, Callable[[httpx2.AsyncClient], Any]] = {
    "a page of another site": lambda client: client.post(
        f"{HERE}/mcp", json=LIST, headers={**HEADERS, "origin": "https://evil.example"}
    ),
    "a page of another program on this machine": lambda client: client.post(
        f"{HERE}/mcp", json=LIST, headers={**HEADERS, "origin": "http://localhost:3000"}
    ),
    "a sandboxed frame": lambda client: client.post(f"{HERE}/mcp", json=LIST, headers={**HEADERS, "origin": "null"}),
    "a name that was bound to this machine": lambda client: client.post(
        f"http://evil.example:{PORT}/mcp", json=LIST, headers=HEADERS
    ),
    "such a name that begins like ours": lambda client: client.post(
        f"http://localhost.evil.example:{PORT}/mcp", json=LIST, headers=HEADERS
    ),
}


async def attacks_that_work(retrieval: Retrieval) -> set[str]:
    async with browser(retrieval) as client:
        answers = {name: await attack(client) for name, attack in ATTACKS.items()}
    return {name for name, answer in answers.items() if "lcm_grep" in answer.text}


def test_a_hostile_page_cannot_reach_it(store: Store) -> None:
    assert asyncio.run(attacks_that_work(Retrieval(store=store))) == set()


def test_without_the_check_every_attack_works(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_security(**settings: Any) -> Any:
        return TransportSecuritySettings(enable_dns_rebinding_protection=False)

    monkeypatch.setattr(mcp, "TransportSecuritySettings", no_security)
    assert asyncio.run(attacks_that_work(Retrieval(store=store))) == set(ATTACKS)


def test_a_program_and_a_page_that_was_named_are_answered(store: Store) -> None:
    async def talk() -> None:
        async with browser(Retrieval(store=store), "http://localhost:6274") as client:
            program = await client.post(f"{HERE}/mcp", json=LIST, headers=HEADERS)
            page = await client.post(f"{HERE}/mcp", json=LIST, headers={**HEADERS, "origin": "http://localhost:6274"})
            form = await client.post(f"{HERE}/mcp", content=json.dumps(LIST), headers={"content-type": "text/plain"})
            image = await client.get(f"{HERE}/mcp", headers={"accept": "image/*"})
        assert "lcm_grep" in program.text
        assert "lcm_grep" in page.text
        assert (form.status_code >= 400, image.status_code >= 400) == (True, True)

    asyncio.run(talk())
