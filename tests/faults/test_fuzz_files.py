"""Files and answers of strangers, mutated without end: an answer or an error that says what is wrong, soon, in bounds.

Each target reads one kind of file, or a provider's answer. To add one, write a function that takes bytes and a folder
to work in, and enter it in TARGETS with some seeds. Mutated bytes count as survived when the target returns or raises a
`LeporelloError`; anything else, more than `SECONDS` of processor time, or more than `MEGABYTES` of additional memory is
a failure, and the bytes are shown.

`LEPORELLO_SOAK=1` runs it for `LEPORELLO_FUZZ_SECONDS`, an hour when that is not set; `LEPORELLO_FUZZ_SEED` repeats a
run.
"""

from __future__ import annotations

import json
import os
import random
import resource
import signal
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest

from leporello import ContextCompressor, Session
from leporello.cli.importing import Whose
from leporello.cli.own_exports import read_in
from leporello.config.load import check_file
from leporello.errors import LeporelloError
from leporello.gateway.answer_reader import read_events, read_whole
from leporello.gateway.sse import Events
from leporello.llm.errors import classify
from leporello.messages import Message, tool_result, violations
from leporello.messages.visible import one_line
from leporello.plugins.manifest import read_manifest
from leporello.store.sqlite import SQLiteStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from leporello.session.answers import ModelAnswer

SOAK: Final = bool(os.environ.get("LEPORELLO_SOAK"))
DURATION: Final = float(os.environ.get("LEPORELLO_FUZZ_SECONDS", "3600")) if SOAK else 15.0
SEED: Final = int(os.environ.get("LEPORELLO_FUZZ_SEED", "0")) or (time.time_ns() if SOAK else 1)
SECONDS: Final = 1.0
MEGABYTES: Final = 256

# targets


def import_file(data: bytes, folder: Path) -> None:
    """Import a file; then everything that reads what it left has to work."""
    file = folder / "import.jsonl"
    file.write_bytes(data)
    added: list[int] = []
    with SQLiteStore() as store:
        try:
            list(read_in(store, file, Whose(name=None, owner=None, keep_owners=True), added.append))
        finally:
            use(store)


def use(store: SQLiteStore) -> None:
    """List, search, export, read in again, check, delete and purge all that is stored."""
    for info in list(store.conversations()):
        json.dumps([info.created, info.updated, info.meta], allow_nan=False)
        lines = list(store.export(info.key, owner=info.owner))
        assert not store.check_chain(info.key, owner=info.owner)
        with SQLiteStore() as other:
            other.import_lines(lines)
    assert not [*store.check_index(), *store.check_file()]
    store.gc(older_than=86_400, dry_run=True)
    for info in list(store.conversations()):
        store.delete(info.key, owner=info.owner)
    assert store.purge().complete
    assert not [*store.conversations(), *store.check_file()]


def manifest(data: bytes, folder: Path) -> None:
    """Read a plugin's manifest."""
    (folder / "plugin.yaml").write_bytes(data)
    read = read_manifest(folder)
    assert all("\n" not in value for value in (read.name, read.description, read.version))


def configuration(data: bytes, folder: Path) -> None:
    """Read a configuration; what is wrong with it is told, with its lines."""
    file = folder / "config.yaml"
    file.write_bytes(data)
    checked = check_file(file)
    assert (checked.config is None) == bool(checked.problems)
    for problem in checked.problems:
        str(problem)


def answer(data: bytes, _folder: Path) -> None:
    """Read a provider's whole answer and record it; or read the same bytes as a refusal."""
    record(read_whole(data))
    refusal = classify(APIError(data.decode(errors="replace")), provider="openai")
    assert "\n" not in one_line(str(refusal))


def stream(data: bytes, _folder: Path) -> None:
    """Read a streamed answer in pieces: every byte is passed on, and what can be read is recorded."""
    events, passed = Events(), b""
    for start in range(0, len(data), 997):
        passed += b"".join(event.raw for event in events.feed(data[start : start + 997]))
    assert passed + events.rest == data
    record(read_events(data))


