"""Argument fitting: a host offers everything it has, an engine gets what its signature takes."""

from __future__ import annotations

import gc
import inspect
from typing import TYPE_CHECKING, Any
from weakref import ref

from leporello.engine import call_fitting, fitting

if TYPE_CHECKING:
    import pytest


def compress_of_the_documentation(
    messages: list[Any], current_tokens: int | None = None, focus_topic: str | None = None
) -> None: ...


def compress_of_an_older_host(messages: list[Any], current_tokens: int | None = None) -> None: ...


def compress_that_takes_everything(messages: list[Any], **kwargs: Any) -> None: ...


OFFER = {"current_tokens": 1, "focus_topic": "x", "force": True, "memory_context": ""}


def test_only_named_parameters_are_passed() -> None:
    assert fitting(compress_of_the_documentation, **OFFER) == {"current_tokens": 1, "focus_topic": "x"}
    assert fitting(compress_of_an_older_host, **OFFER) == {"current_tokens": 1}


def test_a_catch_all_gets_everything() -> None:
    assert fitting(compress_that_takes_everything, **OFFER) == OFFER


def test_positional_only_parameters_are_not_named() -> None:
    def positional(messages: list[Any], current_tokens: int, /) -> None: ...

    assert fitting(positional, **OFFER) == {}


def test_a_callable_without_a_readable_signature_gets_nothing() -> None:
    assert fitting(type, **OFFER) == {}


def test_bound_methods_and_classes_fit() -> None:
    class Engine:
        def __init__(self, context_length: int = 0) -> None:
            self.context_length = context_length

    assert call_fitting(Engine, context_length=5, config={}).context_length == 5


def test_a_signature_is_read_once_for_all_engines_of_a_class(monkeypatch: pytest.MonkeyPatch) -> None:
    class Engine:
        def update_model(self, model: str) -> str:
            return model

    class Other:
        def update_model(self, provider: str) -> str:
            return provider

    read: list[Any] = []
    signature = inspect.signature

    def noticed(function: Any) -> inspect.Signature:
        read.append(function)
        return signature(function)

    monkeypatch.setattr(inspect, "signature", noticed)
    offer = {"model": "m", "provider": "p"}
    assert [call_fitting(Engine().update_model, **offer) for _ in range(3)] == ["m"] * 3
    assert call_fitting(Other().update_model, **offer) == "p"
    assert read == [Engine.update_model, Other.update_model]


def test_what_cannot_be_remembered_is_read_again() -> None:
    class Unhashable:
        __hash__ = None  # type: ignore[assignment]

        def __call__(self, force: bool) -> None: ...

    assert fitting(Unhashable(), **OFFER) == {"force": True}


def test_what_was_called_is_not_kept() -> None:
    def handler(force: bool) -> None: ...

    fitting(handler, **OFFER)
    gone = ref(handler)
    del handler
    gc.collect()
    assert gone() is None
