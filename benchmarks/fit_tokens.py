"""Fit the weights of the token estimate, and write them to `src/leporello/tokens/weights.json`.

The estimate is linear: a weight per pair of byte classes and, beyond ASCII, one per block of 256 characters. The
weights are those that make the squared relative error smallest over many kinds of text, where an undercount weighs
twice; each kind of text counts about the same however much of it there is. The texts are what a machine has anyway
(Python's standard library, headers, scripts, manuals, package descriptions, translations of programs into some forty
languages, logs), a few pages written for this purpose (`fit_texts/`), and generated JSON, tables, numbers, identifiers
and encodings. No conversation of any evaluation set is among them. Another machine has other files, so its weights
differ a little. Needs the extra `tokens`; takes about a minute.
"""

from __future__ import annotations

import argparse
import ast
import base64
import difflib
import gettext
import gzip
import json
import math
import random
import string
import sysconfig
import uuid
from collections import Counter
from dataclasses import dataclass
from operator import mul
from pathlib import Path
from typing import TYPE_CHECKING

import leporello.tokens.text as estimator
from leporello.tokens import exact_counter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

HERE = Path(__file__).parent
TARGET = Path(estimator.__file__).with_name("weights.json")
LANGUAGES = (
    *("ar", "bg", "bn", "ca", "cs", "da", "de", "el", "es", "fa", "fi", "fr", "he", "hi", "hu", "hy", "id", "it", "ja"),
    *("ka", "km", "ko", "my", "nl", "pl", "pt_BR", "ro", "ru", "sr", "sv", "ta", "te", "th", "tr", "uk", "vi"),
    *("zh_CN", "zh_TW"),
)
PER_TOKEN = 64
UNDERCOUNT_WEIGHT = 2.0
WRITTEN_WEIGHT = 2.0  # conversations are what is estimated, and only the written texts are like them
MOST_PER_PAIR = 1.0  # no pair of neighbours starts more than one token
MOST_PER_BLOCK = 3.9  # what a byte of the table can say in units of 1/64
PRIOR_PER_PAIR = 0.25  # for pairs the texts hardly show: a token every four bytes
PRIOR_PER_BLOCK = 1.0  # for characters the texts hardly show: a token each
RIDGE = 1e-3
RIDGE_IN_SCRIPT = 0.1  # holds the many blocks of one script together, which few texts show in full
LARGE_SCRIPTS = (range(0x4E, 0xA0), range(0xAC, 0xD8))  # Han and Hangul, in blocks of 256 characters
SWEEPS = 300
ROUNDS = 4


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A piece of text: how often each pair and each block beyond ASCII occurs in it, and its true number of tokens."""

    kind: str
    features: dict[int, int]
    tokens: int


def from_machine(rng: random.Random) -> dict[str, list[str]]:
    """Cut samples from files that a machine has anyway."""
    library = Path(sysconfig.get_paths()["stdlib"])
    packages = Path(sysconfig.get_paths()["purelib"])
    modules = _read(rng, [*library.glob("*.py"), *library.glob("*/*.py")], 250)
    doc, node = Path("/usr/share/doc"), Path("/usr/lib/node_modules")
    readmes = [*doc.glob("*/README*"), *doc.glob("*/*.gz"), *packages.glob("*.dist-info/METADATA")]
    sources = {
        "python": (modules, 300),
        "docstrings": ([text for module in modules for text in _docstrings(module)], 250),
        "headers": (_read(rng, Path("/usr/include").rglob("*.h"), 200), 150),
        "javascript": (_read(rng, [*node.rglob("*.js"), *Path("/usr/share").rglob("*.js")], 200), 150),
        "markdown": (_read(rng, node.rglob("*.md"), 200), 200),
        "json files": (_read(rng, node.rglob("*.json"), 200), 120),
        "readmes": (_read(rng, readmes, 400), 300),
        "manuals": (_read(rng, Path("/usr/share/man/man1").glob("*.gz"), 300), 120),
        "handbook": (_read(rng, Path("/usr/share/vim").rglob("doc/*.txt"), 60), 120),
        "shell": (_read(rng, Path("/usr/share").rglob("*.sh"), 60), 80),
        "logs": (_read(rng, Path("/var/log").rglob("*.log"), 20), 100),
    }
    sources |= {f"language {name}": (_translations(rng, name), 50) for name in LANGUAGES}
    return {kind: _cut(rng, texts, number) for kind, (texts, number) in sources.items()}


def written(rng: random.Random) -> dict[str, list[str]]:
    """Shuffle the paragraphs that were written for this purpose."""
    samples = {}
    for path in sorted((HERE / "fit_texts").glob("*.txt")):
        paragraphs = path.read_text("utf-8").splitlines()
        sizes = [rng.randint(1, min(4, len(paragraphs))) for _ in range(50)]
        samples[f"written {path.stem}"] = ["\n".join(rng.sample(paragraphs, size)) for size in sizes]
    return samples


def generated(rng: random.Random, words: Sequence[str], code: Sequence[str]) -> dict[str, list[str]]:
    """Make the kinds of text that tools return and files seldom hold."""
    letters = string.ascii_letters + string.digits
    emoji = [
        chr(c) for start, end in ((0x1F300, 0x1F650), (0x1F900, 0x1FA00), (0x2600, 0x2700)) for c in range(start, end)
    ]
    common = "😀😂😊😍😢😡😎🤔🙏👍👋👏💪🎉🎂🎁❤️💔🔥✨⭐🌹🌞🌧️☕🍕🍰🐶🐱🚀✅❌⚠️📌📅💡💰🏠✈️🚗"
    marks = "│├└─┌┐┘┴┬█▒•→✓✗…—“”‘’"

    def word() -> str:
        return rng.choice(words)

    def phrase(most: int) -> str:
        return " ".join(rng.choices(words, k=rng.randint(1, most)))

    def lines(number: int, line: Callable[[], str]) -> str:
        return "\n".join(line() for _ in range(number))

    def log_line() -> str:
        level = rng.choice(["INFO", "WARN", "ERROR", "DEBUG"])
        clock = f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}:{rng.randint(0, 59):02},{rng.randint(0, 999):03}"
        day = f"2026-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
        return f"{day} {clock} [{level}] {word()}.{word()}: {phrase(8)} id={rng.randint(1, 99999)}"

    def number() -> str:
        return str(rng.choice([rng.randint(0, 10 ** rng.randint(1, 9)), round(rng.random() * 100, 3)]))

    def diff() -> str:
        old = rng.choice(code).splitlines()
        new = [line for line in old if rng.random() > 0.1]
        new.insert(rng.randrange(len(new) + 1), f"    {word()} = {word()}({word()})")
        return "\n".join(difflib.unified_diff(old, new, f"a/{word()}.py", f"b/{word()}.py", lineterm=""))

    makers: dict[str, tuple[int, Callable[[], str]]] = {
        "diffs": (80, diff),
        "json": (250, lambda: _json(rng, words)),
        "code in json": (120, lambda: json.dumps({"path": f"/src/{word()}.py", "content": rng.choice(code)})),
        "base64": (60, lambda: base64.b64encode(rng.randbytes(rng.randint(200, 1500))).decode()),
        "hex": (60, lambda: rng.randbytes(rng.randint(100, 800)).hex()),
        "uuids": (40, lambda: lines(20, lambda: str(uuid.UUID(int=rng.getrandbits(128))))),
        "hashes": (40, lambda: lines(20, lambda: f"{rng.randbytes(20).hex()}  {word()}")),
        "keys": (
            50,
            lambda: lines(20, lambda: rng.choice(["call_", "toolu_", "sk-"]) + "".join(rng.choices(letters, k=24))),
        ),
        "digits": (40, lambda: "".join(rng.choices(string.digits, k=rng.randint(200, 2000)))),
        "numbers": (80, lambda: rng.choice([", ", " ", "\n", "\t"]).join(number() for _ in range(200))),
        "tables": (60, lambda: lines(40, lambda: f"{word():<20}{rng.randint(0, 99999):>10}  {word():>16}")),
        "rules": (40, lambda: lines(12, lambda: rng.choice("-=*#~_") * rng.randint(20, 90) + "\n" + phrase(8))),
        "indented": (50, lambda: lines(50, lambda: " " * (4 * rng.randint(0, 10)) + phrase(6))),
        "spaces": (40, lambda: lines(20, lambda: " " * rng.randint(2, 200) + rng.choice(["x", "", word()]))),
        "capitals": (40, lambda: lines(10, lambda: phrase(15).upper())),
        "emoji": (
            60,
            lambda: lines(10, lambda: "".join(rng.choices(rng.choice([emoji, common]), k=6)) + " " + phrase(4)),
        ),
        "drawings": (40, lambda: lines(20, lambda: "".join(rng.choices(marks, k=rng.randint(5, 40))) + " " + word())),
        "log lines": (80, lambda: lines(25, log_line)),
    }
    return {kind: [make() for _ in range(times)] for kind, (times, make) in makers.items()}


def measured(texts: dict[str, list[str]], count: Callable[[str], int]) -> list[Sample]:
    """Turn texts into samples."""
    return [
        Sample(kind=kind, features=_features(text), tokens=count(text))
        for kind, group in texts.items()
        for text in group
        if text
    ]


def fit(samples: Sequence[Sample]) -> list[float]:
    """Return the weights: first one per script for the large ones, then one per block, held close to its script's."""
    prior = [PRIOR_PER_PAIR] * 256 + [0.0] + [PRIOR_PER_BLOCK] * 255  # no weight for the block of ASCII itself
    tied = _rounds([_with_scripts_tied(sample) for sample in samples], prior)
    return _rounds(samples, [tied[_script(feature)] for feature in range(512)])