class APIError(Exception):
    """What a client raises for a refusal."""

    status_code = 400


def record(answered: ModelAnswer | None) -> None:
    """Record an answer in a session, as the gateway does; it must be possible to go on."""
    if answered is None:
        return
    with Session.open("fuzz", engine=ContextCompressor(8_000), store=":memory:", config={}) as session:
        session.add({"role": "user", "content": "Go on."})
        session.request()
        session._conversation.record(answered)
        for call in session.calls:
            session.add(tool_result(call, "done"))
        assert not violations(session.request()["messages"], "openai")
        assert session.usage().messages > 0


# seeds


def numbered(n: int) -> Message:
    return {"role": "user", "content": f"number {n} Grüße 汉字 🎉"}


def exported() -> bytes:
    """Return an export with everything that one can hold."""
    with SQLiteStore() as store:
        store.append(
            "c",
            [
                {"role": "system", "content": "Be kind."},
                {"role": "user", "content": "hello", "timestamp": "2026-01-01T00:00:00Z", "name": "ann"},
                {"role": "assistant", "content": None, "tool_calls": [
                    {"id": "call_1", "type": "function", "function": {"name": "run", "arguments": '{"a": [1, 2.5]}'}}]},
                {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "long " * 600}]},
                *map(numbered, range(6)),
            ],
            owner="me",
        )  # fmt: skip
        store.delete("c", owner="me", first=6, last=7)
        store.ensure("c", owner="me", meta={"title": "t", "gateway": {"count": 1}})
        store.end("c", owner="me")
        return "\n".join(store.export("c", owner="me")).encode()


PLAIN = b'{"role": "user", "content": "Hello"}\n{"role": "assistant", "content": "Hi", "timestamp": 1.5e9}\n'
MANIFEST = (
    b'# a plugin\nname: alpha\nversion: 0.10\ndescription: >\n  two\n  lines\nauthor: &me {name: "x"}\nother: *me\n'
)
CONFIGURATION = b"""model: {default: m, provider: openai}
context:
  engine: compressor   # a comment
compression: {threshold: 0.5, protect_last_n: 20}
auxiliary:
  compression:
    base_url: "http://127.0.0.1:8080/v1"
gateway:
  limits: {concurrency: 4}
  api_keys: {ann: &key "sha256:00", bob: *key}
plugins:
  paths: [a, 'b']
"""

CALL = {"index": 0, "id": "c1", "type": "function", "function": {"name": "run", "arguments": '{"a": 1}'}}
USAGE = {"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
TEXT = {"type": "text", "text": "Yes."}


def json_bytes(*values: Any) -> tuple[bytes, ...]:
    return tuple(json.dumps(value).encode() for value in values)


def chunk(**choice: Any) -> dict[str, Any]:
    return {"id": "a", "model": "m", "choices": [{"index": 0, **choice}]}


def as_stream(*events: dict[str, Any]) -> bytes:
    return b"".join(f"event: {event.get('type', 'x')}\ndata: {json.dumps(event)}\n\n".encode() for event in events)


ANSWERS = json_bytes(
    chunk(message={"role": "assistant", "content": "Yes.", "tool_calls": [CALL]}) | {"usage": USAGE},
    {
        "type": "message",
        "role": "assistant",
        "stop_reason": "tool_use",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            TEXT,
            {"type": "tool_use", "id": "t", "name": "run", "input": {"a": 1}},
        ],
        "usage": {"input_tokens": 3, "cache_read_input_tokens": 4, "output_tokens": 2},
    },
    {"error": {"message": "maximum context length is 8192 tokens, you sent 9000. Try again in 1.5s."}},
)
STREAMS = (
    as_stream(
        chunk(delta={"role": "assistant", "content": "Yes."}),
        chunk(delta={"tool_calls": [CALL]}),
        chunk(delta={}, finish_reason="tool_calls") | {"usage": USAGE},
    )
    + b"data: [DONE]\n\n",
    as_stream(
        {"type": "message_start", "message": {"id": "b", "usage": {"input_tokens": 3}}},
        {"type": "content_block_start", "index": 0, "content_block": TEXT},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": " Really."}},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 2}},
        {"type": "message_stop"},
    ),
)


