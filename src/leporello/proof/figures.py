"""The figures of a replay: every engine over all conversations, as numbers and as the JSON that is documented."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from leporello.caching import rules_of
from leporello.events import FOLDED
from leporello.prices import price_of
from leporello.proof.bootstrap import Share, share
from leporello.proof.exact_values import KINDS
from leporello.proof.needed import Kept

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from leporello.proof.needed import Score
    from leporello.proof.replay import Run

_PRICES = ("input", "cache_read", "cache_write_5m", "cache_write_1h", "output", "long_above")


@dataclass(kw_only=True)
class Figures:
    """The runs of a replay, by engine, in the order in which the engines were named.

    A run that is not of the longest conversation is kept without its points, which would fill the memory.
    """

    model: str
    window: int
    cuts: str
    provider: str = ""
    runs: dict[str, list[Run]] = field(default_factory=dict)
    skipped: list[str] = field(default_factory=list)
    longest: list[Run] = field(default_factory=list)
    """The runs of the conversation with the most requests, whose windows the report draws."""

    def add(self, runs: Sequence[Run]) -> None:
        """Add what the policies made of one conversation."""
        for run in runs:
            self.runs.setdefault(run.engine, []).append(run)
        shorter = runs
        if _requests(runs) > _requests(self.longest):
            shorter, self.longest = self.longest, [run for run in runs if run.costs.requests]
        for run in shorter:
            run.points.clear()

    @property
    def sessions(self) -> int:
        """How many conversations were replayed."""
        return max((len(runs) for runs in self.runs.values()), default=0)

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON."""
        return {
            "model": self.model,
            "window": self.window,
            "cuts": self.cuts,
            "conversations": self.sessions,
            "skipped": self.skipped,
            "assumed": self._assumed(),
            "engines": {name: engine_figures(runs) for name, runs in self.runs.items()},
            "sessions": self._sessions(),
        }

    def _assumed(self) -> dict[str, Any]:
        """Return what the dollars rest on: prices, the rules of the cache, and whether the cache can grow old."""
        run = next((run for runs in self.runs.values() for run in runs), None)
        price = run.costs.price if run else price_of(self.model, self.provider)
        rules = rules_of(self.model, self.provider)
        listed = {kind: getattr(price, kind) for kind in _PRICES if getattr(price, kind, None) is not None}
        driven = max(self._driven().values(), key=len, default=[])
        return {
            "provider": self.provider,
            "prices": {**listed, "as_of": price.as_of, "source": price.source} if price else None,
            "cache": {
                "provider": rules.label,
                "manner": rules.manner,
                "minimum": rules.minimum,
                "lifetimes": dict(rules.lifetimes),
                "as_of": rules.as_of,
                "source": rules.source,
            },
            "without_times": sum(not run.timed for run in driven),
        }

    def _sessions(self) -> list[dict[str, Any]]:
        """Return every conversation with what each engine made of it."""
        driven = {name: runs for name, runs in self._driven().items() if runs}
        return [
            {
                "name": runs[0].session,
                "messages": runs[0].messages,
                "tokens": runs[0].tokens,
                "engines": {name: _session_figures(run) for name, run in zip(driven, runs, strict=True)},
            }
            for runs in zip(*driven.values(), strict=True)
        ]

    def _driven(self) -> dict[str, list[Run]]:
        """Return the runs in which an engine was driven: not those that look at the summaries of a log."""
        return {name: [run for run in runs if run.costs.requests] for name, runs in self.runs.items()}


def _requests(runs: Iterable[Run]) -> int:
    return max((run.costs.requests for run in runs), default=0)


def _session_figures(run: Run) -> dict[str, Any]:
    dollars = run.costs.usd
    return {
        "cost_usd": None if dollars is None else round(dollars, 6),
        "compactions": sum(fold.status in FOLDED for fold in run.folds),
        "overflows": run.overflows,
        "lost": sum(one.outcome == "lost" for one in run.probes),
    }


def engine_figures(runs: Sequence[Run]) -> dict[str, Any]:
    """Return the figures of one engine."""
    dollars = [run.costs.usd for run in runs]
    prompt = sum(run.costs.prompt for run in runs)
    read = sum(run.costs.cache_read for run in runs)
    folds = [fold for run in runs for fold in run.folds if fold.status in FOLDED]
    return {
        "cost_usd": None if None in dollars else round(sum(filter(None, dollars)), 6),
        "tokens": {
            "prompt": prompt,
            "input": sum(run.costs.input for run in runs),
            "cache_read": read,
            "cache_write": sum(run.costs.cache_write for run in runs),
            "output": sum(run.costs.output for run in runs),
        },
        "dollars": _dollars(runs),
        "arithmetic": _arithmetic(runs),
        "requests": sum(run.costs.requests for run in runs),
        "cache_hit_share": round(read / prompt, 4) if prompt else 0.0,
        "compactions": len(folds),
        "folded_tokens": sum(fold.tokens_before - fold.tokens_after for fold in folds),
        "replaced": sum(fold.status == "fallback" for fold in folds),
        "model_calls": sum(fold.model_calls for fold in folds),
        "longest_pause_ms": round(max((run.longest_pause_ms for run in runs), default=0.0), 1),
        "overflows": sum(run.overflows for run in runs),
        "needed": needed_figures(runs),
        "probes": _probes(runs),
        "reread": _reread(runs),
        "findings": [f"{run.session}: {finding}" for run in runs for finding in run.findings],
    }