def _rounds(samples: Sequence[Sample], prior: Sequence[float]) -> list[float]:
    """Return the weights of the smallest relative error; undercounts weigh more in every further round."""
    sizes = Counter(sample.kind for sample in samples)
    importance = [_importance(sample.kind, sizes[sample.kind]) for sample in samples]
    weights = list(prior)
    for _ in range(ROUNDS):
        under = [UNDERCOUNT_WEIGHT if _estimate(sample, weights) < sample.tokens else 1.0 for sample in samples]
        weights = _descend(samples, [a * b for a, b in zip(importance, under, strict=True)], weights, prior)
    return weights


def _importance(kind: str, size: int) -> float:
    return (WRITTEN_WEIGHT if kind.startswith("written ") else 1.0) / math.sqrt(size)


def _with_scripts_tied(sample: Sample) -> Sample:
    tied: Counter[int] = Counter()
    for feature, times in sample.features.items():
        tied[_script(feature)] += times
    return Sample(kind=sample.kind, features=dict(tied), tokens=sample.tokens)


def _script(feature: int) -> int:
    """Return the first block of the script that a block belongs to; blocks of small scripts stand for themselves."""
    return next((256 + blocks[0] for blocks in LARGE_SCRIPTS if feature - 256 in blocks), feature)


def _descend(
    samples: Sequence[Sample], importance: Sequence[float], start: Sequence[float], prior: Sequence[float]
) -> list[float]:
    """Minimise by coordinates, each inside its bounds, on the normal equations."""
    number = len(start)
    scale = len(samples) / sum(importance)
    gram = [[0.0] * number for _ in range(number)]
    goal = [0.0] * number
    for sample, weight in zip(samples, importance, strict=True):
        row = [(feature, times / sample.tokens) for feature, times in sample.features.items()]
        for feature, value in row:
            weighted, line = value * weight * scale, gram[feature]
            goal[feature] += weighted
            for other, second in row:
                line[other] += weighted * second
    used = [feature for feature in range(number) if gram[feature][feature]]
    weights = list(start)
    for feature in used:
        ridge = RIDGE_IN_SCRIPT if any(feature - 256 in blocks for blocks in LARGE_SCRIPTS) else RIDGE
        gram[feature][feature] += ridge
        goal[feature] += ridge * prior[feature]
    for _ in range(SWEEPS):
        for feature in used:
            line = gram[feature]
            rest = sum(map(mul, line, weights)) - line[feature] * weights[feature]
            most = MOST_PER_PAIR if feature < 256 else MOST_PER_BLOCK
            weights[feature] = min(most, max(0.0, (goal[feature] - rest) / line[feature]))
    return weights


