"""Install clients, drive them through the gateway, and write what came of it: `python -m clients [NAME]...`."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
import traceback
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, TypeVar

from clients import agents, results
from clients.client import Client, ClientFailedError, install
from clients.drive import drive
from clients.wrapping import wrap

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")
ROOT = Path(__file__).parents[1] / ".clients"


def every() -> list[Client]:
    """Return all clients."""
    found: list[Client] = []
    for module in iter_modules(agents.__path__):
        found += import_module(f"clients.agents.{module.name}").CLIENTS
    return found


def main() -> int:
    """Run the clients that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m clients", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="a part of the name of a client; all by default")
    parser.add_argument("--keep", type=Path, help="keep what came of each session in this folder")
    parser.add_argument("--no-wrap", action="store_true", help="do not run agents behind `leporello wrap`")
    options = parser.parse_args()
    names = [name.lower() for name in options.names]
    chosen = [one for one in every() if not names or any(name in one.name.lower() for name in names)]
    clients: dict[str, dict[str, Any]] = {}
    wrapped: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        root = options.keep or Path(temporary)
        for client in chosen:
            found, version, error, seconds = _tried(client, drive, root / "sessions")
            clients[client.name] = results.record(client, version, found, error, seconds)
            _tell(client.name, clients[client.name])
            results.write(clients, wrapped)
            if client.is_wrapped and not options.no_wrap:
                behind, version, error, _ = _tried(client, wrap, root / "wrapped")
                wrapped[client.name] = results.record_wrapped(version, behind, error)
                _tell(f"{client.name} behind wrap", wrapped[client.name])
    results.write(clients, wrapped)
    return int(any(one["problems"] for one in (*clients.values(), *wrapped.values())))


def _tried(client: Client, run: Callable[[Client, Path, Path], T], root: Path) -> tuple[T | None, str, str, float]:
    """Run a client in an empty folder; returns what came of it, its version, why it failed, and how long it took."""
    folder = root / client.name.replace(" ", "-").replace("`", "").replace("/", "")
    shutil.rmtree(folder, ignore_errors=True)
    begun, version = time.monotonic(), ""
    try:
        installed = install(client, ROOT)
        version = client.version(installed)
        return run(client, installed, folder), version, "", time.monotonic() - begun
    except ClientFailedError as error:
        print(error)
        return None, version, str(error), time.monotonic() - begun
    except Exception as error:  # noqa: BLE001 - one client that fails must not keep the others from their run
        traceback.print_exc()
        return None, version, f"{type(error).__name__}: {error}", time.monotonic() - begun


def _tell(name: str, told: dict[str, Any]) -> None:
    """Print one line, and one for each problem."""
    figures = ", ".join(f"{key} {told[key]}" for key in ("requests", "verbatim", "folds") if key in told)
    print(f"{name} {told['version']}: {'ok' if not told['problems'] else 'WRONG'} ({figures})", flush=True)
    for problem in told["problems"]:
        print(f"  {problem}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