def needed_figures(runs: Sequence[Run]) -> dict[str, Any]:
    """Return what the windows held of what was needed, and what the baselines hold in as many tokens."""
    own = _needed([[(cut.tokens, cut.score) for cut in run.cuts] for run in runs])
    names = dict.fromkeys(name for run in runs for cut in run.cuts for name in cut.beside)
    own["beside"] = {name: _needed([[cut.beside[name] for cut in run.cuts] for run in runs]) for name in names}
    return own


def _needed(looked: Sequence[Sequence[tuple[int, Score]]]) -> dict[str, Any]:
    """Return the shares, from the tokens and the score at each cut of each session."""
    sessions = [sum((score.all for _, score in cuts), Kept()) for cuts in looked]
    tokens = [tokens for cuts in looked for tokens, _ in cuts]
    whole = sum(sessions, Kept())
    kinds = {
        kind: {"n": kept.n, "present": _part(kept.present, kept.n), "in_context": _part(kept.in_context, kept.n)}
        for kind in KINDS
        if (kept := sum((score.kinds.get(kind, Kept()) for cuts in looked for _, score in cuts), Kept())).n
    }
    shares = {
        "present": share([(kept.present, kept.n) for kept in sessions]),
        "in_context": share([(kept.in_context, kept.n) for kept in sessions]),
        "together": share([(kept.together, kept.pairs) for kept in sessions]),
    }
    return {
        "cuts": len(tokens),
        "tokens": round(sum(tokens) / len(tokens)) if tokens else 0,
        "n": whole.n,
        "pairs": whole.pairs,
        **{name: _rounded(one.value) for name, one in shares.items()},
        "intervals": {name: _interval(one) for name, one in shares.items()},
        "kinds": kinds,
    }


def _probes(runs: Sequence[Run]) -> dict[str, Any]:
    """Count probes by outcome; `by_cue` and `by_value` are counted apart, among those that are not in the window."""
    probed = [one for run in runs for one in run.probes]
    kinds = dict.fromkeys(one.probe.kind for one in probed)
    return {
        **_outcomes(probed),
        "kinds": {kind: _outcomes([one for one in probed if one.probe.kind == kind]) for kind in kinds},
    }


def _outcomes(probed: Sequence[Any]) -> dict[str, int]:
    asked = [one for one in probed if not one.retained]
    return {
        "n": len(probed),
        "retained": len(probed) - len(asked),
        "asked": len(asked),
        "by_cue": sum(one.by_cue for one in asked),
        "by_value": sum(one.by_value for one in asked),
        "lost": sum(one.outcome == "lost" for one in asked),
    }


def _reread(runs: Sequence[Run]) -> dict[str, Any]:
    """Tell how many files were read again, and which of them the window would have made unnecessary."""
    by_session = [[again for cut in run.cuts for again in cut.rereads if again.taken] for run in runs]
    unnecessary = share([(sum(again.unnecessary for again in found), len(found)) for found in by_session])
    every = [again for run in runs for cut in run.cuts for again in cut.rereads]
    return {
        "files": len(every),
        "used": sum(map(len, by_session)),
        "unnecessary": _rounded(unnecessary.value),
        "interval": _interval(unnecessary),
    }


def _arithmetic(runs: Iterable[Run]) -> list[str]:
    """Write the cost out: tokens of each kind times their price."""
    tokens: Counter[tuple[str, float]] = Counter()
    extra = 0.0
    for run in runs:
        tokens.update(run.costs.tokens)
        extra += run.costs.compactions_usd
    lines = [
        f"{kind}: {count:,} × ${rate:g} / 1M = ${count * rate / 1_000_000:.4f}"
        for (kind, rate), count in sorted(tokens.items())
    ]
    return [*lines, f"compactions: ${extra:.4f}"] if extra else lines


def _dollars(runs: Iterable[Run]) -> dict[str, float]:
    """Return the dollars by what they were paid for."""
    paid: defaultdict[str, float] = defaultdict(float)
    for run in runs:
        for charge in run.costs.charges:
            paid[charge.kind] += charge.dollars
        paid["compactions"] += run.costs.compactions_usd
    return {kind: round(dollars, 6) for kind, dollars in sorted(paid.items()) if dollars}


def _part(some: int, whole: int) -> float:
    return round(some / whole, 4)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def _interval(one: Share) -> list[float] | None:
    return None if one.low is None or one.high is None else [round(one.low, 4), round(one.high, 4)]
