"""How long it takes to recognise a history in a large store: the look-up, the hashing, and the comparison.

Conversations of fifty messages are stored as the gateway does, with the hashes of every request and answer. Then
clients go on with conversations chosen by chance, each in a process that has just opened the store:

- `look-up`: from the hashes of the history to the place in the store, and for one that is not known
- `hashing`: from the messages of a request to its hashes, per message
- `alignment`: following a list of which one message was changed, per message that was sent; beside it the same list
  unchanged

The memory of a gateway on that store stands beside that of one on an empty store.

`--messages` is the size of the store, 1,000,000 in the long form.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx2

from benchmarks.gateway import gateway_settings, started
from leporello.gateway.history import parse
from leporello.gateway.recognition import recognise
from leporello.session import alignment
from leporello.session.factory import open_session
from leporello.store import open_store

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leporello.messages import Message
    from leporello.store import Store

LENGTH = 50
WORDS = [f"word{number}" for number in range(500)]


def talk(number: int) -> list[Message]:
    """Return a conversation that no other one equals."""
    chance = random.Random(number)
    return [
        {
            "role": "user" if place % 2 == 0 else "assistant",
            "content": f"{number} {place} " + " ".join(chance.choices(WORDS, k=10)),
        }
        for place in range(LENGTH)
    ]


def fill(store: Store, conversations: int) -> None:
    """Store conversations with what they are recognised by."""
    for number in range(conversations):
        said = talk(number)
        history = parse(said, dialect="openai")
        known = {
            place: [hash_, history.alone(said[place])] if said[place]["role"] == "assistant" else [hash_]
            for place, hash_ in enumerate(history.hashes)
        }
        store.append(f"c{number}", said, known=known)


def look_ups(path: Path, conversations: int, count: int) -> Iterator[tuple[str, float, float]]:
    """Yield kind, seconds and seconds of the processor of look-ups, each on a store that was just opened."""
    chance = random.Random(7)
    for _ in range(count):
        number = chance.randrange(conversations)
        for kind, said in (("known", talk(number)), ("unknown", talk(conversations + number))):
            history = parse([*said, {"role": "user", "content": "and on"}], dialect="openai")
            store = open_store(path)
            store.info("c0")  # the file is opened, nothing else is warm
            before, used = time.perf_counter(), time.thread_time()
            found = recognise(store, history, owner="", named=False)
            yield kind, time.perf_counter() - before, time.thread_time() - used
            store.close()
            expected = [f"c{number}"] if kind == "known" else []
            if [place.conversation for place in found.places] != expected:
                raise SystemExit(f"conversation {number} was not recognised rightly: {found}")


def served_with(path: Path, requests: int = 100) -> float:
    """Return how many MB a gateway on a store has once it has served some conversations."""
    with started(["-m", "leporello.testing.model_server"]) as model:
        config = path.with_suffix(".yaml")
        config.write_text(json.dumps(gateway_settings(model.line.split()[3])), encoding="utf-8")
        command = ["-m", "leporello", "serve", "--port", "0", "--config", str(config), "--store", str(path)]
        with started(command, {"LEPORELLO_HOME": str(path.parent)}) as gateway, httpx2.Client(timeout=60) as client:
            address = f"{gateway.line.split()[3]}/v1/chat/completions"
            for number in range(requests):
                body = {"model": "m", "messages": [*talk(number)[:20], {"role": "user", "content": "and on"}]}
                client.post(address, json=body).raise_for_status()
            return gateway.megabytes()


def best(function: Any, times: int = 5) -> float:
    """Return the CPU seconds of the fastest run."""
    runs = []
    for _ in range(times):
        before = time.process_time()
        function()
        runs.append(time.process_time() - before)
    return min(runs)


def aligned() -> tuple[float, float]:
    """Return the seconds per message of following a list with a change, and of one without."""
    said = [message for number in range(8) for message in talk(number)]
    opened = open_session(
        "c", model="m", provider=None, base_url=None, context_length=1_000_000, engine="compressor",
        store=open_store(":memory:"), config={}, system=None, dialect="openai", owner="", platform="benchmark",
        on_event=None, llm=None,
    )  # fmt: skip
    conversation = opened.conversation
    conversation.begin()
    conversation.add(said)
    versions = iter(range(1000))

    def changed() -> None:
        listed = [*said]
        listed[0] = {"role": "user", "content": f"the time is {next(versions)}"}
        alignment.align(conversation, listed)

    changed()
    shown = [entry.message for entry in conversation.window.entries]
    same = best(lambda: alignment.align(conversation, shown))
    return best(changed) / len(said), same / len(said)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--look-ups", type=int, default=200)
    options = parser.parse_args()
    conversations = options.messages // LENGTH
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        store = open_store(path)
        fill(store, conversations)
        store.close()
        seconds: dict[str, list[tuple[float, float]]] = {"known": [], "unknown": []}
        for kind, *taken in look_ups(path, conversations, options.look_ups):
            seconds[kind].append((taken[0], taken[1]))
        megabytes = served_with(path), served_with(Path(folder) / "empty.db")
    said = [message for number in range(4) for message in talk(number)]
    print(f"{options.messages:,} messages in {conversations:,} conversations, {options.look_ups} look-ups")
    print("| look-up, ms | median | p95 | processor, median | processor, p95 |\n|---|---|---|---|---|")
    for kind, all_of in seconds.items():
        columns = [(statistics.median(one), statistics.quantiles(one, n=20)[-1]) for one in zip(*all_of, strict=True)]
        print(f"| {kind} | {' | '.join(f'{1000 * value:.3f}' for column in columns for value in column)} |")
    print(f"memory of a gateway on this store: {megabytes[0]:.0f} MB, on an empty one {megabytes[1]:.0f} MB")
    print(f"hashing: {1e6 * best(lambda: parse(said, dialect='openai')) / len(said):.2f} µs per message")
    changed, same = aligned()
    print(f"alignment: {1e6 * changed:.2f} µs per message with a change, {1e6 * same:.2f} µs without")


if __name__ == "__main__":
    main()