class Fuzzed(NamedTuple):
    """What is read, and what the mutations begin with."""

    target: Callable[[bytes, Path], object]
    seeds: tuple[bytes, ...]


TARGETS: Final = {
    "an import": Fuzzed(import_file, (exported(), PLAIN, exported() + b"\n" + exported().replace(b'"c"', b'"d"', 1))),
    "a manifest": Fuzzed(manifest, (MANIFEST,)),
    "a configuration": Fuzzed(configuration, (CONFIGURATION,)),
    "an answer": Fuzzed(answer, ANSWERS),
    "a stream": Fuzzed(stream, STREAMS),
}


# mutations

ODD_VALUES: Final = [
    b"null", b"true", b"-1", b"0", b"1e400", b"-1e400", b"NaN", b"Infinity", b"9" * 400, b"9" * 5_000, b"1e308", b'"x"',
    b'""', b"[]", b"{}", b"[[[[]]]]", b'"\\ud800"', b'"\\u0000"', b"2", b"1.5", b"9223372036854775808", b'{"a": NaN}',
    b"[" * 3_000, b'{"a":' * 3_000, b"*me", b"&x [*x]", b"<<: *me", b"!!python/name:os.system", b"!!binary x",
    b"2026-13-45", b"0o777", b"0x" + b"f" * 300, b"1:" * 50, b"? ", b"- ", b"|2-\n", b"%YAML 9.9\n---\n", b"\xff\xfe",
    b"\xef\xbb\xbf", b"\xed\xa0\x80", "\u2028\u202e".encode(), b"\r", b"\t", b"\0", b"'" * 2_001, b'"\\', b"&a " * 300,
]  # fmt: skip


def mutated(data: bytes, choose: random.Random) -> bytes:
    """Return a file that is a little, or very, different."""
    for _ in range(choose.choice([1, 1, 1, 2, 4, 16])):
        data = choose.choice(MUTATIONS)(data, choose)[:200_000]
    return data


def _cut(data: bytes, choose: random.Random) -> bytes:
    start, stop = sorted(choose.randrange(len(data) + 1) for _ in range(2))
    return data[:start] + data[stop:]


def _doubled(data: bytes, choose: random.Random) -> bytes:
    start, stop = sorted(choose.randrange(len(data) + 1) for _ in range(2))
    return data[:stop] + data[start:stop] * choose.choice([1, 2, 50]) + data[stop:]


def _flipped(data: bytes, choose: random.Random) -> bytes:
    if not data:
        return data
    at = choose.randrange(len(data))
    return data[:at] + bytes([data[at] ^ 1 << choose.randrange(8)]) + data[at + 1 :]


def _inserted(data: bytes, choose: random.Random) -> bytes:
    at = choose.randrange(len(data) + 1)
    return data[:at] + choose.choice(ODD_VALUES) + data[at:]


def _value(data: bytes, choose: random.Random) -> bytes:
    """Put something odd in the place of a value, or of a key."""
    places = [at for at, byte in enumerate(data) if byte in b":,{["]
    if not places:
        return _inserted(data, choose)
    at = choose.choice(places) + 1
    stop = next((end for end in range(at, len(data)) if data[end] in b",}]\n"), len(data))
    return data[:at] + b" " + choose.choice(ODD_VALUES) + data[stop:]


def _lines(data: bytes, choose: random.Random) -> bytes:
    lines = data.split(b"\n")
    choose.shuffle(lines)
    return b"\n".join(choose.choice([lines, lines[1:], data.split(b"\n")[::-1]]))


