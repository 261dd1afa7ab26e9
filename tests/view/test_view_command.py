"""The page as users start it: `leporello view`, and `/view` of a gateway with keys in several processes."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from tests.fixtures.view import parsed
from tests.gateway.process import Process

from leporello.config import Config
from leporello.gateway.background import in_background
from leporello.gateway.keys import Keys, hashed, new_key
from leporello.store import open_store
from leporello.testing.model_server import ModelServer
from leporello.view.access import Access
from leporello.view.app import PageRoutes

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow


def test_view_opens_with_a_link_that_works_once(tmp_path: Path) -> None:
    file = tmp_path / "store.db"
    with closing(open_store(file)) as store:
        store.append("talk", [{"role": "user", "content": "where are the keys of the crane?"}])
    command = [sys.executable, "-m", "leporello", "view", "--no-browser", "--store", str(file)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            found = re.fullmatch(r"leporello: the page is at (http://127\.0\.0\.1:\d+)(/view/enter\?token=\S+)\n", line)
            assert found, line
            with httpx2.Client(base_url=found[1], follow_redirects=True) as client:
                assert "keys of the crane" not in client.get("/view").text
                assert "keys of the crane" in client.get(found[2]).text
                assert "only reads" in client.get("/view/window?c=talk").text
            assert httpx2.get(found[1] + found[2]).status_code == 403
        finally:
            process.terminate()
            assert process.wait(30) in (0, -15)


def test_a_gateway_of_several_processes_has_the_page(tmp_path: Path) -> None:
    keys = {name: new_key() for name in ("ann", "bob")}
    with ModelServer() as upstream:
        given: dict[str, Any] = {"api_keys": {name: hashed(key) for name, key in keys.items()}, "processes": 2}
        with closing(Process(tmp_path, upstream.openai_url, **given)) as gateway:
            for name, key in keys.items():
                body = {"model": "m", "messages": [{"role": "user", "content": f"I am {name}"}]}
                said = httpx2.post(
                    f"{gateway.address}/v1/chat/completions",
                    json=body,
                    headers={"authorization": f"Bearer {key}"},
                    timeout=60,
                )
                assert said.status_code == 200, said.text
            with httpx2.Client(base_url=gateway.address, follow_redirects=True, timeout=60) as client:
                assert "Sign in" in client.get("/view").text
                page = client.post("/view/sign-in", data={"key": keys["ann"]}).text
                assert "I am ann" in page
                assert "I am bob" not in page


def test_a_gateway_in_the_background_has_the_page_for_who_has_the_link(tmp_path: Path) -> None:
    with closing(open_store(tmp_path / "store.db")) as store:
        store.append("talk", [{"role": "user", "content": "where are the keys of the crane?"}])
        access = Access(keys=Keys({}), local=None, tokens=True)
        with (
            in_background(Config.coerce({}), store, PageRoutes(store, access).routes()) as gateway,
            httpx2.Client(base_url=gateway.place, follow_redirects=True) as client,
        ):
            assert "keys of the crane" not in client.get("/view").text
            assert client.get("/v1/sessions").status_code == 404
            assert client.get(f"{gateway.prefix}/v1/sessions").status_code == 404
            assert "keys of the crane" in client.get(f"/view/enter?token={access.new_token()}").text
            assert client.get("/viewer").status_code == 404


def test_a_conversation_that_is_deleted_on_the_page_is_let_go_of(tmp_path: Path) -> None:
    """What was deleted is not sent to a model again; what was not is."""
    with (
        ModelServer() as upstream,
        closing(Process(tmp_path, upstream.openai_url, page_actions=True)) as gateway,
        httpx2.Client(base_url=gateway.address, follow_redirects=True, timeout=60) as client,
    ):

        def heard(name: str, text: str) -> str:
            answer = client.post(f"/v1/sessions/{name}/messages", json={"content": text})
            assert answer.status_code == 200, answer.text
            return json.dumps(upstream.requests[-1].body)

        for name in ("kept", "gone"):
            heard(name, f"the first words of {name}")
        form = parsed(client.get("/view/act?c=gone&what=delete").text)
        csrf = next(values["value"] for tag, values in form.tags if values.get("name") == "csrf")
        assert client.post("/view/act?c=gone", data={"csrf": csrf, "what": "delete"}).status_code == 200
        assert "the first words of kept" in heard("kept", "more")
        assert "the first words of gone" not in heard("gone", "more")
