"""`leporello replay`: drive context policies through transcripts and see what each costs, keeps and loses."""

from __future__ import annotations

import os
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

import click

from leporello.cli.chat.warned import warnings_to
from leporello.cli.format import print_json
from leporello.config import Config
from leporello.errors import PluginWarning, TranscriptError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from rich.table import Table

    from leporello.proof import Figures, ReplaySettings
    from leporello.proof.replay import Run
    from leporello.transcripts import Skipped, Transcript

_ENGINES = "none,window,mask,compressor,lcm"
_WINDOW = 200_000
_WIDTH = 110


@click.command(name="replay")
@click.argument("files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path))
@click.option(
    "--engines",
    default=_ENGINES,
    show_default=True,
    help="Policies, separated by commas: none (no management), window (newest messages), mask (old tool outputs "
    "cleared), recorded (the summaries of the log itself), compressor, lcm, or any engine plugin.",
)
@click.option(
    "--model", default="claude-sonnet-5", show_default=True, help="The model whose prices and cache rules are used."
)
@click.option("--provider", default="", help="Who serves the model; default: its maker.")
@click.option("--window", type=click.IntRange(min=2_048), help="The context length; default: the model's own.")
@click.option("--join", type=click.IntRange(min=1), metavar="N", help="Join conversations until each has N tokens.")
@click.option(
    "--cuts",
    type=click.Choice(["growth", "recorded"]),
    default="growth",
    show_default=True,
    help="Where windows are looked at: as the history grows, or where the log records a compaction (then engines fold "
    "there and nowhere else).",
)
@click.option(
    "--beside", default="mask", show_default=True, help="Baselines to compare each window with, in as many tokens."
)
@click.option("--probes/--no-probes", default=True, show_default=True, help="At the end, test what can still be found.")
@click.option("--jobs", type=click.IntRange(min=1), default=os.cpu_count() or 1, help="Processes; default: all cores.")
@click.option("--report", type=click.Path(path_type=Path), help="Write a page with plots to this file.")
@click.option("--gate", metavar="CONDITIONS", help='Exit with 1 unless they hold: "lost=0,cost<=1.1*mask".')
@click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
def command(
    files: tuple[Path, ...],
    engines: str,
    model: str,
    provider: str,
    window: int | None,
    join: int | None,
    cuts: str,
    beside: str,
    probes: bool,
    jobs: int,
    report: Path | None,
    gate: str | None,
    as_json: bool,
) -> None:
    """Drive context policies through transcripts, turn by turn, and see what each costs, keeps and loses.

    Reads OpenAI's and Anthropic's messages, logs of Claude Code and Codex, exports of ChatGPT, trajectories of
    SWE-agent and exports of leporello; FILE may be a folder. No model is called and no key is needed: the answers are
    those of the transcript, and the provider's cache is simulated by its rules.

    \b
    Examples:
      leporello replay session.jsonl --engines mask,lcm --report replay.html
      leporello replay logs/ --join 200000 --gate "lost=0,cost<=1.1*mask"
    """  # noqa: D301 - click wants the character, not the two letters
    from leporello.proof import replay_all
    from leporello.proof.gate import parse
    from leporello.transcripts import read_transcripts

    names = _checked_engines(engines)
    conditions = [] if gate is None else parse(gate, names)
    if "recorded" in names and cuts != "recorded":
        raise click.BadParameter("recorded summaries are seen with --cuts recorded only.", param_hint="--engines")
    if report and not report.parent.is_dir():
        raise click.BadParameter(f"there is no folder {report.parent}.", param_hint="--report")
    settings = replace(_settings(model, provider, window, cuts, beside), probes=probes)
    skipped: list[Skipped] = []
    transcripts = (one for file in files for one in read_transcripts(file, on_skip=skipped.append))
    with _Progress() as progress, warnings.catch_warnings():
        warnings.simplefilter("ignore", PluginWarning)  # told when the engines were checked
        figures = replay_all(_chosen(transcripts, join), names, settings, jobs=jobs, on_done=progress.done)
    figures.skipped = [str(one) for one in skipped]
    if not figures.sessions:
        lacks = "that records a compaction" if cuts == "recorded" else "to replay"
        raise TranscriptError(f"there is no conversation {lacks}.", file=", ".join(map(str, files)))
    told = figures.as_dict()
    if report:
        _write_report(figures, report)
    if as_json:
        print_json(told)
    else:
        _print(told, figures.runs)
    failures = [failure for condition in conditions for failure in condition.failures(told["engines"])]
    for failure in failures:
        click.echo(f"leporello: gate failed: {failure}", err=True)
    sys.exit(1 if failures else 0)


def _checked_engines(text: str) -> list[str]:
    """Return the names, each once; an engine that cannot be had is an error now, not after the first conversation."""
    from leporello.plugins import EngineSource
    from leporello.proof.baselines import ENGINES
    from leporello.proof.replay import RECORDED

    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if not names:
        raise click.BadParameter("name at least one policy.", param_hint="--engines")
    with (
        TemporaryDirectory(prefix="leporello-replay-", ignore_cleanup_errors=True) as home,
        warnings_to(lambda text: click.echo(f"leporello: {text}", err=True)),
    ):
        config = Config.load().with_home(Path(home))
        for name in names:
            if name not in ENGINES and name != RECORDED:
                EngineSource(config, name=name, llm=None, context_length=_WINDOW).make().close()
    return names


def _settings(model: str, provider: str, window: int | None, cuts: Any, beside: str) -> ReplaySettings:
    from leporello.proof import ReplaySettings
    from leporello.proof.baselines import AT_EQUAL_TOKENS
    from leporello.tokens import window_of

    held = tuple(name.strip() for name in beside.split(",") if name.strip())
    if unknown := set(held) - AT_EQUAL_TOKENS.keys():
        known = ", ".join(AT_EQUAL_TOKENS)
        raise click.BadParameter(f"{', '.join(sorted(unknown))}: there are {known}.", param_hint="--beside")
    length = window or window_of(model, provider) or _WINDOW
    return ReplaySettings(model=model, provider=provider, window=length, cuts=cuts, beside=held, config=Config.load())


def _chosen(transcripts: Iterable[Transcript], join: int | None) -> Iterator[Transcript]:
    """Return the conversations in which anything is answered, strung together if that is asked for."""
    from leporello.messages import role_of
    from leporello.proof import joined

    answered = (one for one in transcripts if any(role_of(message) == "assistant" for message in one.messages))
    yield from joined(answered, join) if join else answered


class _Progress:
    """A bar that shows how many conversations are done, on a terminal."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (
                TextColumn("{task.description}"),
                BarColumn(),
                TextColumn("{task.completed}"),
                TimeElapsedColumn(),
            )
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._task = self._bar.add_task("replaying", total=None)
            self._bar.start()
        return self

    def done(self, transcript: Transcript) -> None:
        """Take note of a conversation that is done."""
        if self._bar:
            self._bar.update(self._task, advance=1, description=f"replayed {transcript.name[:40]}")

    def __exit__(self, *error: object) -> None:
        if self._bar:
            self._bar.stop()


def _write_report(figures: Figures, path: Path) -> None:
    from leporello.proof.report import page

    try:
        path.write_text(page(figures), "utf-8")
    except OSError as error:
        raise click.FileError(str(path), error.strerror) from error
    click.echo(f"wrote {path}", err=True)


def _print(told: dict[str, Any], runs: dict[str, list[Run]]) -> None:
    from rich.console import Console

    from leporello.proof.baselines import ENGINES

    many = "s" * (told["conversations"] != 1)
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    costs = _table(
        f"{told['conversations']} conversation{many}, {told['model']}, window {told['window']:,}",
        ("engine", "cost", "cached", "folds", "pause", "lost"),
    )
    values = max(one["needed"]["n"] for one in told["engines"].values())
    needed = _table(
        f"needed later: {values:,} exact values",
        ("engine", "tokens", "present", "context", "together", "reread"),
    )
    for name, figures in told["engines"].items():
        costs.add_row(name, *_cells(figures), _lost(figures["probes"]))
        needed.add_row(name, *_needed(figures["needed"]), _reread(figures["reread"]))
        for baseline, beside in figures["needed"]["beside"].items():
            needed.add_row(f"  {baseline} beside", *_needed(beside), "", style="dim")
    console.print(costs)
    if not told["assumed"]["prices"]:
        click.echo(f"The price of {told['model']} is not known; --provider says who serves it.")
    if any(one["needed"]["cuts"] for one in told["engines"].values()):
        console.print(needed)
    else:
        why = "no log records a compaction" if told["cuts"] == "recorded" else "no history fills half of it"
        console.print(f"Needed later: no window was looked at, because {why}.")
    for name, figures in told["engines"].items():
        if figures["overflows"]:
            over = f"{name}: {figures['overflows']:,} of {figures['requests']:,} requests do not fit the window"
            click.echo(f"{over}; a provider would refuse them")
        for finding in _findings(runs[name]) if name not in ENGINES else ():
            click.echo(f"{name}: {finding}")
    for skip in told["skipped"]:
        click.echo(f"leporello: skipped {skip}", err=True)


def _findings(runs: Iterable[Run]) -> Iterator[str]:
    """Yield the first finding of each kind, and how many more of it there are."""
    kinds: dict[str, list[str]] = {}
    for run in runs:
        for finding in run.findings:
            kinds.setdefault(finding.partition(":")[0], []).append(f"{run.session}: {finding}")
    for kind, (first, *more) in kinds.items():
        yield first + (f" (and {len(more)} more findings '{kind}', in --json and --report)" if more else "")


def _table(title: str, columns: Iterable[str]) -> Table:
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for column in columns:
        table.add_column(column, justify="left" if column == "engine" else "right", no_wrap=True)
    return table


def _cells(figures: dict[str, Any]) -> list[str]:
    cost = "?" if figures["cost_usd"] is None else f"${figures['cost_usd']:.2f}"
    share = f"{figures['cache_hit_share']:.1%}" if figures["requests"] else ""
    pause = f"{figures['longest_pause_ms']:,.0f} ms" if figures["requests"] else ""
    return [cost if figures["requests"] else "", share, str(figures["compactions"]), pause]


def _needed(needed: dict[str, Any]) -> list[str]:
    shares = [_share(needed[key], needed["intervals"][key]) for key in ("present", "in_context", "together")]
    return [f"{needed['tokens']:,}" if needed["cuts"] else "", *shares]


def _reread(reread: dict[str, Any]) -> str:
    of = f" of {reread['used']:,}" if reread["used"] else ""
    return _share(reread["unnecessary"], reread["interval"]) + of


def _share(share: float | None, interval: list[float] | None) -> str:
    """Write a share with its interval; one conversation has none."""
    if share is None:
        return ""
    return f"{share:.2f} ({interval[0]:.2f}–{interval[1]:.2f})" if interval else f"{share:.2f}"


def _lost(probes: dict[str, Any]) -> str:
    return f"{probes['lost']}/{probes['n']}" if probes["n"] else ""