def _aliases(data: bytes, choose: random.Random) -> bytes:
    """Add aliases of aliases."""
    bomb = b"b0: &b0 [x, x, x, x, x, x, x, x, x]\n" + b"".join(
        b"b%d: &b%d [%s]\n" % (n, n, b", ".join([b"*b%d" % (n - 1)] * 9)) for n in range(1, choose.randrange(2, 40))
    )
    return choose.choice([data + b"\n" + bomb, bomb + data, b"name:\n  " + bomb.replace(b"\n", b"\n  ")])


MUTATIONS: Final = [_cut, _doubled, _flipped, _inserted, _value, _value, _value, _lines, _aliases]


# the run


class TooSlowError(BaseException):
    """A file took more processor time than it may."""


def _too_slow(_signal: int, _frame: object) -> None:
    raise TooSlowError


@contextmanager
def bounds() -> Iterator[None]:
    """Bound processor time and memory for the length of a block."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before, handler = resource.getrlimit(resource.RLIMIT_AS), signal.signal(signal.SIGVTALRM, _too_slow)
    resource.setrlimit(resource.RLIMIT_AS, (used + MEGABYTES * 1_000_000, before[1]))
    signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, before)


def problem_of(target: Callable[[bytes, Path], object], data: bytes, folder: Path) -> str:
    """Give a file to a target, and return what went wrong, or ""."""
    try:
        with bounds():
            target(data, folder)
    except LeporelloError as error:
        return "" if str(error) else "an error without a word"
    except TooSlowError:
        return f"more than {SECONDS:g} s"
    except MemoryError:
        return f"more than {MEGABYTES} MB"
    except Exception as error:  # noqa: BLE001 - that it is any other is the finding
        return f"{type(error).__name__}: {error}"
    return ""


def fuzz(target: Callable[[bytes, Path], object], seeds: tuple[bytes, ...], folder: Path) -> Iterator[str]:
    """Mutate files for as long as the run takes; yield what went wrong, with the file."""
    choose = random.Random(SEED)
    corpus, files = list(seeds), 0
    end = time.monotonic() + DURATION / len(TARGETS)
    while time.monotonic() < end:
        data = mutated(choose.choice(corpus), choose)
        problem = problem_of(target, data, folder)
        files += 1
        if problem:
            yield f"{problem} for {data[:3_000]!r}"
        elif len(data) < 20_000 and choose.random() < 0.05:
            corpus = [*corpus[: len(seeds)], *corpus[len(seeds) :][-200:], data]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    print(f"{target.__name__}: {files} files, {peak} MB in all, seed {SEED}")


@pytest.mark.timeout(0 if SOAK else 120)
@pytest.mark.parametrize("name", TARGETS)
def test_no_file_makes_its_reader_stumble(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEPORELLO_HOME", str(tmp_path / "home"))
    target, seeds = TARGETS[name]
    for seed in seeds:
        assert problem_of(target, seed, tmp_path) == ""
    assert next(fuzz(target, seeds, tmp_path), "") == ""


def careless(data: bytes, _folder: Path) -> None:
    """Plant a defect: take a value of a file as it comes."""
    for line in data.splitlines():
        try:
            value: Any = json.loads(line)
        except ValueError:
            continue
        time.gmtime(value.get("created", 0))


@pytest.mark.timeout(120)
def test_the_run_finds_a_careless_reader(tmp_path: Path) -> None:
    assert next(fuzz(careless, (exported(),), tmp_path), "") != ""


def endless(_data: bytes, _folder: Path) -> None:
    """Plant a defect: never end. In bytecode: a loop in C would not let the handler of a signal run."""
    while True:
        pass


@pytest.mark.parametrize(
    ("defect", "problem"),
    [
        (lambda *_: bytearray(MEGABYTES * 2_000_000), "more than 256 MB"),
        (endless, "more than 1 s"),
        (lambda *_: int("x"), "ValueError: invalid literal for int() with base 10: 'x'"),
    ],
    ids=["memory", "time", "a traceback"],
)
def test_what_goes_wrong_is_seen(tmp_path: Path, defect: Callable[[bytes, Path], object], problem: str) -> None:
    assert problem_of(defect, b"", tmp_path) == problem
