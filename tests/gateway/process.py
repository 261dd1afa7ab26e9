"""The gateway in a process of its own, which can be killed."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx2
import openai

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from leporello.testing.model_server import ModelServer

WINDOW = 16_000


class Process:
    """`leporello serve` in a process of its own."""

    def __init__(self, folder: Path, upstream: str, settings: dict[str, Any] | None = None, **gateway: Any) -> None:
        self.store = folder / "store.db"
        one = {"base_url": upstream, "api_key_env": "UPSTREAM_KEY"}
        model = {"default": "m", "provider": "openai", "base_url": upstream}
        own = {"windows": {"m": WINDOW}, "model": model, "gateway": {"upstreams": {"openai": one}, **gateway}}
        config = folder / "gateway.yaml"
        config.write_text(json.dumps({**own, **(settings or {})}), encoding="utf-8")  # JSON is YAML
        command = ["serve", "--port", "0", "--config", str(config), "--store", str(self.store)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "leporello", *command],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("leporello gateway on http://127.0.0.1:"), self.process.communicate()[1]
        self.address = line.split()[3]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()
        for pipe in (self.process.stdout, self.process.stderr):
            if pipe is not None:
                pipe.close()

    def ask(self, talk: list[Any], on_chunk: Callable[[], None] | None = None) -> str:
        """Ask through the official client; `on_chunk` is called when the first piece of the answer is there."""
        with openai.OpenAI(base_url=f"{self.address}/v1", api_key="any", max_retries=0, timeout=60) as client:
            if on_chunk is None:
                return str(client.chat.completions.create(model="m", messages=talk).choices[0].message.content)
            text = ""
            for chunk in client.chat.completions.create(model="m", messages=talk, stream=True):
                on_chunk()
                text += chunk.choices[0].delta.content or ""
            return text

    def post(self, talk: list[Any]) -> httpx2.Response:
        """Ask without a client's help."""
        body = {"model": "m", "messages": talk}
        return httpx2.post(f"{self.address}/v1/chat/completions", json=body, timeout=60)

    def room_on_disk(self, most_bytes: int = resource.RLIM_INFINITY) -> None:
        """Let no file of the process grow beyond this."""
        resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (most_bytes, resource.RLIM_INFINITY))


@contextmanager
def served(folder: Path, upstream: ModelServer | str, **options: Any) -> Iterator[Process]:
    process = Process(folder, upstream if isinstance(upstream, str) else upstream.openai_url, **options)
    try:
        yield process
    finally:
        process.close()
