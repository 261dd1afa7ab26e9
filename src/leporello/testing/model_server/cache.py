"""The model server's prompt cache: the provider's rules, applied to what comes in, told in `usage`."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from leporello.caching.blocks import Block, blocks_of, mark_of
from leporello.caching.markers import count_markers
from leporello.caching.providers import CacheRules, maker_of, rules_of
from leporello.caching.simulate import ProviderCache, refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from leporello.engine import Usage
    from leporello.testing.model_server.answer import ServedUsage
    from leporello.testing.model_server.requests import ReceivedRequest


class PromptCache:
    """A cache for a model server; safe between threads. `clock` gives seconds: with one of your own, time flies.

    Which rules hold follows from the dialect and the model's name, by the tables of `leporello.caching`; an unknown
    model is cached as OpenAI's and Anthropic's older ones are.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._caches = {
            "openai": ProviderCache(_openai_rules, clock),
            "anthropic": ProviderCache(_anthropic_rules, clock),
            "responses": ProviderCache(_openai_rules, clock),
        }
        self._lock = threading.Lock()

    def __call__(self, request: ReceivedRequest, usage: Usage) -> Usage:
        """Return the usage with what this request read from the cache and wrote to it."""
        if _rules(request).manner == "marked" and not _is_marked(request):
            return usage
        row = _row(request)
        with self._lock:
            use = self._caches[request.dialect].request(request.model, blocks=row)
        read = min(use.read, usage["prompt_tokens"])
        written = min(use.written, usage["prompt_tokens"] - read)
        served: ServedUsage = {
            **usage,
            "input_tokens": usage["prompt_tokens"] - read - written,
            "cache_read_tokens": read,
            "cache_write_tokens": written,
            "cache_write_1h_tokens": min(use.write_1h, written),
        }
        return served


def as_counted(request: ReceivedRequest, usage: Usage) -> Usage:
    """Report the usage as it was counted, with no cache in between."""
    return usage


def wrong_marks(request: ReceivedRequest) -> str:
    """Return why a provider refuses the cache marks of a request; "" when it takes them."""
    return refusal(_row(request), _rules(request)) if _is_marked(request) else ""


def _is_marked(request: ReceivedRequest) -> bool:
    return bool(mark_of(request.body) or count_markers(request.messages) or count_markers(request.tools))


def _rules(request: ReceivedRequest) -> CacheRules:
    return (_anthropic_rules if request.dialect == "anthropic" else _openai_rules)(request.model)


def _row(request: ReceivedRequest) -> list[Block]:
    """Return the blocks of a request; a mark on the request itself stands on its last block."""
    row = blocks_of(request.messages, request.tools)
    options = request.body.get("prompt_cache_options")
    if isinstance(options, dict) and options.get("mode") == "explicit":
        row = [replace(block, closes=False) for block in row]
    if row and (mark := mark_of(request.body)) and not row[-1].mark:
        row[-1] = replace(row[-1], mark=mark)
    return row


def _openai_rules(model: str) -> CacheRules:
    return rules_of(model, maker_of(model) or "openai")


def _anthropic_rules(model: str) -> CacheRules:
    return rules_of(model, "anthropic")
