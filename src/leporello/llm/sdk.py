"""What the clients on the official packages have in common."""

from __future__ import annotations

import json
import logging
import threading
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from leporello.errors import EmptyAnswerError, MalformedAnswerError, ModelError, NetworkError, OutputLimitError
from leporello.llm.client import Completion, visible_text
from leporello.llm.deadline import within
from leporello.llm.errors import classify
from leporello.llm.tls import shared_context

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leporello.engine import Usage
    from leporello.messages.types import Message

_WIRE_FIELDS = ("role", "content", "name", "tool_calls", "tool_call_id")

_log = logging.getLogger("leporello.llm")

_preloaded: set[type[SdkClient]] = set()
_preloading = threading.Lock()
_loading: list[threading.Thread] = []


def wait_for_packages() -> None:
    """Wait until the packages are loaded that are loaded in the background."""
    while _loading:
        _loading.pop().join()


class SdkClient(ABC):
    """A model behind an official package: asked once, in bounded time, with errors in our vocabulary.

    The key is in no `repr`, no error and no chain of errors: the packages' exceptions hold the request with its
    headers, and some servers repeat the key in their answers, so the original is not attached.
    """

    def __init__(
        self, *, model: str, api_key: str, provider: str, base_url: str | None = None, context_length: int = 0
    ) -> None:
        self.model = model
        self.provider = provider
        self.base_url = base_url
        self.context_length = context_length
        self._api_key = api_key
        self.own_prices: Mapping[str, Mapping[str, Any]] = {}
        """The user's own prices, which come before the listed ones."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(model={self.model!r}, provider={self.provider!r}, base_url={self.base_url!r})"

    def complete(self, messages: list[Message], *, max_tokens: int, timeout: float) -> Completion:
        """Ask once; the time limit is for the whole call (see `leporello.llm.deadline`)."""
        problem: ModelError
        try:
            make, sendable = partial(self._client, *self._load()), wire(messages)
            sent = within(timeout, lambda: self._ask(make, sendable, max_tokens))
            return self._read(self._decoded(sent))
        except TimeoutError:
            problem = NetworkError(f"{self.provider} did not answer within {timeout:g} s", provider=self.provider)
        except Exception as error:  # noqa: BLE001 - the protocol promises a ModelError for whatever goes wrong
            problem = classify(error, provider=self.provider, secret=self._api_key)
        raise problem

    def preload(self) -> None:
        """Load the package in the background: it is large, and the first question would wait for it."""
        if type(self) not in _preloaded:
            _preloaded.add(type(self))
            loading = threading.Thread(target=self._preload, name="leporello-preload", daemon=True)
            _loading.append(loading)
            loading.start()

    def _preload(self) -> None:
        """Load the package when no other one is being loaded: they import the same modules."""
        with _preloading:
            try:
                self._load()
            except Exception as error:  # noqa: BLE001 - it is raised again at the first use
                _log.debug("a package could not be loaded in advance: %s", type(error).__name__)

    def _client(self, make: Any, connection: Any) -> Any:
        """Return the package's client: it neither retries nor counts time, that is our business."""
        return make(
            api_key=self._api_key,
            base_url=self.base_url,
            timeout=None,
            max_retries=0,
            http_client=connection(verify=shared_context()),
        )

    @abstractmethod
    def _load(self) -> tuple[Any, Any]:
        """Import the package (which takes longer than some calls) and return its classes: client, and connection."""

    @abstractmethod
    async def _ask(self, make: Any, messages: list[Message], max_tokens: int) -> bytes:
        """Send the request with a client that `make` makes, and return the body of a successful answer."""

    @abstractmethod
    def _read(self, answer: dict[str, Any]) -> Completion:
        """Turn the provider's answer into a completion."""

    def _decoded(self, sent: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(sent)
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise MalformedAnswerError(
                f"{self.provider} answered with something that is no JSON object", provider=self.provider
            )
        if answer.get("error"):
            raise classify(status=200, body=answer, provider=self.provider, secret=self._api_key)
        return answer

    def _completion(self, text: str, usage: Usage, model: Any, finish_reason: str) -> Completion:
        """Return the completion, or raise when nothing is left of it for people to read."""
        text = visible_text(text)
        if text:
            return Completion(text=text, usage=usage, model=str(model or self.model), finish_reason=finish_reason)
        if finish_reason == "length":
            raise OutputLimitError(
                f"{self.provider} used all output tokens before the answer began", provider=self.provider
            )
        raise EmptyAnswerError(f"{self.provider} answered without text", provider=self.provider)


def wire(messages: list[Message]) -> list[Message]:
    """Return the messages with the fields that every server knows, in text that can be encoded."""
    return [cast("Message", _wire_fields(message)) for message in messages]


def _wire_fields(message: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _encodable(message[key]) for key in _WIRE_FIELDS if key in message}


def _encodable(value: Any) -> Any:
    """Replace lone surrogates, which no request can carry."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [_encodable(item) for item in value]
    if isinstance(value, dict):
        return {key: _encodable(item) for key, item in value.items()}
    return value
