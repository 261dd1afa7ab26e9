"""Replays conversations through several policies, in parallel, and gathers the figures."""

from __future__ import annotations

import logging
import multiprocessing
import signal
import tempfile
import warnings
from collections import deque
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import resource_tracker
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

from leporello.errors import LeporelloError, PluginWarning
from leporello.messages import leading_systems
from leporello.proof.figures import Figures
from leporello.proof.probes import probes_of
from leporello.proof.replay import RECORDED, Policy, ReplaySettings, Run, cuts_of, replay, said
from leporello.tokens import count_message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from leporello.messages import Message
    from leporello.transcripts import RecordedCompaction, Transcript

T = TypeVar("T")

_AHEAD = 2  # conversations that wait for each process


def replay_all(
    transcripts: Iterable[Transcript],
    engines: Sequence[str],
    settings: ReplaySettings,
    *,
    jobs: int = 1,
    policies: Mapping[str, Policy] | None = None,
    on_done: Callable[[Transcript], None] | None = None,
) -> Figures:
    """Drive every engine through every conversation; what is in memory is a few conversations for each process.

    `policies` are engines of your own by name; with them everything runs in this process.
    """
    figures = Figures(model=settings.model, window=settings.window, cuts=settings.cuts, provider=settings.provider)
    for name in engines:
        figures.runs[name] = []
    alone = bool(policies) or jobs <= 1
    work = (
        _alone(transcripts, engines, settings, policies or {})
        if alone
        else _parallel(transcripts, engines, settings, jobs)
    )
    for transcript, runs in work:
        figures.add(runs)
        if on_done:
            on_done(transcript)
    return figures


def replay_one(
    transcript: Transcript, engines: Sequence[str], settings: ReplaySettings, policies: Mapping[str, Policy]
) -> list[Run]:
    """Drive every engine through one conversation; cuts, needed values and probes are worked out once."""
    cuts = cuts_of(transcript, settings)
    probes = probes_of(said(transcript.messages)) if settings.probes else []
    return [
        replay(transcript, name, settings, policy=policies.get(name), cuts=cuts, probes=probes)
        for name in engines
        if name != RECORDED or transcript.compactions
    ]


def joined(transcripts: Iterable[Transcript], tokens: int) -> Iterator[Transcript]:
    """Yield conversations strung together to `tokens` tokens each; the system prompt is that of the first."""
    parts: list[Transcript] = []
    size = 0
    for transcript in transcripts:
        parts.append(transcript)
        size += sum(map(count_message, transcript.messages))
        if size >= tokens:
            yield _join(parts, tokens)
            parts, size = [], 0
    if parts:
        yield _join(parts, tokens)


def _join(parts: Sequence[Transcript], tokens: int) -> Transcript:
    messages: list[Message] = []
    compactions: list[RecordedCompaction] = []
    size = 0
    for number, part in enumerate(parts):
        said_here = part.messages[leading_systems(part.messages) if number else 0 :]
        dropped = len(part.messages) - len(said_here)
        compactions += [replace(one, at=max(0, one.at - dropped) + len(messages)) for one in part.compactions]
        for message in said_here:
            if size >= tokens:
                break
            messages.append(message)
            size += count_message(message)
    first = parts[0]
    name = first.name if len(parts) == 1 else f"{first.name} and {len(parts) - 1} more"
    kept = tuple(one for one in compactions if one.at < len(messages))
    return replace(first, name=name, messages=messages, compactions=kept)


def _alone(
    transcripts: Iterable[Transcript], engines: Sequence[str], settings: ReplaySettings, policies: Mapping[str, Policy]
) -> Iterator[tuple[Transcript, list[Run]]]:
    for transcript in transcripts:
        yield transcript, replay_one(transcript, engines, settings, policies)


def _parallel(
    transcripts: Iterable[Transcript], engines: Sequence[str], settings: ReplaySettings, jobs: int
) -> Iterator[tuple[Transcript, list[Run]]]:
    waiting: deque[tuple[Transcript, Future[list[Run]]]] = deque()
    with processes(jobs) as pool:
        for transcript in transcripts:
            waiting.append((transcript, pool.submit(replay_one, transcript, engines, settings, {})))
            if len(waiting) >= jobs * _AHEAD:
                done, future = waiting.popleft()
                yield done, future.result()
        for done, future in waiting:
            yield done, future.result()


@contextmanager
def processes(jobs: int) -> Iterator[ProcessPoolExecutor]:
    """Yield processes that replay; after an exception they end at once, and in any case they leave no files."""
    others = multiprocessing.active_children()
    with (
        TemporaryDirectory(prefix="leporello-replay-", ignore_cleanup_errors=True) as folder,
        _Pool(jobs, multiprocessing.get_context("spawn"), _begin, (folder,)) as pool,
    ):
        try:
            yield pool
        except BrokenProcessPool as error:
            lost = "a process was killed while it replayed, perhaps because there was no memory left"
            raise LeporelloError(f"{lost}; fewer of them need less: --jobs 1.") from error
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in set(multiprocessing.active_children()) - set(others):
                process.terminate()
                process.join()
            raise


class _Pool(ProcessPoolExecutor):
    """Starts processes with interrupts blocked: one that is still importing would print a traceback of its own."""

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        """Submit work; an interrupt meanwhile comes afterwards."""
        if not hasattr(signal, "pthread_sigmask"):
            return super().submit(fn, *args, **kwargs)
        resource_tracker.ensure_running()  # it unblocks interrupts when it starts
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return super().submit(fn, *args, **kwargs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _begin(folder: str) -> None:
    """Begin a process: interrupts are for the one that waits for it, and temporary files go into its folder.

    What plugins warn of and log, once for each conversation, stays off the screen; folds that fail are findings.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    tempfile.tempdir = folder
    warnings.simplefilter("ignore", PluginWarning)
    logging.getLogger().addHandler(logging.NullHandler())
