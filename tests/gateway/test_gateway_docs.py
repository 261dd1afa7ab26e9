"""The pages about the gateway are true: their commands work as printed, and their routes are those that are served."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from starlette.routing import Route

from leporello.config import Config
from leporello.gateway.app import create_app
from leporello.store import open_store

DOCS = Path(__file__).parents[2] / "docs"
HOW_TO = (DOCS / "how-to" / "gateway.md").read_text(encoding="utf-8")
REFERENCE = (DOCS / "reference" / "gateway.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", HOW_TO, re.DOTALL | re.MULTILINE)


def test_the_curl_commands_work_as_printed(tmp_path: Path) -> None:
    """All of them, in order, against `leporello serve --demo`; only the port is another one."""
    command = [sys.executable, "-m", "leporello", "serve", "--demo", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={"LEPORELLO_HOME": str(tmp_path)}) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[3]
        try:
            said = [_run(block.replace("http://127.0.0.1:8765", address)) for block in blocks("sh")]
        finally:
            process.terminate()
    assert "Hello, gateway!" in said[0]
    assert "event: message_stop" in said[1]
    assert '"session":"room-1","content":"My name is Ada."' in said[2]
    assert '"messages":5' in said[2].splitlines()[-1]
    assert '"content":"Hello!"' in said[3].replace('": ', '":')


def _run(script: str) -> str:
    lines = re.sub(r"^curl -s", "curl -sS --fail -w '\\n'", script, flags=re.MULTILINE)
    done = subprocess.run(["bash", "-ec", lines], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, (script, done.stderr)
    return done.stdout


def test_the_yaml_is_a_configuration(tmp_path: Path) -> None:
    (block,) = blocks("yaml")
    (tmp_path / "config.yaml").write_text(block, encoding="utf-8")
    assert Config.load(tmp_path / "config.yaml").gateway.upstreams.openai.api_key_env == "MY_SERVER_KEY"


def test_every_route_is_in_the_reference() -> None:
    app = create_app(Config.from_mapping({}), open_store(":memory:"))
    served = {route.path for route in app.routes if isinstance(route, Route)}
    named = set(re.findall(r"`(?:GET|POST|DELETE) (/[^`?]*)", REFERENCE))
    assert named == served
