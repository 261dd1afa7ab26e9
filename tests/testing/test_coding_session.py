"""What stands beside a value in the generated session stands seldom elsewhere, as in recorded ones of any length."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from leporello.proof.lines import units_of
from leporello.proof.probes import probes_of
from leporello.testing import coding_session as generator
from leporello.testing.coding_session import coding_session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from leporello.messages import Message

TURNS = 200  # a third of a million tokens
IN_ONE, IN_A_FEW, A_FEW = 0.6, 0.85, 3
"""Of the cues of recorded sessions, joined to 700,000 tokens, 64 to 72 % stand in one message, 86 to 90 % in three."""


def messages_with_cue(messages: Sequence[Message]) -> list[int]:
    """Return for each cue of the probes in how many messages all of its words stand."""
    held: dict[str, set[int]] = {}
    for at, message in enumerate(messages):
        for word in re.findall(r"\w+", " ".join(units_of(message)).lower()):
            held.setdefault(word, set()).add(at)
    cues = [re.findall(r"\w+", probe.cue.lower()) for probe in probes_of(messages) if probe.cue]
    return [len(set[int].intersection(*(held.get(word, set()) for word in cue))) for cue in cues]


def is_like_recorded(counts: Sequence[int]) -> bool:
    in_one, in_a_few = (sum(count <= most for count in counts) / len(counts) for most in (1, A_FEW))
    return in_one >= IN_ONE and in_a_few >= IN_A_FEW


@pytest.mark.slow
def test_the_words_around_a_value_stand_in_few_messages() -> None:
    counts = messages_with_cue(coding_session(TURNS))
    assert len(counts) > 40
    assert is_like_recorded(counts)


@pytest.mark.slow
def test_planted_a_generator_with_few_words_repeats_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator, "_PLACES", ("saltreach", "ironhaven"))
    monkeypatch.setattr(generator, "_OFTEN", (1.0, 2.0))
    assert not is_like_recorded(messages_with_cue(coding_session(TURNS)))


def test_a_session_follows_from_its_number() -> None:
    assert coding_session(3, seed=4) == coding_session(3, seed=4)
    assert coding_session(3, seed=4) != coding_session(3, seed=5)
