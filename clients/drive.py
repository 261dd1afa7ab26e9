"""One client through its session: the gateway in a process of its own, a relay on each side, and the model server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from clients.checks import Findings, examine
from clients.client import KEY, Client, Place
from clients.recording import relayed
from clients.session import Session
from leporello.store import open_store
from leporello.testing.model_server import ModelServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_STOP_SECONDS = 60.0


def drive(client: Client, installed: Path, folder: Path, seed: int = 1) -> Findings:
    """Drive a client through its session; `folder` is empty and keeps everything that came of it."""
    session = Session(client, seed)
    workspace = folder / "workspace"
    workspace.mkdir(parents=True)
    (folder / "home").mkdir()
    session.write_logs(workspace)
    with (
        ModelServer(then=session, window=client.window, accepts_key=lambda key: key == KEY) as server,
        relayed(server.base_url) as behind,
        _gateway(client, behind.address, folder) as gateway,
        relayed(gateway) as before,
    ):
        behind.gate = None if client.with_engine_tools else before  # with tools an answer comes at once at its end
        place = Place(
            address=before.address, installed=installed, home=folder / "home", workspace=workspace, model=client.model
        )
        said = client.run(place, session.instructions)
    for name, relay in (("client", before), ("provider", behind)):
        told = json.dumps([record.as_dict() for record in relay.records])
        (folder / f"{name}.json").write_text(told, encoding="utf-8")
    with closing(open_store(str(folder / "store.db"))) as store:
        return examine(client, session, before, behind, store, said)


@contextmanager
def _gateway(client: Client, upstream: str, folder: Path) -> Iterator[str]:
    """Run `leporello serve` as a user does, with the client's own key; yields its address."""
    config = folder / "gateway.yaml"
    config.write_text(json.dumps(_settings(client, upstream)), encoding="utf-8")  # JSON is YAML
    command = ["serve", "--port", "0", "--config", str(config), "--store", str(folder / "store.db")]
    names = ("PATH", "LANG", "VIRTUAL_ENV")
    environment = {name: os.environ[name] for name in names if name in os.environ} | {"HOME": str(folder)}
    with (folder / "gateway.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "leporello", *command], env=environment, stdout=subprocess.PIPE, stderr=log
        )
        try:
            assert process.stdout is not None
            line = process.stdout.readline().decode()
            if not line.startswith("leporello gateway on "):
                raise RuntimeError((folder / "gateway.log").read_text(encoding="utf-8")[-2000:])
            yield line.split()[3]
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(_STOP_SECONDS)
            if process.stdout is not None:
                process.stdout.close()


def _settings(client: Client, upstream: str) -> dict[str, Any]:
    upstreams = {
        "openai": {"base_url": f"{upstream}/v1", "pass_client_key": True},
        "anthropic": {"base_url": upstream, "pass_client_key": True},
    }
    own = dict(client.settings)
    gateway = {"upstreams": upstreams, **own.pop("gateway", {})}
    return {"windows": {client.model: client.window}, "gateway": gateway, **own}
