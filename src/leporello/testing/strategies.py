"""Hypothesis strategies for conversations, valid and broken.

    from hypothesis import given
    from leporello.testing.strategies import valid_conversations

    @given(valid_conversations(end="user"))
    def test_my_engine(messages): ...

An example is a few numbers that seed `conversations` and `defects`, so it is made fast and shrinks to few turns.
"""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from leporello.messages.types import SYSTEM_ROLES, Message, is_system
from leporello.testing.conversations import End, conversation
from leporello.testing.defects import broken_conversation
from leporello.testing.response_items import ItemList, response_items

_SEEDS = st.integers(min_value=0, max_value=2**32 - 1)


def valid_conversations(
    *,
    min_turns: int = 1,
    max_turns: int = 6,
    end: End = "any",
    system: bool | None = None,
    tools: bool = True,
    images: bool = True,
    thinking: bool = True,
    extras: bool = True,
    payload: int = 12,
    system_inside: bool | None = None,
) -> st.SearchStrategy[list[Message]]:
    """Generate valid conversations; the parameters are those of `conversations.conversation`.

    `system_inside` None leaves it to chance whether system messages stand between the others.
    """
    return st.builds(
        conversation,
        _SEEDS,
        turns=st.integers(min_turns, max_turns),
        end=st.just(end),
        system=st.just(system),
        tools=st.just(tools),
        images=st.just(images),
        thinking=st.just(thinking),
        extras=st.just(extras),
        payload=st.just(payload),
        system_inside=st.booleans() if system_inside is None else st.just(system_inside),
    )


def broken_conversations(*, max_turns: int = 6, max_defects: int = 5) -> st.SearchStrategy[list[Any]]:
    """Generate lists that need repair: conversations with defects, and plain garbage."""
    defective = st.builds(
        broken_conversation, _SEEDS, turns=st.integers(1, max_turns), defects=st.integers(1, max_defects)
    )
    return st.one_of(defective, defective, st.lists(garbage_messages(), max_size=6))


def response_item_lists(*, min_turns: int = 1, max_turns: int = 6, payload: int = 12) -> st.SearchStrategy[ItemList]:
    """Generate valid lists of items of the Responses API; the parameters are those of `response_items`."""
    return st.builds(
        response_items,
        _SEEDS,
        turns=st.integers(min_turns, max_turns),
        payload=st.just(payload),
        end=st.sampled_from(["user", "tool", "trigger"]),
    )


def messages(role: str | None = None, *, extras: bool = True) -> st.SearchStrategy[Message]:
    """Generate single messages, each valid by itself, of one role or of any."""

    def pick(seed: int) -> Message:
        made = conversation(seed, turns=1, end="tool" if role == "tool" else "assistant", system=True, extras=extras)
        wanted = [m for m in made if role in (None, m["role"]) or (is_system(m) and role in SYSTEM_ROLES)]
        chosen = wanted[seed % len(wanted)]
        return {**chosen, "role": role or chosen["role"]}

    return st.builds(pick, _SEEDS)


def json_values() -> st.SearchStrategy[Any]:
    """Generate small JSON values."""
    leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=6
    )


def garbage_messages() -> st.SearchStrategy[Any]:
    """Generate what does not belong in a conversation."""
    values = st.one_of(
        json_values(), st.binary(), st.floats(), st.text(st.characters(codec=None)), st.sets(st.integers())
    )
    keys = st.sampled_from(
        ["role", "content", "tool_calls", "tool_call_id", "name", "thinking_blocks", "refusal", "_x"]
    )
    roles = st.sampled_from(["system", "user", "assistant", "tool"])
    part = st.dictionaries(st.sampled_from(["type", "text", "image_url", "thinking", "source", "data"]), values)
    call = st.dictionaries(st.sampled_from(["id", "type", "function", "name", "arguments"]), values)
    fields = st.one_of(
        st.dictionaries(keys, values),
        st.fixed_dictionaries({"role": roles, "content": st.lists(part | values, max_size=3)}),
        st.fixed_dictionaries({"role": roles, "tool_calls": st.lists(call | values, max_size=3)}),
    )
    return st.one_of(values, fields)