def _estimate(sample: Sample, weights: Sequence[float]) -> float:
    return sum(times * weights[feature] for feature, times in sample.features.items())


def _features(text: str) -> dict[int, int]:
    """Count the pairs (0 to 255) and the blocks beyond ASCII (256 and their number)."""
    blocks = Counter(256 + block for block in estimator.blocks(text) if block)
    return dict(Counter(estimator.pair_codes(text.encode("utf-8", "surrogatepass"))) | blocks)


def _read(rng: random.Random, paths: Iterable[Path], most: int) -> list[str]:
    """Read some of the files, packed or not; what is no UTF-8 text is left out."""
    found = sorted(paths)
    texts = []
    for path in rng.sample(found, min(most, len(found))):
        try:
            data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
            texts.append(data.decode())
        except (OSError, EOFError, UnicodeDecodeError):
            continue
    return texts


def _cut(rng: random.Random, texts: Sequence[str], number: int) -> list[str]:
    long = [text for text in texts if len(text) > 300]
    pieces = []
    for _ in range(number if long else 0):
        text, length = rng.choice(long), rng.randint(300, 2500)
        start = rng.randrange(max(1, len(text) - length))
        pieces.append(text[start : start + length])
    return pieces


def _docstrings(module: str) -> list[str]:
    try:
        tree = ast.parse(module)
    except (SyntaxError, ValueError):
        return []
    nodes = [node for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Module))]
    return [text for node in nodes if (text := ast.get_docstring(node))]


