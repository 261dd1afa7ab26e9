"""Hooks of general plugins: functions that a host calls when something happens."""

from __future__ import annotations

import warnings
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from leporello.engine import ForeignCall, call_fitting
from leporello.errors import PluginWarning
from leporello.redact import redact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

EVENTS: Final = frozenset(
    {"on_session_start", "on_session_end", "pre_llm_call", "post_llm_call", "pre_tool_call", "post_tool_call"}
)
"""What the agent tells, as Hermes Agent does: `on_session_end` and both `llm_call` once for each turn of the user."""


@dataclass(frozen=True, kw_only=True)
class Hook:
    """One function of a plugin, for one event."""

    event: str
    function: Callable[..., Any]
    plugin: str


class Hooks:
    """The hooks of all plugins; one that fails is told and left out, and the turn goes on."""

    def __init__(self, hooks: Iterable[Hook] = ()) -> None:
        self._hooks: dict[str, list[Hook]] = defaultdict(list)
        for hook in hooks:
            self._hooks[hook.event].append(hook)

    def __contains__(self, event: str) -> bool:
        return bool(self._hooks.get(event))

    def call(self, event: str, **values: Any) -> list[Any]:
        """Call the hooks of an event with what their signatures take; returns what they return, without None."""
        answers = []
        for hook in list(self._hooks.get(event, ())):
            foreign = ForeignCall()
            try:
                with foreign:
                    answers.append(call_fitting(hook.function, **values))
            except BaseException as error:
                if not foreign.blames(error):
                    raise
                self._hooks[event].remove(hook)
                told = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
                warnings.warn(
                    f"plugin '{hook.plugin}': its hook {event} failed and is not called again: {redact(told)}",
                    PluginWarning,
                    stacklevel=2,
                )
        return [answer for answer in answers if answer is not None]
