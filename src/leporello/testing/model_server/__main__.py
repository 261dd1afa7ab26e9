"""Run a model server in a process of its own, until it is interrupted."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from leporello.testing.model_server.failures import WORDINGS
from leporello.testing.model_server.script import read_script

if TYPE_CHECKING:
    from leporello.testing.model_server.script import Scripted


def main(argv: list[str] | None = None) -> int:
    """Serve what the command line says."""
    options = _options(argv)
    try:
        from leporello.testing.model_server import ModelServer

        script: list[Scripted] = list(read_script(options.script.read_text("utf-8"))) if options.script else []
    except (OSError, ValueError, TypeError) as error:
        sys.stderr.write(f"{options.script}: {error}\n")
        return 2
    except ModuleNotFoundError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    server = ModelServer(
        script,
        port=options.port,
        window=options.window,
        output_limit=options.output_limit,
        wording=options.wording,
        gap=options.gap,
    )
    try:
        with server:
            sys.stdout.write(f"model server on {server.base_url} (OpenAI: {server.openai_url})\n")
            sys.stdout.flush()
            server.wait()
    except OSError as error:
        sys.stderr.write(f"port {options.port}: {error}\n")
        return 2
    except KeyboardInterrupt:
        return 0
    return 0


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m leporello.testing.model_server",
        description="A model provider on loopback: OpenAI's and Anthropic's HTTP, a script, no model.",
        epilog="example: python -m leporello.testing.model_server --port 8080 --window 32000 --script steps.json",
    )
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1 (default: any free one)")
    parser.add_argument("--window", type=int, help="refuse requests of more tokens than this")
    parser.add_argument("--output-limit", type=int, help="refuse requests for longer answers than this")
    parser.add_argument(
        "--wording", default="", choices=["", *WORDINGS], help="whose words an overflow is refused with"
    )
    parser.add_argument(
        "--script", type=Path, help='JSON list, or one JSON value per line: texts, steps or {"fail": …}'
    )
    parser.add_argument(
        "--gap", type=float, default=0.0, help="let up to this many seconds pass before each event of a stream"
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
