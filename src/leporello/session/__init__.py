"""The host: one conversation in your own loop, with any engine, on any provider.

with Session.open("my-chat", model="claude-sonnet-5") as session:
    session.add({"role": "user", "content": "Fix the failing tests"})
    while not session.done:
        request = session.request(tools=my_tools)
        response = client.chat.completions.create(model=model, **request)
        for call in session.record(response):
            session.add(tool_result(call, run(call)))
"""

from leporello.messages import ToolCall, tool_result
from leporello.session.accounts import Parts, SessionUsage, Spent
from leporello.session.async_session import AsyncSession
from leporello.session.session import Session

__all__ = ["AsyncSession", "Parts", "Session", "SessionUsage", "Spent", "ToolCall", "tool_result"]
