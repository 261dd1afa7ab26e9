"""`Session`: a conversation in your own loop; the docstring of the package shows one."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast

from leporello.engine import strict_keywords
from leporello.errors import SessionError, StoreError
from leporello.messages import copied
from leporello.session.accounts import SessionUsage
from leporello.session.answers import read_answer
from leporello.session.arguments import check_error, check_texts, check_window, checked_tools
from leporello.session.conversation import checked
from leporello.session.converters import converter_of
from leporello.session.factory import OpenedSession, open_session, switched
from leporello.session.session_properties import SessionProperties
from leporello.session.streams import Stream
from leporello.store.codec import verbatim

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from types import TracebackType

    from leporello.config import Config
    from leporello.engine import CompactionReport, ContextEngine
    from leporello.events import Sink
    from leporello.llm import LLM
    from leporello.messages import Dialect, Message, ToolCall
    from leporello.plugins import EngineSource
    from leporello.session.conversation import Conversation
    from leporello.store import BranchInfo, Store

T = TypeVar("T")


class Session(SessionProperties):
    """One conversation: its window, its engine, its place in the store. Use it from one thread at a time.

    Whatever engine is behind it: requests are valid and below the window, the newest message of the user stays as it
    is, everything that was said is kept in the store, and the front of the request changes only when it is folded.
    """

    def __init__(self, opened: OpenedSession) -> None:
        super().__init__(opened)
        self._conversation = opened.conversation
        self._converter = converter_of(opened.conversation.dialect)
        self._reading: Stream | None = None
        self._held: list[Message] = []
        self._closed = False

    @classmethod
    @strict_keywords
    def open(
        cls,
        session_id: str | None = None,
        *,
        model: str | None = None,
        provider: str | None = None,
        base_url: str | None = None,
        context_length: int | None = None,
        engine: str | ContextEngine | EngineSource | None = None,
        store: Store | str | os.PathLike[str] | None = None,
        config: Config | Mapping[str, Any] | str | os.PathLike[str] | None = None,
        system: str | None = None,
        dialect: Dialect = "openai",
        owner: str = "",
        platform: str = "library",
        on_event: Sink | None = None,
        llm: LLM | Literal["auto"] | None = "auto",
        api_key: str | None = None,
        api_mode: str | None = None,
        engine_tools: bool = True,
    ) -> Session:
        """Open a conversation: a new one without `session_id`, else the one of that name, folded as it was.

        What is left out comes from config.yaml. `engine` is a name, an engine or an EngineSource; `store` an address
        or a Store; `dialect` "openai", "anthropic" or "responses", the format of requests and answers. `llm` makes the
        summaries: "auto" as configured, None without a model. `api_key` and `api_mode` are told to the engine.
        `engine_tools=False` is for a model that cannot use tools: those of the engine are not offered to it.
        """
        opened = open_session(
            session_id,
            model=model,
            provider=provider,
            base_url=base_url,
            context_length=context_length,
            engine=engine,
            store=store,
            config=config,
            system=system,
            dialect=dialect,
            owner=owner,
            platform=platform,
            on_event=on_event,
            llm=llm,
            api_key=api_key,
            api_mode=api_mode,
            engine_tools=engine_tools,
        )
        return cls._begun(opened)

    def add(self, *messages: Message | Mapping[str, Any]) -> None:
        """Add what the user said, the results of tool calls, or any other message; it is stored at once.

        What is added while a streamed answer still comes waits for the end of it, and stands behind it.
        """
        said = cast("Sequence[Message]", messages) if self._converter is None else self._converter.read(messages)
        conversation = self._open_conversation
        if self._reading is None:
            conversation.add(said)
        else:
            for message in said:
                verbatim(checked(message))  # what can never be stored is refused now
            self._held += copied(said)

    def request(self, tools: Sequence[dict[str, Any]] | None = None) -> dict[str, Any]:
        """Return what to send: `messages`, `tools` if there are any, and `system` in Anthropic's dialect.

        In that of the Responses API it is `input`, with `instructions` and `tools` if there are any.

        The conversation is folded first if its engine says so; the engine's own tools stand behind yours.
        """
        given = () if tools is None else checked_tools(tools)
        if self._reading is not None:
            self._break_off()
        conversation = self._open_conversation
        conversation.request(given)
        return conversation.openai_request() if self._converter is None else self._converter.request(conversation)

    def record(self, response: Any) -> list[ToolCall]:
        """Take the model's answer, an object of its package or a dict, and return the calls that you must answer.

        Calls of the engine's tools are answered already.
        """
        answer = read_answer(response)
        return self._open_conversation.record(answer)

    def stream(self, chunks: Iterable[T]) -> Iterator[T]:
        """Pass the chunks of a streamed answer on unchanged, and record it at the end; then see `calls`.

        An answer that breaks off, or that you stop reading, is recorded as incomplete: its calls are not to be run.
        """
        reading = self._begin_stream()
        complete = False
        try:
            for chunk in chunks:
                reading.take(chunk)
                yield chunk
            complete = True
        finally:
            self.record_stream(reading, complete=complete)

    def recover(self, error: BaseException) -> bool:
        """After an error of the provider: True when the input was too long and is folded now; send `request()` again.

        It folds once for each request; the window is corrected when the error names it.
        """
        from leporello.llm.errors import classify

        check_error(error)
        return self._open_conversation.recover(classify(error, provider=self._conversation.route.provider))

    def compress(self, focus: str | None = None) -> CompactionReport:
        """Fold the conversation now; `focus` says what the summary should keep most of."""
        check_texts(focus=focus)
        return self._open_conversation.compact(focus)

    def switch_model(
        self,
        model: str,
        *,
        provider: str | None = None,
        base_url: str | None = None,
        context_length: int | None = None,
    ) -> None:
        """Go on with another model; the engine computes its budgets again."""
        check_texts(model=model, provider=provider, base_url=base_url)
        check_window(context_length)
        if not model:
            raise SessionError('switch_model needs the name of a model, such as "claude-sonnet-5".')
        route, caching = switched(self._opened, model, provider, base_url, context_length)
        self._open_conversation.switch_model(route)
        self._conversation.caching = caching
        self._emit_notices()

    def undo(self) -> list[Message]:
        """Remove the newest message of the user and all that followed; returns the removed messages."""
        self._break_off()
        return self._open_conversation.undo()

    def fork(self, before: str | None = None, *, head: bool = True) -> Session:
        """Return a session on a new branch that shares everything before the message of this id; all of it for None.

        Nothing is copied, nothing is summarised, and the provider's cached prefix still holds. With `head` the new
        branch is the one that is resumed; pass False for a side question. The fork has to be closed by itself.
        """
        return self._begun(self._open_fork(before, head=head), self.engine)

    def _open_fork(self, before: str | None = None, *, head: bool = True) -> OpenedSession:
        """Make a branch and open it; its engine's session is not started yet."""
        check_texts(before=before)
        self._opened.forkable()
        self._break_off()
        conversation = self._open_conversation
        conversation.persistence.flush(conversation.window)
        if conversation.persistence.waiting:
            raise StoreError("the conversation is not stored at the moment, so it cannot be forked.")
        number = self.store.fork(self.id, before=before, head=head, **conversation.branch.here)
        return self._opened.on_branch(number, parent=conversation.branch.number)

    @classmethod
    def _begun(cls, opened: OpenedSession, parent: ContextEngine | None = None) -> Session:
        """Return a session whose engine is started; `parent` is the engine that it was forked from."""
        session = cls(opened)
        session._begin(opened.system)
        if parent is not None:
            session._conversation.engine.carry_over(session.id, parent)
        return session

    def open_branch(self, number: int) -> Session:
        """Return a session on another branch of the conversation, which is resumed there from now on.

        It has to be closed by itself, as a fork.
        """
        return self._begun(self._on_branch(number))

    def _on_branch(self, number: int) -> OpenedSession:
        """Open another branch; its engine's session is not started yet."""
        self._opened.forkable()
        self._break_off()
        self.store.set_head(self.id, number, owner=self.owner)
        return self._opened.on_branch(number, parent=None)

    def branches(self) -> list[BranchInfo]:
        """List the branches of the conversation in the order in which they were made."""
        return self.store.branches(self.id, owner=self.owner)

    def pin(self, message_id: str, *, pinned: bool = True) -> None:
        """Keep a message verbatim in the window at every fold, or no longer.

        One that is folded comes back with the next fold. Calls of tools and their results cannot be pinned.
        """
        row = self.store.get([message_id], owner=self.owner).get(message_id)
        if row is None or row.conversation != self.id:
            raise SessionError(f"there is no message {message_id!r} in this conversation.")
        if row.role not in ("user", "assistant") or row.message.get("tool_calls"):
            raise SessionError("only what a user or the assistant said can be pinned, not a call or its result.")
        self.store.pin(self.id, message_id, owner=self.owner, pinned=pinned)

    def reset(self, session_id: str | None = None) -> str:
        """End this conversation and begin another with the same engine; returns its name."""
        check_texts(session_id=session_id)
        self._break_off()
        conversation = self._open_conversation
        conversation.end()
        conversation.attempt(conversation.engine.reset)
        self._conversation = self._opened.another(session_id)
        self._converter = converter_of(self._conversation.dialect)
        self._begin(self._opened.system)
        return self.id

    def usage(self) -> SessionUsage:
        """Return where the conversation stands: its size by part, its compactions, its cost."""
        conversation = self._conversation
        self._read_journal()
        size = conversation.size()
        window = conversation.route.context_length
        return SessionUsage(
            session_id=conversation.id,
            engine=conversation.engine.name,
            model=conversation.route.model,
            context_length=window,
            threshold_tokens=int(getattr(self.engine, "threshold_tokens", 0) or 0),
            tokens=size.tokens,
            reported=size.reported,
            percent=round(100 * size.tokens / window, 1) if window else 0.0,
            parts=conversation.parts(size.tokens),
            messages=len(conversation.window),
            compactions=conversation.accounts.conversation.compactions,
            turn=conversation.accounts.turn,
            conversation=conversation.accounts.conversation.spent,
            prefix_moves=conversation.accounts.conversation.prefix_moves,
            caching=self.caching,
            folds_at=conversation.folds_at,
        )

    def close(self) -> None:
        """End the session; opened again under its name, the conversation continues where it was."""
        if self._closed:
            return
        self._break_off()
        self._conversation.end()
        self._read_journal()
        self._closed = True
        unstored, undone = self.unstored, self._conversation.persistence.undone
        failure = self._conversation.persistence.failure
        self._opened.close()
        if unstored or undone:
            what = f"{unstored} message{'' if unstored == 1 else 's'}" if unstored else "an undo"
            why = f": {failure.problem}" if failure else "."
            raise StoreError(
                f"{what} could not be stored before the session was closed{why}",
                place=self.store.url,
                hint="Once the store can be used again, repeat what is missing.",
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self, system: str | None) -> None:
        self._conversation.begin(introduced=self._opened.introduced)
        self._opened.introduced = True
        self._emit_notices()
        if system is not None:
            self._conversation.set_system_prompt(system)

    def _read_journal(self) -> None:
        """Update the accounts from the journal; if the store cannot be used, they stay as they are."""
        if self._closed:
            return
        accounts, owner = self._conversation.accounts, self._conversation.branch.owner
        with suppress(StoreError):
            rows = self.store.journal(self.id, owner=owner, after=accounts.number)
            accounts.catch_up(rows, self._conversation.unwritten_rows())

    def _emit_notices(self) -> None:
        for text in self._opened.notices:
            self._conversation.notice(text)
        self._opened.notices = []

    def record_stream(self, reading: Stream, *, complete: bool) -> None:
        """Record a streamed answer as far as it came, once; for a caller that reads the chunks itself."""
        was_read, held = self._reading is reading, self._held
        if was_read:
            self._reading, self._held = None, []
        try:
            answer = None if reading.recorded else reading.answer(complete=complete)
            reading.recorded = True
            if answer is not None:
                self._open_conversation.record(answer)
        finally:
            if was_read and held:
                self._open_conversation.add(held)

    def _begin_stream(self) -> Stream:
        self._break_off()
        self._reading = Stream()
        return self._reading

    def _break_off(self) -> None:
        """Record a streamed answer that is no longer read, before something else takes its place."""
        if self._reading is not None:
            self.record_stream(self._reading, complete=False)

    @property
    def _open_conversation(self) -> Conversation:
        """The conversation, as long as the session is open."""
        if self._closed:
            raise SessionError(f"the session {self.id!r} is closed: open it again with Session.open({self.id!r}).")
        return self._conversation
