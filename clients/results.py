"""What a run came to, as files: JSON for programs, and the page of the documentation that is made from it."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from clients.checks import Findings
    from clients.client import Client
    from clients.wrapping import Wrapped

PUBLISHED = Path(__file__).parents[1] / "docs" / "clients.json"
_API = {"openai": "Chat", "anthropic": "Messages", "responses": "Responses"}

_PAGE = Path(__file__).parent / "page.md"


def record(client: Client, version: str, found: Findings | None, error: str, seconds: float) -> dict[str, Any]:
    """Return what came of a client, as JSON."""
    about = {"api": _API[client.dialect], "points": client.points, "special": client.special, "turns": client.turns}
    told = {} if found is None else asdict(found)
    told["problems"] = _short([error] if error else told.get("problems", []))
    return {"version": version, "date": _today(), "seconds": round(seconds), **about, **told}


def record_wrapped(version: str, found: Wrapped | None, error: str) -> dict[str, Any]:
    """Return what came of an agent behind `wrap`, as JSON."""
    told = {} if found is None else asdict(found)
    told["problems"] = _short([error] if error else told.get("problems", []))
    return {"version": version, "date": _today(), **told}


def write(clients: dict[str, dict[str, Any]], wrapped: dict[str, dict[str, Any]]) -> None:
    """Write what was run now over what was known before."""
    before = json.loads(PUBLISHED.read_text("utf-8")) if PUBLISHED.exists() else {"clients": {}, "wrapped": {}}
    told = {"clients": {**before["clients"], **clients}, "wrapped": {**before["wrapped"], **wrapped}}
    PUBLISHED.write_text(json.dumps(told, indent=1, ensure_ascii=False, sort_keys=True) + "\n", "utf-8")


def markdown(told: dict[str, Any]) -> str:
    """Return the page."""
    clients = told["clients"]
    special = [f"- **{name}**: {one['special']}" for name, one in clients.items() if one["special"]]
    return (
        _PAGE.read_text("utf-8")
        .rstrip("\n")
        .format(
            turns=max((one["turns"] for one in clients.values()), default=0),
            points=_table(["client", "how"], [[name, one["points"]] for name, one in clients.items()]),
            table=_table(_COLUMNS, [_row(name, one) for name, one in clients.items()]),
            wrapped=_table(
                ["agent", "version", "date", "requests", "told", "counted", "works"],
                [_wrapped_row(name, one) for name, one in told["wrapped"].items()],
            ),
            notes="\n## What to know\n\n" + "\n".join(special) + "\n" if special else "",
        )
    )


_COLUMNS = [
    *("client", "version", "date", "API", "requests", "as sent", "folds", "conversations", "aside", "streams", "fact"),
    "works",
]


def _row(name: str, one: dict[str, Any]) -> list[str]:
    start = [name, one["version"], one["date"], one["api"]]
    if "requests" not in one:
        return [*start, *[""] * 7, _works(one)]
    streams = {True: "yes", False: "no", None: "–"}[one["streamed"]]
    fact = "by tools" if one["recalled"] else "in the window"
    figures = [one["requests"], one["verbatim"], one["folds"], one["conversations"], one["sides"]]
    return [*start, *map(str, figures), streams, fact, _works(one)]


def _wrapped_row(name: str, one: dict[str, Any]) -> list[str]:
    start = [name, one["version"], one["date"]]
    if "requests" not in one:
        return [*start, "", "", "", _works(one)]
    return [*start, str(one["requests"]), f"${one['told_usd']:.4f}", f"${one['counted_usd']:.4f}", _works(one)]


def _works(one: dict[str, Any]) -> str:
    return "yes" if not one["problems"] else "no: " + "; ".join(one["problems"]).replace("|", "\\|")


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _short(problems: list[str]) -> list[str]:
    """Leave out what is told several times, and the length of it."""
    kinds: dict[str, int] = {}
    for problem in problems:
        text = " ".join(problem.partition("the screen:")[0].split())
        said = text.partition(": ")[2] if text.startswith("request ") else text
        kinds[said[:200]] = kinds.get(said[:200], 0) + 1
    return [text if times == 1 else f"{text} ({times} times)" for text, times in kinds.items()]


def _today() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d}"
