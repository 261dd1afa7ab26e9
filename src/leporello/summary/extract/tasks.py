"""The list of tasks that an assistant keeps with a tool: written as a whole, or task by task."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from leporello.summary.artifacts.files import verb_of

if TYPE_CHECKING:
    from leporello.messages.types import ToolCall

_LIST_KEYS: Final = ("todos", "todo", "plan", "tasks", "items")
_TEXT_KEYS: Final = ("content", "step", "subject", "title", "text", "task", "description", "activeForm")
_ID_KEYS: Final = ("taskId", "task_id", "id")
_DONE: Final = frozenset({"completed", "complete", "done", "finished"})
_NOT_BEGUN: Final = frozenset({"pending", "open", "todo", "not started", "not_started"})
_FIRST_STATE, _DELETED = "pending", "deleted"
_NUMBER = re.compile(r"#(\w+)|\bid: (\w+)")


class ListedTask(NamedTuple):
    """A task of a list, and its state in the words of the list."""

    text: str
    state: str

    @property
    def is_done(self) -> bool:
        """Whether nothing is left to do."""
        return self.state.lower() in _DONE

    @property
    def is_begun(self) -> bool:
        """Whether somebody is at it, or it is done."""
        return self.state.lower() not in _NOT_BEGUN


class TaskList:
    """The list as the calls leave it; `tool` is the one that changed it last."""

    def __init__(self) -> None:
        self.tool: str = ""
        self._tasks: dict[str, ListedTask] = {}
        self._created: dict[str, str] = {}
        """The tasks that calls have created, by the id of the call: the result says which number each has."""

    @property
    def tasks(self) -> tuple[ListedTask, ...]:
        """The tasks, in the order of the list."""
        return tuple(self._tasks.values())

    def called(self, call: ToolCall) -> None:
        """Take in a call that may write the list, create a task or change its state."""
        if listed := _listed(call):
            self._tasks, self.tool = {str(number): task for number, task in enumerate(listed)}, call.name
        elif "task" in call.name.lower():
            self._changed(call)

    def _changed(self, call: ToolCall) -> None:
        verb, number = verb_of(call.name), _first(call.arguments, _ID_KEYS)
        if verb == "created" and (text := _first(call.arguments, ("subject", "title"))):
            self._created[call.id], self.tool = text, call.name
        elif verb == "written" and number in self._tasks:
            state = _first(call.arguments, ("status", "state")) or self._tasks[number].state
            self._tasks[number], self.tool = self._tasks[number]._replace(state=state), call.name
            if state == _DELETED:
                del self._tasks[number]

    def answered(self, call_id: str, text: str) -> None:
        """Take in a result: of a call that has created a task it tells the number."""
        created = self._created.pop(call_id, "")
        if created and (number := _NUMBER.search(text)):
            self._tasks[number[1] or number[2]] = ListedTask(created, _FIRST_STATE)


def _listed(call: ToolCall) -> list[ListedTask]:
    """Return the list of tasks that a call writes."""
    listed: list[Any] = next(
        (call.arguments[key] for key in _LIST_KEYS if isinstance(call.arguments.get(key), list)), []
    )
    return [task for item in listed if (task := _task(item)).text]


def _task(item: Any) -> ListedTask:
    if not isinstance(item, dict) or "status" not in item:
        return ListedTask("", "")
    return ListedTask(_first(item, _TEXT_KEYS), " ".join(str(item["status"]).split()))


def _first(values: dict[str, Any], keys: tuple[str, ...]) -> str:
    """Return the first text among these values, on one line, or ""."""
    return next((" ".join(values[key].split()) for key in keys if isinstance(values.get(key), str)), "")
