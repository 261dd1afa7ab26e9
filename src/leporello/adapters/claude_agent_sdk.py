"""A gateway in this process for agents of the Claude Agent SDK, whose messages nobody else can change.

    with FoldingGateway(engine="lcm") as folding:
        async for message in query(prompt="Fix the failing tests", options=folding.options(ClaudeAgentOptions())):
            ...
        print(folding.usage(message.session_id).cost_usd)

Every session of the SDK is a conversation of its own, which goes on when the SDK resumes it.
"""

from __future__ import annotations

import os
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self

from claude_agent_sdk import ClaudeAgentOptions  # type: ignore[import-not-found]

from leporello.config import Config
from leporello.errors import LeporelloError
from leporello.gateway.background import BackgroundGateway, in_background
from leporello.gateway.one_user import for_one_user
from leporello.proof.savings import Savings, savings_of
from leporello.store import open_store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leporello.store import Store

_ADDRESS: Final = "ANTHROPIC_BASE_URL"
_NAME: Final = "claude-code:"  # the SDK runs Claude Code, whose sessions the gateway knows by their ids


class FoldingGateway:
    """Folds the requests of the SDK's agents while the block runs.

    engine   the name of the engine; None for that of the configuration
    config   a path, a mapping or a Config; None for config.yaml at home
    store    where conversations are kept; None for the store of the configuration
    recall   whether the model gets the engine's tools, if it has some; their calls are answered unseen by the SDK
    """

    def __init__(
        self,
        engine: str | None = None,
        *,
        config: Config | Mapping[str, Any] | str | os.PathLike[str] | None = None,
        store: str | os.PathLike[str] | None = None,
        recall: bool = True,
    ) -> None:
        given = Config.coerce(config)
        if engine is not None:
            given = given.model_copy(update={"context": given.context.model_copy(update={"engine": engine})})
        addresses = {"anthropic": os.environ[_ADDRESS]} if _ADDRESS in os.environ else {}
        self._config: Config = for_one_user(given, addresses, tools=recall)
        self._address = store
        self._open = ExitStack()
        self._store: Store | None = None
        self._gateway: BackgroundGateway | None = None

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            store = open_store(self._address, home=self._config.home, url=self._config.store.url)
            self._store = opened.enter_context(closing(store))
            self._gateway = opened.enter_context(in_background(self._config, self._store))
            self._open = opened.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()
        self._store = self._gateway = None

    @property
    def store(self) -> Store:
        """The store, to search and to read what was said."""
        if self._store is None:
            raise LeporelloError("the gateway does not run: use `with FoldingGateway(...) as folding:`.")
        return self._store

    def options(self, options: ClaudeAgentOptions | None = None) -> ClaudeAgentOptions:
        """Return options whose agent asks its model through the gateway; the rest is as given."""
        if self._gateway is None:
            raise LeporelloError("the gateway does not run: use `with FoldingGateway(...) as folding:`.")
        given = options or ClaudeAgentOptions()
        return replace(given, env={**given.env, _ADDRESS: self._gateway.address})

    def conversation(self, session_id: str) -> str:
        """Return the name in the store of a session of the SDK."""
        return f"{_NAME}{session_id}"

    def usage(self, session_id: str) -> Savings:
        """Return what a session of the SDK used and cost so far, and what folding and caching saved."""
        info = self.store.info(self.conversation(session_id))
        return Savings() if info is None else savings_of(self.store, info)