def _translations(rng: random.Random, language: str) -> list[str]:
    """Return what programs say in a language, one text per program."""
    texts = []
    for path in sorted(Path("/usr/share/locale").glob(f"{language}/LC_MESSAGES/*.mo")):
        try:
            with path.open("rb") as file:
                catalog = gettext.GNUTranslations(file)._catalog  # type: ignore[attr-defined] # noqa: SLF001 - the only way to list it
        except (OSError, UnicodeDecodeError):
            continue
        said = [text for key, text in catalog.items() if key and isinstance(text, str) and text != key]
        rng.shuffle(said)
        texts.append("\n".join(said))
    return [text for text in texts if len(text) > 2000]


def _json(rng: random.Random, words: Sequence[str]) -> str:
    styles: list[dict[str, object]] = [{}, {"indent": 2}, {"indent": 4}, {"separators": (",", ":")}]
    value = {rng.choice(words).lower(): _value(rng, words, 0) for _ in range(rng.randint(4, 12))}
    return json.dumps(value, **rng.choice(styles))  # type: ignore[arg-type]


def _value(rng: random.Random, words: Sequence[str], depth: int) -> object:
    makers: list[Callable[[], object]] = [
        lambda: " ".join(rng.choices(words, k=rng.randint(1, 12))),
        lambda: " ".join(rng.choices(words, k=rng.randint(1, 4))),
        lambda: rng.randint(0, 10 ** rng.randint(1, 12)),
        lambda: round(rng.random() * 1000, rng.randint(0, 6)),
        lambda: rng.choice([True, False, None]),
        lambda: str(uuid.UUID(int=rng.getrandbits(128))),
        lambda: (
            f"20{rng.randint(10, 26)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}T{rng.randint(0, 23):02}:15:00Z"
        ),
        lambda: "_".join(rng.choices(words, k=3)).lower(),
        lambda: "/" + "/".join(rng.choices(words, k=4)).lower() + ".py",
    ]
    if depth < 3:
        makers += [
            lambda: [_value(rng, words, depth + 1) for _ in range(rng.randint(0, 5))],
            lambda: {rng.choice(words).lower(): _value(rng, words, depth + 1) for _ in range(rng.randint(1, 6))},
        ]
    return rng.choice(makers)()


def main(argv: list[str] | None = None) -> int:
    """Fit, report the error per kind of text, and write the weights."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--out", type=Path, default=TARGET, help="where to write the weights")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(argv)
    count = exact_counter()
    if count is None:
        print("fitting needs the exact counter: pip install 'leporello[tokens]'")
        return 2
    rng = random.Random(options.seed)
    machine = from_machine(rng)
    words = [word for text in machine["docstrings"] for word in text.split() if word.isalpha()]
    texts = machine | written(rng) | generated(rng, words, machine["python"])
    samples = measured(texts, count)
    weights = [round(weight * PER_TOKEN) for weight in fit(samples)]
    kinds = dict(sorted(Counter(sample.kind for sample in samples).items()))
    fitted = {
        "made_by": "benchmarks/fit_tokens.py",
        "samples": kinds,
        "per_token": PER_TOKEN,
        "pairs": bytes(weights[:256]).hex(),
        "blocks": bytes(weights[256:]).hex(),
    }
    options.out.write_text(json.dumps(fitted, indent=1) + "\n", "utf-8")
    for kind in kinds:
        errors = [_estimate(s, weights) / PER_TOKEN / s.tokens - 1 for s in samples if s.kind == kind]
        mean, worst = sum(errors) / len(errors), f"{min(errors):+7.1%} {max(errors):+7.1%}"
        print(f"{kind:<20}{len(errors):>5}  mean {mean:+7.1%}  worst {worst}")
    print(f"{len(samples)} samples, weights in {options.out}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
