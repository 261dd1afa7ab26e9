"""What is unread and has to be cut, because the model's window cannot hold it, leaves the names that stood in it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from leporello.lcm import verify, view
from leporello.messages import text_of, violations
from leporello.redact import EMPTY
from leporello.summary.payloads import is_shortened, left_out, shorten

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello import LCMEngine
    from leporello.messages import Message

MIDDLE = 900
pytestmark = pytest.mark.slow


def large_file(functions: int = 2 * MIDDLE) -> list[Message]:
    source = "\n".join(
        f"def weigh_berth_{n:04}(rows):\n    return measure(rows, hold_{n:04})" for n in range(functions)
    )
    arguments = json.dumps({"path": "src/harbour/berth.py"})
    call: dict[str, Any] = {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": arguments}}
    return [
        {"role": "user", "content": "Which function weighs the berths?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": source},
    ]


def cut(engine: LCMEngine) -> tuple[Message, Message]:
    """Fold a window whose only result does not fit; return the result as it was and as it is shown."""
    messages = large_file()
    window = engine.compress(messages)
    assert not violations(window, "openai")
    assert verify(engine.store, engine.conversation) == []
    assert engine.last_compaction is not None
    assert engine.last_compaction.unfoldable
    return messages[-1], window[-1]


def test_the_names_stand_where_the_text_is_cut(make_engine: Callable[..., LCMEngine]) -> None:
    whole, shown = cut(make_engine(16_000))
    assert is_shortened(shown, whole)
    marker = text_of(shown)[len(text_of(whole).partition(left_out(shown, whole))[0]) :]
    assert " characters in the store: lcm_expand m3; names in them:\n- src/harbour/berth.py — read: " in marker[:160]
    names = marker.partition(" ...]\n")[0].partition("names in them:")[2]
    assert names.count("_") > 50
    assert set(re.findall(r"[a-z]+_[a-z0-9_]+", names)) <= set(re.findall(r"[a-z]+_[a-z0-9_]+", text_of(whole)))
    assert f"weigh_berth_{MIDDLE:04}" in left_out(shown, whole)
    assert all(name.strip() not in text_of(whole)[:2_000] for name in names.split("read: ")[1].split(",")[:20])


def test_a_window_that_is_cut_again_has_one_list(make_engine: Callable[..., LCMEngine]) -> None:
    whole, shown = cut(make_engine(16_000))
    smaller = shorten(shown, 4_000, where="in the store: lcm_expand m3")
    assert is_shortened(smaller, whole)
    assert text_of(smaller).count("characters in the store") == 1
    assert "names in them" not in text_of(smaller)


def test_planted_a_cut_without_names_is_seen(
    make_engine: Callable[..., LCMEngine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(view, "names_left_out", lambda *_: EMPTY)
    with pytest.raises(AssertionError):
        test_the_names_stand_where_the_text_is_cut(make_engine)
