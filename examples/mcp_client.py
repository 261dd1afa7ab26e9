"""An MCP client asks `leporello mcp` about a stored conversation, as Claude Code or Codex would.

Run it: python examples/mcp_client.py
"""

import asyncio
import json
import sys
import tempfile
from pathlib import Path

from mcp import Client, StdioServerParameters
from mcp_types import TextContent

from leporello.store import open_store


async def main() -> None:
    """Store a conversation, start the server on it, and find what was said."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "leporello.db")
        store = open_store(file)
        store.append("harbour", [{"role": "user", "content": "The spare lamp hangs at hook Q-17."}])
        store.append("harbour", [{"role": "assistant", "content": "I will remember that."}])
        store.close()

        command = StdioServerParameters(command=sys.executable, args=["-m", "leporello", "mcp", "--store", str(file)])
        async with Client(command) as client:
            tools = await client.list_tools()
            print("tools:", ", ".join(tool.name for tool in tools.tools))
            found = await client.call_tool("lcm_grep", {"query": "spare lamp"})
            assert isinstance(found.content[0], TextContent)
            (hit, *_) = json.loads(found.content[0].text)["results"]
            print("found:", hit["id"], hit["snippet"])
            whole = await client.call_tool("lcm_expand", {"id": hit["id"]})
            assert isinstance(whole.content[0], TextContent)
            print("said:", json.loads(whole.content[0].text)["messages"][0]["message"]["content"])


if __name__ == "__main__":
    asyncio.run(main())
